-- Renames a key of another type, which would refuse every value. Its content is kept for a week.
local function set_aside(key)
  local aside = 'headstart:set-aside:{' .. key .. '}'
  if string.sub(key, 1, 1) == '{' then aside = 'headstart:set-aside:' .. key end
  redis.call('RENAME', key, aside)
  redis.call('EXPIRE', aside, 604800)
end

