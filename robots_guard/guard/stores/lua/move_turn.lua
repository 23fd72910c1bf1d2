-- Re-stamp a turn with a later time, if no other turn was taken since. Returns whether it is still the last (1 or 0).
--
-- KEYS  the turns of the origin, in the format of reserve_turn.lua
-- ARGV  the turn's stamp, its new stamp (microseconds since 1970)
local last, not_before, line = string.match(text_at(KEYS[1], 65536), '^(%d+) (%d+)(.*)$')
if last == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. not_before .. line, 'KEEPTTL')
  return 1
end
return 0
