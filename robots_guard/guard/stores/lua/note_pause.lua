-- Grant no turn of an origin for some time. Never shortens an earlier pause.
--
-- KEYS  the turns of the origin, in the format of reserve_turn.lua
-- ARGV  the length of the pause, the latest credible end of a stored pause from now (microseconds)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last, not_before, line = string.match(text_at(KEYS[1], 65536), '^(%d+) (%d+)(.*)$')
not_before = tonumber(not_before or 0)
if not_before > now + tonumber(ARGV[2]) then not_before = 0 end
not_before = math.max(not_before, now + tonumber(ARGV[1]))
local life = math.max(math.ceil((not_before - now) / 1000), redis.call('PTTL', KEYS[1])) + 1000
redis.call('SET', KEYS[1], string.format('%s %.0f', last or '0', not_before) .. (line or ''), 'PX', life)
