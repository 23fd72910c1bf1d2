-- Take an origin's turn, or say how long until it is. The rules are pacing.next_turn and pacing.in_line; the clock is
-- the server's, which is the same for all who ask. Times are microseconds since 1970.
--
-- KEYS  the turns of the origin: "LAST NOT_BEFORE", and for each process that waits " NAME:DUE:UNTIL"; for one that
--       has just been served, DUE and UNTIL are the same
-- ARGV  the delay, how far ahead a last turn may lie, and a hold-off, how long a place is kept (microseconds);
--       how many places there are; the asker's name
-- Returns the wait, the stamp of a turn that was taken, whether the origin has asked for the wait, how many processes
-- stand in line, the asker included, how many of them have a name that sorts before the asker's, the time, and for how
-- long the origin has asked to be left alone.
local delay, kept, most, name = tonumber(ARGV[1]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last, held, line = string.match(text_at(KEYS[1], 65536), '^(%d+) (%d+)(.*)$')
last, held = tonumber(last or 0), tonumber(held or 0)
if last > now + tonumber(ARGV[2]) then last = 0 end
if held > now + tonumber(ARGV[3]) then held = 0 end
local paced = last > 0 and last + delay or 0
local due = math.max(now, paced, held)

local others, served, ahead, rank, at = {}, {}, 0, 0, nil
for who, since, till in string.gmatch(line or '', ' (%w+):(%d+):(%d+)') do
  if tonumber(till) >= now and tonumber(till) <= tonumber(since) + (most + 1) * kept then
    if who < name then rank = rank + 1 end
    if since == till then
      if who ~= name then served[#served + 1] = ' ' .. who .. ':' .. since .. ':' .. till end
    elseif who == name then
      at = #others + 1
    else
      others[#others + 1] = ' ' .. who .. ':' .. since .. ':' .. till
      if not at and tonumber(since) <= due then ahead = ahead + 1 end
    end
  end
end

local crowd = #others + #served + 1
local wait = due - now
if wait == 0 and (ahead == 0 or delay == 0) then
  last = now
  local asks = now + 2 * delay + kept
  if name ~= '' and delay > 0 then served[#served + 1] = string.format(' %s:%.0f:%.0f', name, asks, asks) end
else
  wait = wait + ahead * math.min(delay, kept)
  if name ~= '' then
    table.insert(others, at or #others + 1, string.format(' %s:%.0f:%.0f', name, due, now + wait + kept))
  end
end
-- Ten minutes beyond, for the next to ask may be told to keep a longer delay.
local life = math.ceil(math.max(delay, wait) / 1000) + 600000
for _, place in ipairs(served) do others[#others + 1] = place end
local value = string.format('%.0f %.0f', last, held) .. table.concat(others, '', 1, math.min(#others, most))
redis.call('SET', KEYS[1], value, 'PX', life)
local stamp, is_pause = wait == 0 and now or 0, due > now and held > paced and 1 or 0
local pause = math.max(0, held - now)
local function whole(number) return string.format('%.0f', number) end
return {whole(wait), whole(stamp), is_pause, crowd, rank, whole(now), whole(pause)}
