-- Returns names of a hash's fields, without their values. KEYS[1]: the hash. ARGV: the cursor, about how
-- many, and Unix ms: where the hash has nothing but the number of a repair from before then, it goes.
-- Returns the next cursor ("0": that was all) and the names; of a key that is no hash none.

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
