-- Applies a push to one partition, once, and answers with the totals of its windows and what its takes were granted. What
-- windows take hits, and how long they live, is as in store.Calendar, and so is what takes are granted. All that is there is
-- read and understood before the first write, so that the script never stops half-way.
--
-- KEYS[1]    the sender's record, a sorted set: the parts of pushes that were applied, each with its sequence as score and, if
--            it had takes, once more as part:time in nanoseconds:units,units… of the takes; and "floor" with the floor
-- KEYS[2..]  for each item, and then for each room of the takes, its counter's hash: window number, or bucket number or start
--            in nanoseconds (20 digits), to hits; a token bucket has its limit besides; a log's string: its records
-- ARGV       1 time in microseconds, or '' for Redis's; 2 sequence; 3 floor; 4 part, or '' if there are no hits and takes; 5 least life
--            of a sender's record, that of the push's takes included, 6 grace and 7 ahead, in ms; 8 windows ahead; 9 most buckets; 10 number of items, 11 of takes;
--            then for each item: kind, width in ms, buckets of a width (kind 4; 0 for a log), limit, newest (20 digits for
--            kinds 2 and 5), count n, n hits; for kind 4 each before its bucket's number (20 digits);
--            then for each take: least and most units, mode (TAKE, LEASE or REFUSED), count n, n rooms: kind, width, buckets
--            and limit as above, quota, cost, '1' if rejected hits count; for leases what window.Limit.Parts says
-- Returns    time in nanoseconds, 0 if applied or a read, 1 if applied before or 2 if below the floor, hits applied, returned,
--            dropped, records repaired;
--            then for each item: newest, count n, n totals; for kind 4 newest, count n, n times a total, its bucket's number;
--            for a log newest, its records in one string;
--            then for each take: units, time in nanoseconds, and for each room the same as for an item
--
-- Numbers are doubles here, and exact: hits, sequences and times in microseconds stay below 2^53. Nanoseconds do not, so
-- these are strings of 20 digits, which compare as numbers do.
local MAX_HITS = 9007199254740991
local NEVER = '09223372036854775807' -- as store has it
local LEASE, REFUSED = '1', '2'
local SPARE_BUCKETS = 64 -- as store has it

local function digits(n) return string.format('%.0f', n) end
local function nanos(us, below) return string.format('%017.0f', math.max(0, us)) .. (below or '000') end
local function isNanos(s) return #s == 20 and string.find(s, '^%d+$') end
local function sum(a, b) return math.min(a + b, MAX_HITS) end
local function quotient(a, b) return (a - math.fmod(a, b)) / b end

-- scaled is floor(a * b / c) and the rest, exact while a is at most 2^53, b and c at most 2^51, and the result at most 2^53.
-- It divides digit by digit, to a base for which no step exceeds 2^53.
local function scaled(a, b, c)
  local base = math.max(b, c) <= 2 ^ 45 and 128 or 2
  local unit = 1
  while unit * base <= a do
    unit = unit * base
  end
  local result, rest = 0, 0
  while unit >= 1 do
    local digit = quotient(a, unit)
    a, unit = a - digit * unit, unit / base
    local part = rest * base + digit * b
    rest = math.fmod(part, c)
    result = result * base + (part - rest) / c
  end
  return result, rest
end

-- integer reads a number that this script has written, and nothing else.
local function integer(s)
  local n = string.find(s, '^%d+$') and #s <= 16 and tonumber(s)
  return n and n <= MAX_HITS and digits(n) == s and n or nil
end

local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local nowMs, nowNs = math.floor(now / 1000), nanos(now)
local sequence, floor, part, recorded = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[4] ~= ''
local SENDER_LIFE, GRACE = tonumber(ARGV[5]), tonumber(ARGV[6])
local AHEAD, WINDOWS_AHEAD, MAX_BUCKETS = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local applied, returned, dropped, repaired = 0, 0, 0, 0

local function drop(hits) dropped = sum(dropped, math.abs(hits)) end

local function count(hits)
  if hits < 0 then
    returned = sum(returned, -hits)
  else
    applied = sum(applied, hits)
  end
end

-- added is what a window of had hits has after hits were added to it, as store.Outcome.Add.
local function added(had, hits)
  local counted = math.max(hits, -had)
  count(counted)
  drop(hits - counted)
  return sum(had, counted)
end

-- A key of another type is not ours: it is begun anew. Any other error stops the script, before it has written.
local function foreign(reply) return type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE') end
local function failed(reply) return type(reply) == 'table' and reply.err end

