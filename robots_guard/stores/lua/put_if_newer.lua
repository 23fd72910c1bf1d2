-- Keep a policy and its document, unless what is held was fetched later. The rule is Policy.gives_way_to: what
-- comes from beyond the horizon was stamped by a clock that has jumped, and gives way; so does what is no string.
--
-- KEYS  the policy, its document
-- ARGV  when it settled, the horizon (seconds since 1970), the policy, its life (ms), the document, its life (ms)
local head = redis.pcall('GETRANGE', KEYS[1], 0, 31)
local held = type(head) == 'string' and tonumber(string.match(head, '^([^\n]*)\n'))
if held and held > tonumber(ARGV[1]) and held <= tonumber(ARGV[2]) then
  return 0
end
if ARGV[5] ~= '' then
  redis.call('SET', KEYS[2], ARGV[5], 'PX', ARGV[6])
end
redis.call('SET', KEYS[1], ARGV[1] .. '\n' .. ARGV[3], 'PX', ARGV[4])
return 1
