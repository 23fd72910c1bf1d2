-- Keep a policy, unless what is held was fetched later. The rule is Policy.gives_way_to: what comes from beyond the
-- horizon was stamped by a clock that has jumped, and gives way.
--
-- KEYS  the policy
-- ARGV  when it settled, the horizon (seconds since 1970), the policy, its life (ms)
local held = tonumber(string.match(text_at(KEYS[1], 32), '^([^\n]*)\n'))
if held and held > tonumber(ARGV[1]) and held <= tonumber(ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1] .. '\n' .. ARGV[3], 'PX', ARGV[4])
return 1
