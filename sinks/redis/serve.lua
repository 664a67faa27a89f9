-- Serves what was set by hand at one place: changes fields that are still what was seen.
-- KEYS: the hash; the version of what is served there, "number offset"; what was served, as JSON. On
-- Redis Cluster all lie in one slot. ARGV: the version; the one that was seen ("": none); what is
-- served; channel; announcement; then in groups of three: field, what was seen, what it is to hold,
-- each with "=" before it, or "-" where there is nothing.
-- Returns 1 where fields changed, 0 where none was to, -1 where something else was there than was
-- seen: then nothing is changed.

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
