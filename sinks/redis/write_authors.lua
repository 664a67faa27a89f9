-- Changes fields of a hash, all or none: only if each still has the value that was read.
-- KEYS[1]: the hash. ARGV: in groups of three: field, the value read before, the new value, each with
-- the prefix "=", or "-" for no value. Returns 1 if the fields were changed, else 0.

for i = 1, #ARGV, 3 do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  if (stored and '=' .. stored or '-') ~= ARGV[i + 1] then return 0 end
end
for i = 1, #ARGV, 3 do
  if ARGV[i + 2] ~= '-' then redis.call('HSET', KEYS[1], ARGV[i], string.sub(ARGV[i + 2], 2))
  else redis.call('HDEL', KEYS[1], ARGV[i]) end
end
return 1
