-- Records that all modes are about to be published; until then readers treat no mode as unset.
-- KEYS[1]: the hash of the modes of all executors. ARGV: the field of the marker; the prefix of
-- publishers' tokens; a token; the server's run id. Returns the token to finish with: an existing
-- token is shared, because every publisher that gets it publishes after it was written. Returns
-- false if the marker is already set.

local held = redis.call('HGET', KEYS[1], ARGV[1])
if held == ARGV[4] then return false end
if held and string.sub(held, 1, #ARGV[2]) == ARGV[2] then return held end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return ARGV[3]
