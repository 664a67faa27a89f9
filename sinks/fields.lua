-- Returns names of a hash's fields, without their values. KEYS[1]: the hash. ARGV: the cursor, and about
-- how many. Returns the next cursor ("0": that was all) and the names; of a key that is no hash none.

if redis.call('TYPE', KEYS[1])['ok'] ~= 'hash' then return {'0', {}} end
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local names = {}
for i = 1, #found[2], 2 do names[#names + 1] = found[2][i] end
return {found[1], names}
