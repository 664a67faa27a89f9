-- Returns names of a hash's fields, without their values. KEYS[1]: the hash. ARGV: the cursor, the
-- approximate count, and Unix ms: a hash that has only the number of an older repair is deleted.
-- Returns the next cursor ("0" at the end) and the names; no names for a key that is not a hash.

if redis.call('TYPE', KEYS[1])['ok'] ~= 'hash' then return {'0', {}} end
if redis.call('HLEN', KEYS[1]) == 1 then
  local repaired = redis.call('HGET', KEYS[1], '!repaired')
  if repaired and (tonumber(repaired) or 0) < tonumber(ARGV[3]) then
    redis.call('DEL', KEYS[1])
    return {'0', {}}
  end
end
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local names = {}
for i = 1, #found[2], 2 do names[#names + 1] = found[2][i] end
return {found[1], names}
