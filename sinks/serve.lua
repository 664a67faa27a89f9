-- Serves what was set by hand at one place: replaces it as a whole where it is not older.
-- KEYS[1]: the hash. KEYS[2]: the version of what is served there, "number offset"; on Redis Cluster
-- it lies beside the hash. ARGV: number, offset, channel, announcement, "all" or "field"; then the
-- fields and values. "all": they are all fields of the hash. "field": the one field named is all
-- that is touched; without a value it goes away. Returns 1 where anything changed.
-- The same version again changes something only where the hash has lost it, or it has expired.

local number, offset = tonumber(ARGV[1]), tonumber(ARGV[2])
local known = redis.call('GET', KEYS[2])
if known then
  local known_number, known_offset = string.match(known, '^(%d+) (%d+)$')
  known_number, known_offset = tonumber(known_number or 0), tonumber(known_offset or 0)
  if number < known_number then return 0 end
  if number == known_number and offset < known_offset then return 0 end
end
redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end -- written by hand

if ARGV[5] == 'field' then
  local stored = redis.call('HGET', KEYS[1], ARGV[6])
  if stored == (ARGV[7] or false) then return 0 end
  if ARGV[7] then redis.call('HSET', KEYS[1], ARGV[6], ARGV[7])
  else redis.call('HDEL', KEYS[1], ARGV[6]) end
else
  local same = redis.call('HLEN', KEYS[1]) == (#ARGV - 5) / 2
  for i = 6, #ARGV, 2 do
    same = same and redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1]
  end
  if same then return 0 end
  redis.call('DEL', KEYS[1])
  for i = 6, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
