-- Take an origin's turn, or return how long to wait for it. The rules are pacing.next_turn and pacing.in_line; the
-- clock is the server's, which all processes share. Times are microseconds since 1970.
--
-- KEYS  the turns of the origin: "LAST NOT_BEFORE", followed by " NAME:DUE:UNTIL" for each waiting process; DUE and
--       UNTIL are equal for a process that was just granted a turn
-- ARGV  the delay; how far in the future a stored last turn may be; the same for a stored pause; how long a place in
--       the queue is kept (all microseconds); the maximum number of places; the name of the calling process
-- Returns the wait, the stamp of the granted turn (or 0), whether the wait is due to a pause, the number of processes
-- in the queue including the caller, how many of their names sort before the caller's, the server's time, and the
-- rest of the pause.
local delay, grace, most, name = tonumber(ARGV[1]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local last, not_before, line = string.match(text_at(KEYS[1], 65536), '^(%d+) (%d+)(.*)$')
last, not_before = tonumber(last or 0), tonumber(not_before or 0)
if last > now + tonumber(ARGV[2]) then last = 0 end
if not_before > now + tonumber(ARGV[3]) then not_before = 0 end
local paced = last > 0 and last + delay or 0
local due = math.max(now, paced, not_before)

local others, served, ahead, rank, at = {}, {}, 0, 0, nil
for waiter, since, till in string.gmatch(line or '', ' (%w+):(%d+):(%d+)') do
  if tonumber(till) >= now and tonumber(till) <= tonumber(since) + (most + 1) * grace then
    if waiter < name then rank = rank + 1 end
    if since == till then
      if waiter ~= name then served[#served + 1] = ' ' .. waiter .. ':' .. since .. ':' .. till end
    elseif waiter == name then
      at = #others + 1
    else
      others[#others + 1] = ' ' .. waiter .. ':' .. since .. ':' .. till
      if not at and tonumber(since) <= due then ahead = ahead + 1 end
    end
  end
end

local crowd = #others + #served + 1
local wait = due - now
if wait == 0 and (ahead == 0 or delay == 0) then
  last = now
  local next_call = now + 2 * delay + grace
  if name ~= '' and delay > 0 then served[#served + 1] = string.format(' %s:%.0f:%.0f', name, next_call, next_call) end
else
  wait = wait + ahead * math.min(delay, grace)
  if name ~= '' then
    table.insert(others, at or #others + 1, string.format(' %s:%.0f:%.0f', name, due, now + wait + grace))
  end
end
-- Kept ten minutes longer, because the next caller may require a longer delay.
local life = math.ceil(math.max(delay, wait) / 1000) + 600000
for _, place in ipairs(served) do others[#others + 1] = place end
local value = string.format('%.0f %.0f', last, not_before) .. table.concat(others, '', 1, math.min(#others, most))
redis.call('SET', KEYS[1], value, 'PX', life)
local stamp, is_pause = wait == 0 and now or 0, due > now and not_before > paced and 1 or 0
local pause = math.max(0, not_before - now)
local function whole(number) return string.format('%.0f', number) end
return {whole(wait), whole(stamp), is_pause, crowd, rank, whole(now), whole(pause)}
