-- Reads or replaces a namespace's list of overrides. See store.Overrides.
--
-- KEYS[1] hash: version and list
-- ARGV    1 the version that the caller knows
--         To replace the list if it has that version also: 2 time in microseconds, '' for Redis's; 3
--         the new list
--
-- Returns the version, and the list unless the caller knows it. After a replacement it returns the
-- new version; false if the list has another version.
local found = redis.pcall('HMGET', KEYS[1], 'version', 'list')
if found.err and not string.find(found.err, 'WRONGTYPE') then
  return found
end
local version, list = found[1], found[2]
-- A list without a valid version was not written by the store, and counts as empty.
if not version or not string.find(version, '^%d+$') then
  version, list = '0', false
end
if #ARGV == 1 then
  if version == ARGV[1] then
    list = ''
  end
  return {version, list or ''}
end
if version ~= ARGV[1] then
  return false
end
local now = tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
version = string.format('%.0f', math.max(tonumber(version) + 1, now))
redis.call('UNLINK', KEYS[1])
redis.call('HSET', KEYS[1], 'version', version, 'list', ARGV[3])
return version
