-- Applies a push, once, and answers with the totals of its windows. What windows take hits, and how long they live, is
-- as in backend.Clock. All that is there is read and understood before the first write, so that the script never stops
-- half-way.
--
-- KEYS[1]    the sender's record, a sorted set: the sequences that were applied, and "floor", each with itself as score
-- KEYS[2..]  for each item, its counter's hash: window number, or start in nanoseconds (20 digits), to hits
-- ARGV       1 time in microseconds, or '' for Redis's; 2 sequence; 3 floor; 4 '1' if there are hits; 5 least life of
--            a sender's record, 6 grace and 7 ahead, in ms; 8 windows ahead; then for each item: kind, width in ms,
--            newest (20 digits for kind 2), count n, n hits
-- Returns    time in nanoseconds, 1 if not applied again, hits applied, returned, dropped, records repaired; then
--            for each item: newest, n totals
--
-- Numbers are doubles here, and exact: hits, sequences and times in microseconds stay below 2^53. Nanoseconds do not, so
-- these are strings of 20 digits, which compare as numbers do.
local MAX_HITS = 9007199254740991
local FIRST_HIT, SLIDING = '2', '3'

local function digits(n) return string.format('%.0f', n) end
local function nanos(us) return string.format('%017.0f000', us) end
local function sum(a, b) return math.max(-MAX_HITS, math.min(a + b, MAX_HITS)) end

-- integer reads a number that this script has written, and nothing else.
local function integer(s)
  local n = string.find(s, '^%-?%d+$') and #s <= 17 and tonumber(s)
  return n and math.abs(n) <= MAX_HITS and digits(n) == s and n or nil
end

local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local nowMs, nowNs = math.floor(now / 1000), nanos(now)
local sequence, floor, hasHits = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local SENDER_LIFE, GRACE = tonumber(ARGV[5]), tonumber(ARGV[6])
local AHEAD, WINDOWS_AHEAD = tonumber(ARGV[7]), tonumber(ARGV[8])
local applied, returned, dropped, repaired = 0, 0, 0, 0

local function count(hits)
  if hits < 0 then
    returned = sum(returned, -hits)
  else
    applied = sum(applied, hits)
  end
end

-- A key of another type is not ours: it is begun anew. Any other error stops the script, before it has written.
local function foreign(reply) return type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE') end
local function failed(reply) return type(reply) == 'table' and reply.err end

-- The sender's record.
local duplicate, senderBroken = false, false
if hasHits then
  local known = redis.pcall('ZSCORE', KEYS[1], 'floor')
  if foreign(known) then
    senderBroken = true
  elseif failed(known) then
    return known
  elseif known then
    known = tonumber(known)
    if known and known >= 0 and known <= MAX_HITS and known == math.floor(known) then
      duplicate = sequence < known or redis.call('ZSCORE', KEYS[1], digits(sequence)) and true or false
      floor = math.max(floor, known)
    else
      senderBroken = true
    end
  end
end
local apply = hasHits and not duplicate

-- The counters. A counter that is named twice is loaded once.
local counters = {}

