-- Sets the marker of a Redis that has all modes, and announces it to readers.
-- KEYS[1]: the hash of the modes of all executors, also the channel. ARGV: the field of the marker;
-- the token that begin_modes returned; the server's run id. Does nothing if the token is missing:
-- modes published since may then be missing too. Returns 1 if the marker is set, else 0.

local held = redis.call('HGET', KEYS[1], ARGV[1])
if held == ARGV[3] then return 1 end
if held ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('PUBLISH', KEYS[1], '{"published":true}')
return 1
