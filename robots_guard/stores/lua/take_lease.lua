-- Take a lease, unless another holds it. A caller that asks again, because the answer was lost, has it. A lease that
-- does not end, or not before long, was not given by us: it counts as ended.
--
-- KEYS  the lease
-- ARGV  the token, how long the lease lasts, how long one may have left (milliseconds)
local holder = text_at(KEYS[1], 64)
local left = redis.call('PTTL', KEYS[1])
if holder ~= '' and holder ~= ARGV[1] and left >= 0 and left <= tonumber(ARGV[3]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
