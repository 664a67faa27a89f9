-- Compares what hashes hold with what they should hold. Only reads.
-- KEYS: the hashes. ARGV[1]: MessagePack, for each of KEYS a list in pairs: path, value. ARGV[2]: the
-- most bytes that a value may have. Returns a list of what differs: the number of the hash, the number
-- of the pair, the SHA-1 of what is stored ('': nothing is), and its beginning, one byte more than it
-- may have. Of a key that is no hash: its number and its type.

local found = {}
for number, given in ipairs(cmsgpack.unpack(ARGV[1])) do
  local kind = redis.call('TYPE', KEYS[number])['ok']
  if kind ~= 'hash' and kind ~= 'none' then
    found[#found + 1] = {number, kind}
  else
    for i = 1, #given, 2 do
      local stored = redis.call('HGET', KEYS[number], given[i])
      if stored ~= given[i + 1] then
        local digest, begin = '', ''
        if stored then
          digest, begin = redis.sha1hex(stored), string.sub(stored, 1, tonumber(ARGV[2]) + 1)
        end
        found[#found + 1] = {number, (i + 1) / 2, digest, begin}
      end
    end
  end
end
return found