-- The sender's record.
local state, senderBroken = '0', false
if recorded then
  local known = redis.pcall('ZSCORE', KEYS[1], 'floor')
  if foreign(known) then
    senderBroken = true
  elseif failed(known) then
    return known
  elseif known then
    known = tonumber(known)
    if known and known >= 0 and known <= MAX_HITS and known == math.floor(known) then
      if sequence < known then
        state = '2'
      elseif redis.call('ZSCORE', KEYS[1], part) then
        state = '1'
      end
      floor = math.max(floor, known)
    else
      senderBroken = true
    end
  end
end
local apply = recorded and state == '0'

-- The counters. Each has
--   kind, width, buckets   as its items
--   windows                field to hits, those that live
--   stale, broken          fields to remove; or the whole is to be written anew
--   touched, changed       whether it is to be written, and fields to write
--   expires, renewed       the time in ms from which on nobody can read of it; whether the key's life is to be set
--   most                   how many of a log's buckets its items need
-- and what its kind needs. A kind says
--   windows                how many of them count at a time, if there are several that an item names by their place
--   aged                   whether an item names each of its windows
--   empties                whether it stops at empty, so that rejected hits never exceed the quota
-- and has these functions:
--   load(c, key)           reads what is there, and returns an error of Redis's; that of hashes, if it has none
--   write(c, key)          writes what was changed; that of hashes, if it has none
--   open(c)                prepares c for reading
--   read(c, field, hits)   tells whether what is there lives; nil if it was not written by this script
--   add(c, item)           adds the item's hits
--   answer(c, item, reply) appends to the reply
--   number(c, us)          is what names, as an item's newest, the window or bucket at a time in microseconds
--   left(c, room)          is how many hits of the room's quota are left now, negative if it is exceeded
local kinds = {}
local senderExpires = nowMs + SENDER_LIFE

