-- Notes which worker has learned a partition, and up to which version; never lowers the version.
-- KEYS[1]: the hash. ARGV in pairs: partition, the note (JSON with epoch, offset, worker and open). A note
-- of the same version replaces another worker's if it is of one that has the partition open: that repeats
-- it, and a late one does not. Returns how many notes were written.

local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'hash' and kind ~= 'none' then set_aside(KEYS[1]) end

local function newer(known, given)
  if type(known) ~= 'table' then return true end
  if type(known['epoch']) ~= 'number' or type(known['offset']) ~= 'number' then return true end
  if given['epoch'] ~= known['epoch'] then return given['epoch'] > known['epoch'] end
  if given['offset'] ~= known['offset'] then return given['offset'] > known['offset'] end
  return given['open'] or given['worker'] == known['worker']
end

local written = 0
for i = 1, #ARGV, 2 do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  local ok, known = pcall(cjson.decode, stored or '')
  if newer(ok and known, cjson.decode(ARGV[i + 1])) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
    written = written + 1
  end
end
return written
