-- Run every command that the other scripts use, so that a missing permission is found at startup.
--
-- KEYS  a key under the prefix that nothing else uses
text_at(KEYS[1], 1)
redis.call('SET', KEYS[1], redis.call('TIME')[1], 'PX', 1000)
return redis.call('PTTL', KEYS[1])
