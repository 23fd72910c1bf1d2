-- Move a turn to a later moment, if no other has been taken since. Returns whether it is still the last (1 or 0).
--
-- KEYS  the turns of the origin: as reserve_turn.lua keeps them
-- ARGV  the turn's stamp, what it now is (microseconds since 1970)
local last, held, line = string.match(text_at(KEYS[1], 65536), '^(%d+) (%d+)(.*)$')
if last == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. held .. line, 'KEEPTTL')
  return 1
end
return 0
