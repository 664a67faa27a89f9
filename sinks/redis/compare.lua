-- Compares the values of hashes with the expected ones. Read-only.
-- KEYS: the hashes. ARGV[1]: MessagePack, for each of KEYS a list of pairs: path, value. ARGV[2]: the
-- maximum bytes of a value. Returns a list of differences: the index of the hash, the index of the
-- pair, the SHA-1 of the stored value ('' if there is none), and its first bytes, one more than the
-- maximum. For a key that is not a hash: its index and its type.

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
