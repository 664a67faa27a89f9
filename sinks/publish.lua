-- Writes thresholds of one tenant and workflow type where they are newer, and announces them.
-- KEYS[1]: the hash, also the channel. ARGV, in groups of four: path, value (JSON), epoch, offset.
-- Returns how many fields were written. The version is (epoch, offset), compared as two integers;
-- Lua's numbers are exact to 2^53, far beyond both.

-- Whether (epoch, offset) is higher than the version of a stored value; a corrupt value has none.
local function newer(stored, epoch, offset)
  if not stored then return true end
  local ok, value = pcall(cjson.decode, stored)
  if not ok or type(value) ~= 'table' then return true end
  local known_epoch, known_offset = value['epoch'], value['offset']
  if type(known_epoch) ~= 'number' or type(known_offset) ~= 'number' then return true end
  if epoch ~= known_epoch then return epoch > known_epoch end
  return offset > known_offset
end

local written = {}
for i = 1, #ARGV, 4 do
  local path, value = ARGV[i], ARGV[i + 1]
  if newer(redis.call('HGET', KEYS[1], path), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])) then
    redis.call('HSET', KEYS[1], path, value)
    -- the value with its path: {"path":...,<the rest>
    written[#written + 1] = '{"path":' .. cjson.encode(path) .. ',' .. string.sub(value, 2)
  end
end
if #written > 0 then
  redis.call('PUBLISH', KEYS[1], '[' .. table.concat(written, ',') .. ']')
end
return #written
