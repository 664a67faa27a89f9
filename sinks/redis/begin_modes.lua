-- Notes that all modes are about to be published, so that until then none counts as absent.
-- KEYS[1]: the hash of everybody's modes. ARGV: the field of the marker; how the tokens of those who
-- publish begin; a token; the server's run id. Returns the token to finish with: one that is there is
-- shared, for whoever publishes from now on publishes after it was written. False where the marker is
-- set already.

local held = redis.call('HGET', KEYS[1], ARGV[1])
if held == ARGV[4] then return false end
if held and string.sub(held, 1, #ARGV[2]) == ARGV[2] then return held end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return ARGV[3]
