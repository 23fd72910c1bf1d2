-- No turn of an origin for so long; never less than was said before.
--
-- KEYS  the turns of the origin: as reserve_turn.lua keeps them
-- ARGV  how long, how far ahead a hold-off may lie (microseconds)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last, held, line = string.match(text_at(KEYS[1], 65536), '^(%d+) (%d+)(.*)$')
held = tonumber(held or 0)
if held > now + tonumber(ARGV[2]) then held = 0 end
held = math.max(held, now + tonumber(ARGV[1]))
local life = math.max(math.ceil((held - now) / 1000), redis.call('PTTL', KEYS[1])) + 1000
redis.call('SET', KEYS[1], string.format('%s %.0f', last or '0', held) .. (line or ''), 'PX', life)
