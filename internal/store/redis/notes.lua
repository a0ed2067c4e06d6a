-- Keeps a note of a namespace's member, or reads all. See Note and Notes of store.Documents.
--
-- KEYS[1] hash: member to its note, which the time in microseconds and a space precede; and '' to the time of the last look for
--         room. A look takes long, so there is one a second, unless the oldest make room
-- ARGV    1 time in microseconds; '' for Redis's
--         2 how long a note lives, in microseconds
--         To keep a note also: 3 most notes; 4 member; 5 its note; 6 '1' to remove the oldest
--         sixteenth if there are too many, and not to drop this one. To find one takes as long
--
-- Returns members and their notes, alternating, unless it keeps one.
local now, life = tonumber(ARGV[1]), tonumber(ARGV[2])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local size = redis.pcall('HLEN', KEYS[1])
if type(size) == 'table' then
  if not string.find(size.err, 'WRONGTYPE') then
    return size
  end
  if #ARGV == 2 then
    return {} -- another program has written the key
  end
  redis.call('UNLINK', KEYS[1])
  size = 0
end

local times = {} -- of the live notes, in their order
local function live()
  local all, live = redis.call('HGETALL', KEYS[1]), {}
  for i = 1, #all, 2 do
    local at, note = string.match(all[i + 1], '^(%d+) (.*)$')
    at = tonumber(at)
    if at and at > now - life and at < now + life then
      live[#live + 1], live[#live + 2] = all[i], note
      times[#times + 1] = at
    elseif #ARGV > 2 and all[i] ~= '' then
      redis.call('HDEL', KEYS[1], all[i])
      size = size - 1
    end
  end
  return live
end

if #ARGV == 2 then
  return live()
end
local most, known, log = tonumber(ARGV[3]), redis.call('HEXISTS', KEYS[1], ARGV[4]) == 1, ARGV[6] == '1'
local looked = redis.call('HGET', KEYS[1], '')
size = looked and size - 1 or size
local ago = now - (tonumber(looked) or -math.huge)
if not known and size >= most and (log or not (ago >= 0 and ago < 1000000)) then
  local notes, keep = live(), most - math.max(1, math.floor(most / 16))
  if not log then
    redis.call('HSET', KEYS[1], '', string.format('%.0f', now))
  elseif size >= most then
    local sorted = {}
    for i = 1, #times do
      sorted[i] = times[i]
    end
    table.sort(sorted)
    local last = sorted[size - keep]
    for i = 1, #times do
      if times[i] <= last and size > keep then
        redis.call('HDEL', KEYS[1], notes[2 * i - 1])
        size = size - 1
      end
    end
  end
end
if known or size < most then
  redis.call('HSET', KEYS[1], ARGV[4], string.format('%.0f', now) .. ' ' .. ARGV[5])
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life / 1000))
end
return false
