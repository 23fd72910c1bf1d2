-- Take a lease, unless another process has it, and read the policy that is stored then. A caller that repeats the call,
-- because the answer was lost, gets the lease again. A lease without expiry, or with too long a life left, was not
-- written by this script and counts as expired.
--
-- KEYS  the lease, the policy of the same origin
-- ARGV  the token, the lifetime of the lease, the most that a valid lease may have left (milliseconds), how many bytes
--       of the policy are returned
-- Returns whether the caller has the lease (1 or 0), and the policy; '' if there is none.
local holder = text_at(KEYS[1], 64)
local left = redis.call('PTTL', KEYS[1])
local policy = tonumber(ARGV[4]) > 0 and text_at(KEYS[2], ARGV[4]) or ''
if holder ~= '' and holder ~= ARGV[1] and left >= 0 and left <= tonumber(ARGV[3]) then
  return {0, policy}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, policy}
