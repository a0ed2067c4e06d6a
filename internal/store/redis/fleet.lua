-- Changes what backends decide of a namespace's fleet: which limits' hits are advanced, and which of these are listed.
--
-- KEYS  those of the fleet, as keys.fleet orders them
-- ARGV  1 revision as seen, '' if there was no fleet, or '?' to change nothing; 2 new revision; 3 new contents; 4 new version, later than
--       all, or '' to leave it; 5 life in ms; then near keys that go
-- Returns revision, version and contents as they are now
local head = redis.pcall('HMGET', KEYS[1], 'revision', 'version', 'contents')
if head.err then
  if not string.find(head.err, 'WRONGTYPE') then
    return head
  end
  head = {false, false, false}
end
local revision, version = head[1] or '', tonumber(head[2])
if not version or version < 0 or version > 4503599627370496 or version ~= math.floor(version) then
  version = 0 -- no clock has told it
end
if revision ~= ARGV[1] or ARGV[4] ~= '' and version >= tonumber(ARGV[4]) then
  return {revision, string.format('%.0f', version), head[3] or ''}
end
if revision == '' then
  redis.call('UNLINK', unpack(KEYS))
end
redis.call('HSET', KEYS[1], 'revision', ARGV[2], 'contents', ARGV[3])
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'version', ARGV[4], 'gone', 0)
end
for i = 6, #ARGV, 1000 do
  redis.call('ZREM', KEYS[2], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
for i = 1, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[5])
end
return {ARGV[2], ARGV[4] ~= '' and ARGV[4] or string.format('%.0f', version), ARGV[3]}
