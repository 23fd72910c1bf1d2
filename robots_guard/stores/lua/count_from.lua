-- Move a turn to when its answer began, if none has been taken since.
--
-- KEYS  the turns of the origin: as reserve_turn.lua keeps them
-- ARGV  the turn's stamp, what it now is (microseconds since 1970)
local last, held, line = string.match(text_at(KEYS[1], 16384), '^(%d+) (%d+)(.*)$')
if last == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. held .. line, 'KEEPTTL')
end
