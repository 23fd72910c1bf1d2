-- Release a lease, if the token still owns it: it may have expired and been taken by another process.
--
-- KEYS  the lease
-- ARGV  the token
if text_at(KEYS[1], 64) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
