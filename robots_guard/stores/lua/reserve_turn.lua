-- Take an origin's turn, or say how long until it is. The rule is pacing.next_turn; the clock is the server's, which
-- is the same for all who ask. Times are microseconds since 1970.
--
-- KEYS  the turns of the origin: "LAST NOT_BEFORE"
-- ARGV  the delay, how far ahead a last turn may lie, and a hold-off (microseconds)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last, held = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+)$')
last, held = tonumber(last or 0), tonumber(held or 0)
if last > now + tonumber(ARGV[2]) then last = 0 end
if held > now + tonumber(ARGV[3]) then held = 0 end
local paced = last > 0 and last + tonumber(ARGV[1]) or 0
local turn = math.max(now, paced, held)
if turn > now then
  return {string.format('%.0f', turn - now), '0', held > paced and 1 or 0}
end
-- Ten minutes beyond, for the next to ask may be told to keep a longer delay.
redis.call('SET', KEYS[1], string.format('%.0f %.0f', now, held), 'PX', math.ceil(tonumber(ARGV[1]) / 1000) + 600000)
return {'0', string.format('%.0f', now), 0}
