-- Move a turn to when its answer began, if nobody has taken one since.
--
-- KEYS  the turns of the origin: "LAST NOT_BEFORE"
-- ARGV  the turn's stamp, what it now is (microseconds since 1970)
local last, held = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+)$')
if last == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. held, 'KEEPTTL')
end
