-- Prepended to every script. Returns the first bytes of the value of a key, '' if there is none. A value that is not a
-- string was written by another program and would stay forever, so it is deleted. Any other error (no permission to
-- read) is raised.
local function text_at(key, bytes)
  local found = redis.pcall('GETRANGE', key, 0, bytes - 1)
  if type(found) == 'string' then return found end
  if not string.find(found.err, 'WRONGTYPE', 1, true) then return redis.call('GETRANGE', key, 0, bytes - 1) end
  redis.call('DEL', key)
  return ''
end
