-- Give a lease back, if it is still the token's: it may have ended, and be another's by now.
--
-- KEYS  the lease
-- ARGV  the token
if text_at(KEYS[1], 64) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
