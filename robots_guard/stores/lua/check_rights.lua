-- Do once what the other scripts do, so that a server that refuses any of it is found at the start.
--
-- KEYS  a key of ours that nothing else uses
text_at(KEYS[1], 1)
redis.call('SET', KEYS[1], redis.call('TIME')[1], 'PX', 1000)
return redis.call('PTTL', KEYS[1])
