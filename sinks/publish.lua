-- Writes thresholds where they are newer, and announces them by tenant and workflow type.
-- KEYS: the hashes, each also a channel. ARGV[1]: a list as MessagePack, in groups of five: the number
-- of the hash among KEYS, path, value (JSON), epoch, offset. Returns how many fields were written.
-- The version is (epoch, offset), compared as two integers; Lua's numbers are exact to 2^53, far
-- beyond both.

-- Whether (epoch, offset) is higher than the version of a stored value; a corrupt value has none.
-- What we write has the version in a row, and only numbers before: to decode all of it for that
-- would cost a third of the whole.
local function newer(stored, epoch, offset)
  if not stored then return true end
  local known_epoch, known_offset = string.match(stored, '^{[^{[]-"epoch":(%d+),"offset":(%d+)[,}]')
  known_epoch, known_offset = tonumber(known_epoch), tonumber(known_offset)
  if not known_epoch then
    local ok, value = pcall(cjson.decode, stored)
    if not ok or type(value) ~= 'table' then return true end
    known_epoch, known_offset = value['epoch'], value['offset']
    if type(known_epoch) ~= 'number' or type(known_offset) ~= 'number' then return true end
  end
  if epoch ~= known_epoch then return epoch > known_epoch end
  return offset > known_offset
end

local given, written, count, failed = cmsgpack.unpack(ARGV[1]), {}, 0, nil
for i = 1, #given, 5 do
  local number, path, value = given[i], given[i + 1], given[i + 2]
  local key = KEYS[number]
  local stored = redis.pcall('HGET', key, path)
  if type(stored) == 'table' then
    failed = stored -- of this hash only: the others are written and announced all the same
  elseif newer(stored, given[i + 3], given[i + 4]) then
    redis.call('HSET', key, path, value)
    written[number] = written[number] or {}
    -- the value with its path: {"path":...,<the rest>
    table.insert(written[number], '{"path":' .. cjson.encode(path) .. ',' .. string.sub(value, 2))
    count = count + 1
  end
end
for number = 1, #KEYS do
  if written[number] then
    redis.call('PUBLISH', KEYS[number], '[' .. table.concat(written[number], ',') .. ']')
  end
end
return failed or count