local function put(c, field, hits)
  local order = c.order
  if order and not c.windows[field] then
    c.unordered = c.unordered or #order > 0 and field <= order[#order]
    order[#order + 1] = field
  end
  c.windows[field], c.changed[field], c.touched, c.dirty = hits, true, true, true
end

local function remove(c, field)
  c.windows[field], c.changed[field], c.touched, c.dirty = nil, nil, true, true
  c.stale[#c.stale + 1] = field
end

-- live sets the life of the key, which holds a window that lives until expires, and of the sender's record.
local function live(c, expires)
  senderExpires = math.max(senderExpires, expires)
  if expires > (c.expires or 0) then
    c.expires, c.renewed = expires, true
  end
end

local function total(hits) return digits(hits or 0) end

-- Windows of the clock, of which so many count at a time.
local function clock(counting)
  local kind = {windows = counting}

  local function expires(c, number) return (number + counting) * c.width + c.grace end

  function kind.open(c)
    local current = math.floor(nowMs / c.width)
    c.oldest = current - counting + 1
    c.kept = math.floor((nowMs - c.grace) / c.width) - counting + 1
    c.farthest = current + c.ahead
  end

  function kind.read(c, field)
    local number = integer(field)
    if not number or number < c.kept or number > c.farthest then
      return number and false
    end
    c.expires = math.max(c.expires or 0, expires(c, number))
    return true
  end

  function kind.add(c, item)
    local newest = tonumber(item.newest)
    for j, hits in ipairs(item.hits) do
      local number = newest - j + 1
      if hits == 0 then
        -- Nothing to add; the window is only asked for.
      elseif number < c.oldest or number > c.farthest or hits < 0 and (c.windows[digits(number)] or 0) == 0 then
        drop(hits)
      else
        local field = digits(number)
        put(c, field, added(c.windows[field] or 0, hits))
        live(c, expires(c, number))
      end
    end
  end

  function kind.answer(c, item, reply)
    local newest = tonumber(item.newest)
    reply[#reply + 1] = item.newest
    reply[#reply + 1] = digits(#item.hits)
    for j = 1, #item.hits do
      reply[#reply + 1] = total(c.windows[digits(newest - j + 1)])
    end
  end

  function kind.number(c, us) return digits(math.floor(us / 1000 / c.width)) end

  -- What counts of the previous window is rounded up.
  function kind.left(c, room)
    local current = math.floor(nowMs / c.width)
    local left = room.quota - (c.windows[digits(current)] or 0)
    local previous = counting == 2 and c.windows[digits(current - 1)] or 0
    if previous > 0 then
      local width = c.width * 1000
      local weighed, rest = scaled(previous, width - math.fmod(now, width), width)
      left = left - weighed - (rest > 0 and 1 or 0)
    end
    return left
  end

  return kind
end

kinds['1'], kinds['3'] = clock(1), clock(2)

-- One window, c.start, that began with its first hit.
local firstHit = {}
kinds['2'] = firstHit

local function firstHitExpires(c, start) return math.ceil(tonumber(start) / 1000000) + c.width + c.grace end

function firstHit.open(c)
  c.ended = nanos(now - c.width * 1000)
  c.tooFar = nanos(now + math.max(AHEAD, 2 * c.width) * 1000)
end

function firstHit.read(c, field)
  if not isNanos(field) then
    return nil
  end
  if c.start or field <= c.ended or field > c.tooFar then
    return false
  end
  c.start = field
  return true
end

function firstHit.add(c, item)
  local start, hits = item.newest, item.hits[1]
  if hits == 0 then
    return
  end
  local had = c.start
  if start > c.tooFar or start <= c.ended or hits < 0 and (c.windows[had or ''] or 0) == 0 then
    return drop(hits)
  end
  senderExpires = math.max(senderExpires, firstHitExpires(c, start))
  if start > nowNs then
    start = nowNs
  end
  hits = added(had and c.windows[had] or 0, hits)
  if had then
    if had <= start or item.hits[1] < 0 then
      start = had -- what is given back moves no start
    else
      remove(c, had)
    end
  end
  c.start = start
  put(c, start, hits)
  c.expires, c.renewed = firstHitExpires(c, start), c.renewed or start ~= had
end

function firstHit.answer(c, item, reply)
  reply[#reply + 1] = c.start or item.newest
  reply[#reply + 1] = '1'
  reply[#reply + 1] = total(c.windows[c.start or ''])
end

function firstHit.number(_, us) return nanos(us) end

function firstHit.left(c, room) return room.quota - (c.windows[c.start or ''] or 0) end

-- Buckets of a precision. Those without hits are not kept.
local buckets = {aged = true}
kinds['4'] = buckets

-- bucketAt is the number of the bucket at a time in microseconds. Neither of the products exceeds 2^53, as a width has
-- at most 64 buckets.
local function bucketAt(c, us)
  if c.buckets == 0 then
    return nanos(us)
  end
  us = math.max(0, us)
  local width = c.width * 1000
  local rest = math.fmod(us, width)
  return string.format('%020.0f', (us - rest) / width * c.buckets + math.floor(rest * c.buckets / width))
end

-- bucketExpires rounds up to at most a millisecond too late.
local function bucketExpires(c, number)
  local start = tonumber(number)
  if c.buckets == 0 then
    start = start / 1000000
  else
    start = start / c.buckets * c.width
  end
  return math.ceil(start) + 1 + c.width + c.grace
end

function buckets.open(c)
  c.ended = bucketAt(c, now - c.width * 1000)
  c.gone = bucketAt(c, now - (c.grace + c.width) * 1000)
  c.farthest = bucketAt(c, now + c.ahead * c.width * 1000)
  c.current = bucketAt(c, now)
  c.believed = bucketAt(c, now + c.width * 1000)
end

function buckets.read(c, field)
  if not isNanos(field) then
    return nil
  end
  if field <= c.gone or field > c.farthest then
    return false
  end
  c.expires = math.max(c.expires or 0, bucketExpires(c, field))
  return true
end

-- most is how many buckets of a log a limit needs at most: one with more hits than the limit, and some for hits that are
-- negative, as they were given back before they came.
local function most(limit) return math.min(limit + 1 + SPARE_BUCKETS, MAX_BUCKETS) end

-- ordered are the fields of a log's buckets, oldest first.
local function ordered(c)
  if c.unordered then
    table.sort(c.order)
  end
  local fields, n, last = {}, 0, nil
  for _, field in ipairs(c.order) do
    if c.windows[field] and field ~= last then
      n = n + 1
      fields[n], last = field, field
    end
  end
  c.order, c.unordered = fields, false
  return fields
end

-- bound forgets the oldest buckets of a log that its limit doesn't need, of those ahead and of the others, as
-- store.Calendar's keptOfLog.
local function bound(c, limit)
  local fields, hits, longest = ordered(c), 0, most(limit)
  for _, field in ipairs(fields) do
    hits = hits + c.windows[field]
  end
  if hits <= limit and #fields <= longest then
    return
  end
  local kept, ahead = 0, true
  hits = 0
  for i = #fields, 1, -1 do
    local field = fields[i]
    if ahead and field <= c.current then
      kept, hits, ahead = 0, 0, false
    end
    if hits > limit or kept >= longest then
      remove(c, field)
    else
      hits = hits + c.windows[field]
      kept = kept + 1
    end
  end
end

local function addTo(c, field, hits)
  hits = sum(c.windows[field] or 0, hits)
  if hits == 0 then
    remove(c, field)
  else
    put(c, field, hits)
  end
end

-- takeBack takes hits, negative, from a bucket up to what it has, and returns what is left of them.
local function takeBack(c, field, hits)
  local taken = math.min(-hits, c.windows[field] or 0)
  if taken > 0 then
    addTo(c, field, -taken)
  end
  return hits + taken
end

-- windowBefore is the number of the bucket a window before one.
local function windowBefore(c, field)
  if c.buckets == 0 then
    return nanos(tonumber(string.sub(field, 1, 17)) - c.width * 1000, string.sub(field, 18))
  end
  return string.format('%020.0f', math.max(0, tonumber(field) - c.buckets))
end

-- candidates are the fields of the buckets that count, the current one among them, oldest first; at is the first that may have
-- hits, and current the current one's place.
local function candidates(c)
  local list = {at = 1}
  for field in pairs(c.windows) do
    if field > c.ended and field ~= c.current then
      list[#list + 1] = field
    end
  end
  list[#list + 1] = c.current
  table.sort(list)
  for i, field in ipairs(list) do
    if field == c.current then
      list.current = i
    end
  end
  return list
end

-- giveBack takes hits, negative, from a bucket, and then from the oldest that they may be in, as store's subBuckets says. It
-- returns what is left of them. list are the candidates.
local function giveBack(c, field, hits, list)
  hits = takeBack(c, field, hits)
  local last = windowBefore(c, field)
  while hits < 0 and list.at <= #list and list[list.at] < last do
    hits = takeBack(c, list[list.at], hits)
    if hits < 0 then
      list.at = list.at + 1
    end
  end
  return hits
end

function buckets.add(c, item)
  local changed, list = false, nil
  local newest = string.rep('0', 20 - #item.newest) .. item.newest
  for j, hits in ipairs(item.hits) do
    local field = item.fields[j]
    if hits == 0 then
      -- Nothing to add.
    elseif field <= c.ended or field > c.farthest then
      drop(hits)
    elseif hits < 0 then
      senderExpires = math.max(senderExpires, bucketExpires(c, field))
      local left
      if field <= windowBefore(c, newest) then
        left = takeBack(c, field, hits)
      else
        list = list or candidates(c)
        left = giveBack(c, field, hits, list)
      end
      count(hits - left)
      drop(left)
      changed = changed or left ~= hits
    else
      count(hits)
      senderExpires = math.max(senderExpires, bucketExpires(c, field))
      if field > c.believed then
        field = c.current -- a wrong clock's
        if list then
          list.at = math.min(list.at, list.current)
        end
      end
      addTo(c, field, hits)
      live(c, bucketExpires(c, field))
      changed = true
    end
  end
  if changed and c.buckets == 0 then
    bound(c, item.limit)
  end
end

-- The order, the ages, and what of it an answer has room for, are left to the caller.
function buckets.answer(c, item, reply)
  reply[#reply + 1] = item.newest
  reply[#reply + 1] = '0'
  local size, n = #reply, 0
  for field, hits in pairs(c.windows) do
    reply[#reply + 1] = total(hits)
    reply[#reply + 1] = field
    n = n + 1
  end
  reply[size] = digits(n)
end

buckets.number = bucketAt

function buckets.left(c, room)
  local left = room.quota
  for field, hits in pairs(c.windows) do
    if field > c.ended then
      left = left - hits
    end
  end
  return left
end

-- A log is buckets of a nanosecond. It is kept in a string: a record for each bucket, oldest first, with the microseconds and
-- the nanoseconds of its time, and its hits. So a push reads no more of it than its limit needs, whatever is there.
local log = setmetatable({}, {__index = buckets})
local RECORD, TIME, FORM = 16, 9, '>I7I2i7'

local function record(field, hits)
  return struct.pack(FORM, tonumber(string.sub(field, 1, 17)), tonumber(string.sub(field, 18)), hits)
end

local function fieldOf(us, ns) return string.format('%017.0f%03.0f', us, ns) end

-- upTo is how many of the n records are not later than a field. Most often all are.
local function upTo(key, n, field)
  local first, last, probe = 0, n, n - 1
  while first < last do
    local time = redis.call('GETRANGE', key, probe * RECORD, probe * RECORD + TIME - 1)
    if fieldOf(struct.unpack(FORM, time .. '.......')) <= field then
      first = probe + 1
    else
      last = probe
    end
    probe = math.floor((first + last) / 2)
  end
  return first
end

local function records(key, first, last)
  return first < last and redis.call('GETRANGE', key, first * RECORD, last * RECORD - 1) or ''
end

-- load leaves the records as they are: who only asks for them gets them so.
function log.load(c, key)
  local size = redis.pcall('STRLEN', key)
  if foreign(size) then
    c.broken, c.records = true, ''
    return
  elseif failed(size) then
    return size
  end
  local n = math.floor(size / RECORD)
  local today = upTo(key, n, c.current)
  local ahead = today == n and n or upTo(key, n, c.farthest)
  c.broken = size ~= n * RECORD
  c.records = c.broken and '' or
    records(key, math.max(0, today - c.most), today) .. records(key, math.max(today, ahead - c.most), ahead)
end

-- written reports whether this script has written a record. They come in the order of their times.
local function written(us, ns, hits, lastUs, lastNs)
  return ns <= 999 and hits > 0 and hits <= MAX_HITS and (us > lastUs or us == lastUs and ns > lastNs)
end

-- understand makes windows of the records, if this script has written them.
local function understand(c)
  if c.order then
    return
  end
  c.order = {}
  local lastUs, lastNs = -1, 0
  for at = 1, #c.records, RECORD do
    local us, ns, hits = struct.unpack(FORM, c.records, at)
    if not written(us, ns, hits, lastUs, lastNs) then
      c.broken, c.windows, c.order, c.records, c.expires = true, {}, {}, '', nil
      return
    end
    local field = fieldOf(us, ns)
    if buckets.read(c, field) then
      c.windows[field], c.order[#c.order + 1] = hits, field
    end
    lastUs, lastNs = us, ns
  end
end

function log.add(c, item)
  understand(c)
  buckets.add(c, item)
end

-- left makes no windows of the records: most takes of a log that is full only look.
function log.left(c, room)
  local left, lastUs, lastNs = room.quota, -1, 0
  local endedUs, endedNs = tonumber(string.sub(c.ended, 1, 17)), tonumber(string.sub(c.ended, 18))
  for at = 1, c.order and 0 or #c.records, RECORD do
    local us, ns, hits = struct.unpack(FORM, c.records, at)
    if not written(us, ns, hits, lastUs, lastNs) then
      understand(c)
      break
    end
    if us > endedUs or us == endedUs and ns > endedNs then
      left = left - hits
    end
    lastUs, lastNs = us, ns
  end
  return c.order and buckets.left(c, room) or left
end

-- packed are the records of a log as its windows are by now.
local function packed(c)
  if c.dirty then
    local list = {}
    for i, field in ipairs(ordered(c)) do
      list[i] = record(field, c.windows[field])
    end
    c.records, c.dirty = table.concat(list), false
  end
  return c.records
end

function log.write(c, key)
  if packed(c) == '' then
    redis.call('UNLINK', key)
  else
    redis.call('SET', key, c.records, 'PX', digits(c.expires - nowMs))
  end
end

-- Records that do not count are left to the caller, too.
function log.answer(c, item, reply)
  reply[#reply + 1] = item.newest
  reply[#reply + 1] = packed(c)
end

-- A token bucket, c.start, when it was full, to the tokens taken since; as store.Calendar.CountTokens has it.
local tokens = {empties = true}
kinds['5'] = tokens
local LIMIT = 'limit'

local function millis(time) return tonumber(string.sub(time, 1, 14)) end
local function below(time) return tonumber(string.sub(time, 15)) end

-- plus is a time in nanoseconds, later by milliseconds and nanoseconds; or earlier, if these are negative.
local function plus(time, ms, ns)
  ms, ns = millis(time) + ms, below(time) + (ns or 0)
  local over = math.floor(ns / 1000000)
  ms, ns = ms + over, ns - over * 1000000
  if ms < 0 then
    return nanos(0)
  elseif ms >= 1e14 then
    return NEVER
  end
  time = string.format('%014.0f%06.0f', ms, ns)
  return time < NEVER and time or NEVER
end

-- since is the time from an earlier one on, in milliseconds and nanoseconds.
local function since(time, earlier)
  local ms, ns = millis(time) - millis(earlier), below(time) - below(earlier)
  if ns < 0 then
    ms, ns = ms - 1, ns + 1000000
  end
  return ms, ns
end

-- back is how many tokens come back in milliseconds and nanoseconds, rounded down, and whether there is a rest.
local function back(c, limit, ms, ns)
  local tokens, rest = scaled(limit, ms, c.width)
  local more, bit = scaled(limit, ns, 1000000)
  local part = math.fmod(more, c.width)
  local over = quotient(part + rest, c.width)
  return tokens + (more - part) / c.width + over, bit > 0 or part + rest > over * c.width
end

-- duration is how long so many tokens take to come back, taken * width / limit, in milliseconds and nanoseconds, rounded up.
-- It is exact, but for a limit above 2^51, which nobody can configure.
local function duration(c, taken, limit)
  local part = math.fmod(taken, limit)
  local product, windows = part * c.width, (taken - part) / limit
  if product <= MAX_HITS and limit * 1000000 <= MAX_HITS then
    local rest = math.fmod(product, limit)
    return windows * c.width + math.floor((product - rest) / limit + 0.5), math.ceil(rest * 1000000 / limit)
  end
  local ms, rest = scaled(part, c.width, limit)
  local ns, bit = scaled(1000000, rest, limit)
  return windows * c.width + ms, ns + (bit > 0 and 1 or 0)
end

-- fullAt is the time from which on all tokens are back.
local function fullAt(c, start, taken, limit)
  if taken <= 0 or limit == 0 then
    return plus(start, c.width)
  end
  return plus(start, duration(c, taken, limit))
end

-- converted is the bucket as one of a limit that is full at the same time, as store.Calendar has it. If it is to be written,
-- early is 1.
local function converted(c, limit, early)
  local start, taken, from = c.start, c.windows[c.start or ''] or 0, c.windows[LIMIT] or limit
  if taken <= 0 or limit == from then
    return start, taken
  end
  local latest = start > nowNs and start or nowNs
  if from == 0 then
    if fullAt(c, start, taken, 0) <= nowNs then
      return start, 0
    end
    return latest, taken
  end
  if limit == 0 then
    local returned = start < nowNs and back(c, from, since(nowNs, start)) or 0
    if returned >= taken then
      return start, 0
    end
    return latest, taken - returned
  end
  local full = fullAt(c, start, taken, from)
  local rest
  taken, rest = back(c, limit, since(full, start))
  taken = math.min(taken + (rest and 1 or 0) + early, MAX_HITS)
  local ms, ns = duration(c, taken, limit)
  start = plus(full, -ms, -ns)
  -- A bucket that would lack more than can be counted is full sooner.
  return start < latest and start or latest, taken
end

-- backSince is how many of the tokens that are given back at a time have come back since, as store.Calendar's backSince.
local function backSince(c, limit, had, hadTaken, at)
  if had > at then
    return (back(c, limit, since(nowNs, at)))
  end
  return back(c, limit, since(nowNs, had)) - back(c, limit, since(at, had))
end

-- later is the start and what was taken since, written as if it had been later by whole windows.
local function later(c, start, taken, limit, ms)
  if taken <= 0 or limit == 0 then
    return start, taken
  end
  local windows = math.max(0, math.min(math.floor((ms - millis(start)) / c.width), math.floor(taken / limit)))
  return plus(start, windows * c.width), taken - windows * limit
end

function tokens.open(c)
  firstHit.open(c)
  c.copied = nanos(now - (c.width + AHEAD) * 1000)
  c.gone = nanos(now - c.grace * 1000)
  c.rewritten = math.max(0, nowMs - 2 * c.width - AHEAD)
end

function tokens.read(c, field, hits)
  if field == LIMIT then
    return true
  end
  if not isNanos(field) then
    return nil
  end
  if c.start or field > c.tooFar then
    return false
  end
  c.start = field
  return true
end

function tokens.add(c, item)
  local start, hits, limit = item.newest, item.hits[1], item.limit
  if hits == 0 then
    return
  end
  if start > c.tooFar then
    return drop(hits)
  end
  local full = fullAt(c, start, hits, limit)
  if full <= c.copied then
    return drop(hits)
  end
  senderExpires = math.max(senderExpires, millis(full) + 1 + c.width + AHEAD)
  if start > nowNs then
    start = nowNs
    full = fullAt(c, start, hits, limit)
  end
  local field = c.start
  local had, hadTaken = converted(c, limit, 1)
  if not field or fullAt(c, had, hadTaken, limit) <= c.gone then
    had, hadTaken = nowNs, 0
  end
  -- Since a clock was set back, the start may seem to lie after now.
  had = had > nowNs and nowNs or had
  local asked, taken = hits, hits
  if hits < 0 then
    hits = math.max(-hadTaken, hits + math.min(-hits, backSince(c, limit, had, hadTaken, start)))
    if hits == 0 then
      return drop(asked)
    end
    start, taken = had, sum(hadTaken, hits)
  elseif hadTaken == 0 then
    if full <= c.gone then
      return drop(asked)
    end
  elseif start < had then
    if full <= had then
      return drop(asked)
    end
    taken = sum(hadTaken, hits)
    if millis(had) <= c.rewritten then
      start = had
    end
  elseif fullAt(c, had, hadTaken, limit) > start then
    start, taken = had, sum(hadTaken, hits)
  end
  count(hits)
  drop(asked - hits)
  full = fullAt(c, start, taken, limit)
  if taken == 0 or full <= c.gone then
    start = nil
  else
    start, taken = later(c, start, taken, limit, c.rewritten)
  end
  if field and field ~= start then
    remove(c, field)
  end
  c.start = start
  if not start then
    return remove(c, LIMIT)
  end
  put(c, start, taken)
  put(c, LIMIT, limit)
  c.expires, c.renewed = millis(full) + 1 + c.grace, true
end

function tokens.answer(c, item, reply)
  local start, taken = converted(c, item.limit, 0)
  if taken > 0 and fullAt(c, start, taken, item.limit) > nowNs then
    start, taken = later(c, start > nowNs and nowNs or start, taken, item.limit, nowMs)
  else
    start, taken = item.newest, 0
  end
  reply[#reply + 1] = start
  reply[#reply + 1] = '1'
  reply[#reply + 1] = total(taken)
end

tokens.number = firstHit.number

function tokens.left(c, room)
  local start, taken = converted(c, room.limit, 0)
  if taken <= 0 or start >= nowNs then
    return room.quota - taken
  end
  local returned = back(c, room.limit, since(nowNs, start))
  return room.quota - math.max(0, taken - returned)
end

-- Reading. A counter that is named twice is loaded once.
local counters = {}

local function kindOf(item) return item.kind == '4' and item.buckets == 0 and log or kinds[item.kind] end

local function counter(item)
  return {kind = kindOf(item), width = item.width, buckets = item.buckets, grace = math.min(item.width, GRACE), most = 0,
    ahead = math.max(2, math.min(WINDOWS_AHEAD, math.floor(AHEAD / item.width))), windows = {}, stale = {}, changed = {}}
end

-- Hashes, of which all is read, and what has changed is written.
local function loadHash(c, key)
  local reply = redis.pcall('HGETALL', key)
  if foreign(reply) then
    c.broken, reply = true, {}
  elseif failed(reply) then
    return reply
  end
  for i = 1, #reply, 2 do
    local field, hits = reply[i], integer(reply[i + 1])
    local lives = hits and c.kind.read(c, field, hits)
    if lives then
      c.windows[field] = hits
    else
      c.stale[#c.stale + 1] = field
      c.broken = c.broken or lives == nil
    end
  end
end

-- write calls a command with arguments, so many at a time as Lua's stack has room for.
local function write(command, key, arguments)
  for first = 1, #arguments, 1000 do
    redis.call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

local function writeHash(c, key)
  if c.broken or #c.stale > 128 then
    redis.call('UNLINK', key)
    c.changed, c.renewed = c.windows, true
  elseif #c.stale > 0 then
    write('HDEL', key, c.stale)
    c.renewed = true
  end
  local fields = {}
  for field in pairs(c.changed) do
    fields[#fields + 1] = field
    fields[#fields + 1] = digits(c.windows[field])
  end
  write('HSET', key, fields)
  if c.renewed and next(c.windows) then
    redis.call('PEXPIRE', key, digits(c.expires - nowMs))
  end
end

local key, at = 1, 12

-- counted reads what items and rooms have in common.
local function counted()
  key = key + 1
  local name = KEYS[key]
  local item = {kind = ARGV[at], width = tonumber(ARGV[at + 1]), buckets = tonumber(ARGV[at + 2]), limit = tonumber(ARGV[at + 3]),
    hits = {}, fields = {}}
  at = at + 4
  local c = counters[name] or counter(item)
  c.most = math.max(c.most, most(item.limit))
  counters[name], item.counter = c, c
  return item
end

local items = {}
for i = 1, tonumber(ARGV[10]) do
  local item = counted()
  item.newest = ARGV[at]
  local n = tonumber(ARGV[at + 1])
  at = at + 2
  for j = 1, n do
    item.hits[j] = tonumber(ARGV[at])
    at = at + 1
    if kinds[item.kind].aged then
      item.fields[j] = ARGV[at]
      at = at + 1
    end
  end
  items[i] = item
end

local takes = {}
for i = 1, tonumber(ARGV[11]) do
  local take = {least = tonumber(ARGV[at]), most = tonumber(ARGV[at + 1]), mode = ARGV[at + 2], rooms = {}}
  local n = tonumber(ARGV[at + 3])
  at = at + 4
  for j = 1, n do
    local room = counted()
    room.quota, room.cost, room.countRejected = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2] == '1'
    at = at + 3
    if take.mode == LEASE then
      room.parts = tonumber(ARGV[at])
      at = at + 1
    end
    for w = 1, kinds[room.kind].windows or 1 do
      room.hits[w] = 0
    end
    take.rooms[j] = room
  end
  takes[i] = take
end

for name, c in pairs(counters) do
  c.kind.open(c)
  local failure = (c.kind.load or loadHash)(c, name)
  if failure then
    return failure
  end
end

-- Adding, in memory.
if apply then
  for _, item in ipairs(items) do
    item.counter.kind.add(item.counter, item)
  end
end

-- Takes, as store.Calendar.Decide.

local function unitsOf(take, room)
  local least, left = take.least * room.cost, room.left
  if room.limit == 0 or least > MAX_HITS or left < least then
    return 0
  end
  if room.cost == 0 then
    return take.most
  end
  if take.mode == LEASE then
    left = room.parts > 0 and quotient(left, room.parts) or 0
  end
  return math.min(take.most, quotient(left, room.cost))
end

local function rejected(take, room)
  local hits = take.least * room.cost
  if not room.countRejected or hits > room.quota or room.left >= hits then
    return 0
  end
  return kinds[room.kind].empties and math.min(hits, math.max(0, room.left)) or hits
end

local function decide(take)
  local units = take.mode == REFUSED and 0 or take.most
  for _, room in ipairs(take.rooms) do
    local c = room.counter
    room.left, room.newest = c.kind.left(c, room), c.kind.number(c, now)
    room.fields[1] = room.newest
    units = math.min(units, unitsOf(take, room))
  end
  if units < take.least then
    units = 0
  end
  for _, room in ipairs(take.rooms) do
    room.hits[1] = units > 0 and units * room.cost or rejected(take, room)
    if room.hits[1] > 0 then
      room.counter.kind.add(room.counter, room)
    end
  end
  return units
end

-- remembered is the time when a push's takes were decided, and the units that they got.
local function remembered()
  local score, units = digits(sequence), {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], score, score)) do
    local name, time, list = string.match(member, '^([%d+]+):(%d+):([%d,]+)$')
    if name == part and isNanos(time) then
      for n in string.gmatch(list, '%d+') do
        units[#units + 1] = integer(n) or 0
      end
      return time, units
    end
  end
  return nowNs, units
end

local granted, grants = {}, {}
if #takes > 0 then
  local time, units, expires = nowNs, {}, senderExpires
  if state == '1' then
    time, units = remembered()
  end
  local us = tonumber(string.sub(time, 1, 17))
  for i, take in ipairs(takes) do
    granted[i] = digits(apply and decide(take) or units[i] or 0)
    grants[#grants + 1] = granted[i]
    grants[#grants + 1] = time
    for _, room in ipairs(take.rooms) do
      local c = room.counter
      room.newest = c.kind.number(c, us)
      c.kind.answer(c, room, grants)
    end
  end
  -- What is granted need not be remembered as long as hits are: until nobody sends it again.
  senderExpires = expires
end

-- Writing. From here on nothing can fail, save that Redis refuses the first write.

if apply then
  for key, c in pairs(counters) do
    if c.touched then
      if c.broken then
        repaired = repaired + 1
      end
      (c.kind.write or writeHash)(c, key)
    end
  end
  if senderBroken then
    repaired = repaired + 1
    redis.call('UNLINK', KEYS[1])
  end
  redis.call('ZADD', KEYS[1], digits(floor), 'floor', digits(sequence), part)
  if #takes > 0 then
    redis.call('ZADD', KEYS[1], digits(sequence), part .. ':' .. nowNs .. ':' .. table.concat(granted, ','))
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. digits(floor))
  if redis.call('PTTL', KEYS[1]) < senderExpires - nowMs then
    redis.call('PEXPIRE', KEYS[1], digits(senderExpires - nowMs))
  end
elseif state ~= '0' then
  -- WAIT waits for the last write of its connection, and what was applied before may have been another's.
  redis.call('PEXPIRE', KEYS[1], digits(math.max(redis.call('PTTL', KEYS[1]), SENDER_LIFE)))
end

-- Answering.
local reply = {nowNs, state, digits(applied), digits(returned), digits(dropped), digits(repaired)}
for _, item in ipairs(items) do
  item.counter.kind.answer(item.counter, item, reply)
end
for _, value in ipairs(grants) do
  reply[#reply + 1] = value
end
return reply
