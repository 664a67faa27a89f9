-- Sets the marker that says that a Redis has all modes, and announces it to readers.
-- KEYS[1]: the hash of everybody's modes, also the channel. ARGV: the field of the marker; the token
-- that was begun with; the server's run id. Does nothing where the token is gone: so may be modes that
-- were published since. Returns 1 where the marker is set, else 0.

local held = redis.call('HGET', KEYS[1], ARGV[1])
if held == ARGV[3] then return 1 end
if held ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('PUBLISH', KEYS[1], '{"published":true}')
return 1
