-- Take a lease, unless another process has it. A caller that repeats the call, because the answer was lost, gets it
-- again. A lease without expiry, or with too long a life left, was not written by this script and counts as expired.
--
-- KEYS  the lease
-- ARGV  the token, the lifetime of the lease, the most that a valid lease may have left (milliseconds)
local holder = text_at(KEYS[1], 64)
local left = redis.call('PTTL', KEYS[1])
if holder ~= '' and holder ~= ARGV[1] and left >= 0 and left <= tonumber(ARGV[3]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
