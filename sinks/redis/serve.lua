-- Publishes the overrides or modes of one target: changes fields that still have the value read before.
-- KEYS: the hash; the key of the published version, "number offset"; the key of the published values,
-- as JSON. On Redis Cluster all are in one slot. ARGV: the version; the version read before ("": none);
-- the published values; channel; announcement; then in groups of three: field, the value read before,
-- the new value, each with the prefix "=", or "-" for no value.
-- Returns 1 if fields changed, 0 if none had to, -1 if a value is not the one read before: then nothing
-- is changed.

local known = redis.pcall('GET', KEYS[2])
if type(known) ~= 'string' then known = '' end
if known ~= ARGV[2] then return -1 end

local kind = redis.call('TYPE', KEYS[1])['ok']
local other = kind ~= 'hash' and kind ~= 'none'
for i = 6, #ARGV, 3 do
  local stored = not other and redis.call('HGET', KEYS[1], ARGV[i])
  if (stored and '=' .. stored or '-') ~= ARGV[i + 1] then return -1 end
end
if other and #ARGV >= 6 then set_aside(KEYS[1]) end

redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[3], ARGV[3])
if #ARGV < 6 then return 0 end
for i = 6, #ARGV, 3 do
  if ARGV[i + 2] ~= '-' then redis.call('HSET', KEYS[1], ARGV[i], string.sub(ARGV[i + 2], 2))
  else redis.call('HDEL', KEYS[1], ARGV[i]) end
end
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1
