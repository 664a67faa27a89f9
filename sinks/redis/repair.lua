-- Replaces values of hashes by the expected ones, each only if it is still the value that was read,
-- and announces them so that readers accept them although their version may be lower.
-- KEYS: the hashes, each also a channel. ARGV[1]: MessagePack, for each of KEYS a list in groups of
-- four: path, the SHA-1 of the value that was read ('': none), the value with its path in it (JSON),
-- and the position in it at which the value itself begins (0: delete the field). ARGV[2]: Unix ms.
-- The field "!repaired" of a hash is the number of its last repair, which only grows: a reader that
-- missed the announcement learns from it that a lower version is intended.
-- Returns for each group 1 if the value was replaced, else 0.

local results = {}
for number, given in ipairs(cmsgpack.unpack(ARGV[1])) do
  local key, written, announced = KEYS[number], {}, {}
  local kind = redis.call('TYPE', key)['ok']
  if kind ~= 'hash' and kind ~= 'none' then set_aside(key) end
  for i = 1, #given, 4 do
    local path, seen, value, begin = given[i], given[i + 1], given[i + 2], given[i + 3]
    local stored = redis.call('HGET', key, path)
    local same = (stored and redis.sha1hex(stored) or '') == seen
    results[#results + 1] = same and 1 or 0
    if same then
      if begin == 0 then
        redis.call('HDEL', key, path)
      else
        redis.call('HSET', key, path, '{' .. string.sub(value, begin))
        written[#written + 1] = value
      end
      announced[#announced + 1] = value
    end
  end
  if #announced > 0 then
    local last = tonumber(redis.call('HGET', key, '!repaired') or 0) or 0
    local repair = string.format('%.0f', math.max(last + 1, tonumber(ARGV[2])))
    redis.call('HSET', key, '!repaired', repair)
    -- Readers of older versions know only the first form.
    if #written > 0 then redis.call('PUBLISH', key, '[' .. table.concat(written, ',') .. ']') end
    redis.call('PUBLISH', key,
      '{"repair":' .. repair .. ',"values":[' .. table.concat(announced, ',') .. ']}')
  end
end
return results
