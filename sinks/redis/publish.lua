-- Writes thresholds where they are newer, and announces them by tenant and workflow type.
-- KEYS: the hashes, each also a channel. ARGV[1]: MessagePack, for each of KEYS a list in groups of five:
-- path, epoch, offset, the value with its path in it (JSON), and the position in it at which the value
-- itself begins, without its opening brace. Returns the number of written fields.
-- The version is (epoch, offset), compared as two integers; Lua's numbers are exact to 2^53, far
-- beyond both.

-- Returns the version of a stored value; nothing if it is corrupt. Values that Headstart writes have
-- only numbers before the version: decoding them as a whole would take a third of the script's time.
local function version_of(stored)
  if not stored then return nil end
  local epoch, offset = string.match(stored, '^{[^{[]-"epoch":(%d+),"offset":(%d+)[,}]')
  epoch, offset = tonumber(epoch), tonumber(offset)
  if epoch then return epoch, offset end
  local ok, value = pcall(cjson.decode, stored)
  if not ok or type(value) ~= 'table' then return nil end
  epoch, offset = value['epoch'], value['offset']
  if type(epoch) ~= 'number' or type(offset) ~= 'number' then return nil end
  if epoch == epoch and offset == offset then return epoch, offset end -- else they are NaN
end

local total, failed = 0, nil
for number, given in ipairs(cmsgpack.unpack(ARGV[1])) do
  local paths, place = {}, {}
  for i = 1, #given, 5 do
    if not place[given[i]] then
      paths[#paths + 1] = given[i]
      place[given[i]] = #paths
    end
  end
  local stored = redis.pcall('HMGET', KEYS[number], unpack(paths))
  if stored['err'] and string.find(stored['err'], 'WRONGTYPE', 1, true) then
    set_aside(KEYS[number])
    stored = {}
  end
  if stored['err'] then
    failed = stored -- of this hash only: the others are still written and announced
  else
    local epochs, offsets, fields, written = {}, {}, {}, {}
    for at = 1, #paths do epochs[at], offsets[at] = version_of(stored[at]) end
    for i = 1, #given, 5 do
      local at, epoch, offset = place[given[i]], given[i + 1], given[i + 2]
      local known = epochs[at]
      if not known or epoch > known or (epoch == known and offset > offsets[at]) then
        epochs[at], offsets[at] = epoch, offset
        fields[#fields + 1] = given[i]
        fields[#fields + 1] = '{' .. string.sub(given[i + 3], given[i + 4])
        written[#written + 1] = given[i + 3]
      end
    end
    if #written > 0 then
      redis.call('HSET', KEYS[number], unpack(fields))
      redis.call('PUBLISH', KEYS[number], '[' .. table.concat(written, ',') .. ']')
      total = total + #written
    end
  end
end
return failed or total
