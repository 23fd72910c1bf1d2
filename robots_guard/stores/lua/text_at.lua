-- Begins every script. What stands under a key, as far as its first bytes: '' for nothing. What is no string gives
-- way: somebody else has put it there, and it would stay for ever. Any other error (no right to read) is raised.
local function text_at(key, bytes)
  local found = redis.pcall('GETRANGE', key, 0, bytes - 1)
  if type(found) == 'string' then return found end
  if not string.find(found.err, 'WRONGTYPE', 1, true) then return redis.call('GETRANGE', key, 0, bytes - 1) end
  redis.call('DEL', key)
  return ''
end