local function load(key, kind, width)
  local reply = redis.pcall('HGETALL', key)
  -- windows: field to hits, those that live; changed: the fields to write; stale: the fields to remove; broken: to be
  -- written anew; start, of a first-hit window, or last, the greatest number: the window that expires last, renewed if
  -- the key's life has to be set.
  local c = {kind = kind, width = width, grace = math.min(width, GRACE), windows = {}, stale = {}, changed = {}}
  if foreign(reply) then
    c.broken, reply = true, {}
  elseif failed(reply) then
    return nil, reply
  end
  if kind == FIRST_HIT then
    c.ended = nanos(math.max(0, now - width * 1000))
    c.tooFar = nanos(now + math.max(AHEAD, 2 * width) * 1000)
  else
    local counting = kind == SLIDING and 2 or 1
    local current = math.floor(nowMs / width)
    c.oldest = current - counting + 1
    c.kept = math.floor((nowMs - c.grace) / width) - counting + 1
    c.farthest = current + math.max(2, math.min(WINDOWS_AHEAD, math.floor(AHEAD / width)))
    c.counting = counting
  end
  for i = 1, #reply, 2 do
    local field, hits = reply[i], integer(reply[i + 1])
    local live
    if kind == FIRST_HIT then
      if #field ~= 20 or not string.find(field, '^%d+$') then
        hits = nil
      end
      live = hits and field > c.ended and field <= c.tooFar and not c.start
      if live then
        c.start = field
      end
    else
      local number = integer(field)
      hits = number and hits
      live = hits and number >= c.kept and number <= c.farthest
      if live then
        c.last = math.max(c.last or 0, number)
      end
    end
    if live then
      c.windows[field] = hits
    else
      c.stale[#c.stale + 1] = field
      c.broken = c.broken or not hits
    end
  end
  return c
end

-- expires is the time in ms from which on nobody can read of a window.
local function expires(c, number)
  if c.kind == FIRST_HIT then
    return math.ceil(tonumber(number) / 1000000) + c.width + c.grace
  end
  return (number + c.counting) * c.width + c.grace
end

local items = {}
local at = 9
for i = 2, #KEYS do
  local key, item = KEYS[i], {kind = ARGV[at], width = tonumber(ARGV[at + 1]), newest = ARGV[at + 2], hits = {}}
  local n = tonumber(ARGV[at + 3])
  for j = 1, n do
    item.hits[j] = tonumber(ARGV[at + 3 + j])
  end
  at = at + 4 + n
  local c = counters[key]
  if not c then
    local err
    c, err = load(key, item.kind, item.width)
    if err then
      return err
    end
    counters[key] = c
  end
  item.counter = c
  items[#items + 1] = item
end

-- Adding, in memory.
local senderExpires = nowMs + SENDER_LIFE

local function addFirstHit(c, item)
  local start, hits = item.newest, item.hits[1]
  if start > c.tooFar or start <= c.ended then
    dropped = sum(dropped, math.abs(hits))
    return
  end
  senderExpires = math.max(senderExpires, expires(c, start))
  if start > nowNs then
    start = nowNs
  end
  count(hits)
  if c.start then
    hits = sum(hits, c.windows[c.start])
    if c.start <= start then
      start = c.start
    else
      c.stale[#c.stale + 1] = c.start
      c.windows[c.start], c.changed[c.start] = nil, nil
    end
  end
  c.renewed = c.renewed or start ~= c.start
  c.start = start
  c.windows[start], c.changed[start] = hits, true
end

local function addClock(c, item)
  local newest = tonumber(item.newest)
  for j, hits in ipairs(item.hits) do
    local number = newest - j + 1
    if hits == 0 then
      -- Nothing to add; the window is only asked for.
    elseif number < c.oldest or number > c.farthest then
      dropped = sum(dropped, math.abs(hits))
    else
      local field = digits(number)
      count(hits)
      c.windows[field], c.changed[field] = sum(c.windows[field] or 0, hits), true
      if number > (c.last or -1) then
        c.last, c.renewed = number, true
      end
      senderExpires = math.max(senderExpires, expires(c, number))
    end
  end
end

if apply then
  for _, item in ipairs(items) do
    if item.kind ~= FIRST_HIT then
      addClock(item.counter, item)
    elseif item.hits[1] ~= 0 then
      addFirstHit(item.counter, item)
    end
  end
end

-- Writing. From here on nothing can fail, save that Redis refuses the first write.
if apply then
  for key, c in pairs(counters) do
    if next(c.changed) then
      if c.broken then
        repaired = repaired + 1
      end
      if c.broken or #c.stale > 128 then
        redis.call('UNLINK', key)
        c.changed, c.renewed = c.windows, true
      elseif #c.stale > 0 then
        redis.call('HDEL', key, unpack(c.stale))
        c.renewed = true
      end
      local fields = {}
      for field in pairs(c.changed) do
        fields[#fields + 1] = field
        fields[#fields + 1] = digits(c.windows[field])
      end
      redis.call('HSET', key, unpack(fields))
      if c.renewed then
        redis.call('PEXPIRE', key, digits(expires(c, c.start or c.last) - nowMs))
      end
    end
  end
  if senderBroken then
    repaired = repaired + 1
    redis.call('UNLINK', KEYS[1])
  end
  redis.call('ZADD', KEYS[1], digits(floor), 'floor', digits(sequence), digits(sequence))
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. digits(floor))
  if redis.call('PTTL', KEYS[1]) < senderExpires - nowMs then
    redis.call('PEXPIRE', KEYS[1], digits(senderExpires - nowMs))
  end
end

-- Answering.
local function total(hits) return digits(math.max(0, hits)) end
local answer = {nowNs, duplicate and '1' or '0', digits(applied), digits(returned),
  digits(dropped), digits(repaired)}
for _, item in ipairs(items) do
  local c = item.counter
  if item.kind == FIRST_HIT then
    answer[#answer + 1] = c.start or item.newest
    answer[#answer + 1] = c.start and total(c.windows[c.start]) or '0'
  else
    local newest = tonumber(item.newest)
    answer[#answer + 1] = item.newest
    for j = 1, #item.hits do
      answer[#answer + 1] = total(c.windows[digits(newest - j + 1)] or 0)
    end
  end
end
return answer
