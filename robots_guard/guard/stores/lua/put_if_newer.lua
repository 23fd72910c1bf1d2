-- Store a policy, unless the stored one was fetched later. The rule is Policy.gives_way_to: a stored time beyond the
-- horizon comes from a clock that has jumped, so that policy is replaced.
--
-- KEYS  the policy
-- ARGV  when the new policy settled, the horizon (seconds since 1970), the rest of the string, its lifetime (ms)
local stored = tonumber(string.match(text_at(KEYS[1], 32), '^([^ \n]*)[ \n]'))
if stored and stored > tonumber(ARGV[1]) and stored <= tonumber(ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[3], 'PX', ARGV[4])
return 1
