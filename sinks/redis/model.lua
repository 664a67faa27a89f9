-- Writes the snapshot of a shared model if it is newer. KEYS[1]: the hash of the model.
-- ARGV: epoch, offset, EPOCH:OFFSET of the last reset, the snapshot, now in Unix ms, a version that
-- is replaced although it is newer, or nothing.
-- Returns 1 if it was written, else 0.
-- The version is (epoch, offset), compared as two integers; a damaged one counts as missing. An
-- integer has no leading zeros, and at most 18 digits.
local stored = redis.pcall('HGET', KEYS[1], 'version')
if type(stored) == 'table' and stored['err'] then
  if not string.find(stored['err'], 'WRONGTYPE', 1, true) then return stored end
  set_aside(KEYS[1])
  stored = nil
end
local function integer(text)
  if text and #text <= 18 and (text == '-1' or text == '0' or string.match(text, '^[1-9]')) then
    return tonumber(text)
  end
end
local epoch, offset = tonumber(ARGV[1]), tonumber(ARGV[2])
if stored and stored ~= ARGV[6] then
  local e, o = string.match(stored, '^(%d+):(-?%d+)$')
  e, o = integer(e), integer(o)
  if e and o and (e > epoch or (e == epoch and o >= offset)) then return 0 end
end
redis.call('HSET', KEYS[1], 'version', ARGV[1] .. ':' .. ARGV[2], 'reset', ARGV[3], 'snapshot', ARGV[4], 'at', ARGV[5])
return 1
