-- Writes what a backend has decided, if it still holds by what is there. All of it is written, or nothing.
--
-- KEYS  the sender's record of each push, a sorted set: the parts of pushes that were applied, each with its sequence as score
--       and, if it had takes, once more as part:time in nanoseconds:units,units… of the takes; and "floor" with the floor;
--       then the counters; then the keys of the namespace's fleet, as keys.fleet orders them; then, if any counter is to be as
--       expected, the lock; and one key at least, to tell where this runs
-- ARGV  the messages of message.go, by whose names their fields are read here
-- Returns seconds and microseconds of the server's clock, then
--         OTHER, for each push whether it is NEW, APPLIED before or BELOW the floor, and what it was granted; for each counter
--         nothing if it is as expected, 0 if it is of another type, or what it has; if there are keys of a fleet, nothing, or
--         'changed', or 'broken' if a key was lost or somebody else has written it, revision, version and contents, or 'full' and a key for which the list has no room, or 'keep' and for each
--         key of which hits are left, what live senders may have advanced and what silent ones; nothing was written; or
--         WRITTEN, the number of records of senders and of fleets begun anew, and for each counter of windows what it has, or 0 if it was new
--         and has nothing else; if all keys of a fleet are there, 0 if all words hold as they are, or '1' if the list is to be
--         reviewed and for each word the version, the divisor, '1' if the whole list follows, and near keys; or
--         LOCKED, and nothing was looked at: somebody else has the lock
local OTHER, WRITTEN, LOCKED = 0, 1, 2
local NEW, APPLIED, BELOW = '0', '1', '2'
local time = redis.call('TIME')
local pushes, counters, locks = tonumber(ARGV[1 + plan.pushes]), tonumber(ARGV[1 + plan.counters]), ARGV[1 + plan.lock] ~= ''
local LOCK = 50 -- ms
local holder = locks and redis.pcall('GET', KEYS[#KEYS])
if type(holder) == 'string' and holder ~= ARGV[1 + plan.lock] then
  -- No backend sets a longer life, but the clock may have been set back.
  local left = redis.call('PTTL', KEYS[#KEYS])
  if left >= 0 and left <= LOCK then
    return {time[1], time[2], LOCKED}
  end
end
local decided = ARGV[1 + plan.decided]
local holds = decided == '' or math.abs(time[1] * 1000000 + time[2] - decided) < 2000000

local function foreign(reply) return string.find(reply.err, 'WRONGTYPE') end

local new = tonumber(ARGV[1 + plan.new])
for i = pushes + 1, pushes + new, 1000 do
  if new > 0 and redis.call('EXISTS', unpack(KEYS, i, math.min(i + 999, pushes + new))) > 0 then
    new = 0
  end
end

local at, floors, known = 1 + plan.size, {}, nil
for i = 1, pushes do
  local key, sequence, part = KEYS[i], ARGV[at + push.sequence], ARGV[at + push.part]
  local floor = sequence ~= '' and redis.pcall('ZSCORE', key, 'floor')
  if type(floor) == 'table' then
    if not foreign(floor) then
      return floor
    end
    floors[i] = -1
  elseif floor then
    floor = tonumber(floor)
    if not floor or floor < 0 or floor > 9007199254740991 or floor ~= math.floor(floor) then
      floor = -1
    elseif tonumber(sequence) < floor then
      known = known or {}
      known[i] = {BELOW, ''}
    elseif redis.call('ZSCORE', key, part) then
      local granted = ''
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, sequence, sequence)) do
        if string.sub(member, 1, #part + 1) == part .. ':' then
          granted = member
        end
      end
      known = known or {}
      known[i] = {APPLIED, granted}
    end
    floors[i] = floor
  end
  at = at + push.size
end

local first, had, others = at, {}, nil
for i = pushes + 1, pushes + counters do
  local key, form = KEYS[i], ARGV[at]
  local got, same
  if form == 'windows' then
    got = i <= pushes + new and {} or redis.pcall('HGETALL', key)
    local n, kept, rest = tonumber(ARGV[at + windows.count]), ARGV[at + windows.kept], #got
    local numbers = at + windows.size
    same = not got.err
    for j = numbers, numbers + n - 1 do
      local hits = '0'
      for k = 1, #got, 2 do
        if got[k] == ARGV[j] then
          hits, rest = got[k + 1], rest - 2
          break
        end
      end
      local ours = #hits <= 16 and (hits == '0' or string.find(hits, '^[1-9]%d*$')) -- HINCRBY accepts no other number
      same = same and ours and tonumber(hits) <= tonumber(ARGV[j + n]) and hits + ARGV[j + 2 * n] >= 0
    end
    local gone
    if same and rest > 0 then
      gone, kept = {}, tonumber(kept)
      for k = 1, #got, 2 do
        if string.find(got[k], '^%d+$') and tonumber(got[k]) < kept then
          gone[#gone + 1] = got[k]
        end
      end
      for j = numbers, numbers + n - 1 do
        if tonumber(ARGV[j]) < kept then
          same = false
        end
      end
      same = same and 2 * #gone == rest
    end
    had[i] = {got, gone}
    at = numbers + 3 * n
  elseif form == 'log' then
    got = redis.pcall('GETRANGE', key, '-' .. ARGV[at + log.bytes], -1)
    same = (type(got) == 'table' and '?' or got) == ARGV[at + log.expected]
    at = at + log.size
  else
    got = redis.pcall('HGETALL', key)
    same = (got.err and '?' or table.concat(got, ' ')) == ARGV[at + hash.expected]
    at = at + hash.size + ARGV[at + hash.set] + ARGV[at + hash.removed]
  end
  local err = type(got) == 'table' and got.err
  if err and not foreign(got) then
    return got
  end
  if not same then
    others = others or {}
    others[i] = err and 0 or got
  end
end

local function digits(n) return string.format('%.0f', n) end

-- whole reads a number of a fleet; it is 0 if somebody else has written it.
local function whole(text)
  local n = tonumber(text)
  return n and n >= 0 and n <= 9007199254740991 and n == math.floor(n) and n or 0
end

-- The fleet. A word holds as it is if it says what is noted, the list has nothing new, and the sender's answer was noted lately.
-- Most do: then nothing below is written, nor made ready for that. A push that only reads writes nothing, so a full Redis answers.
local fleets, FLEET = tonumber(ARGV[1 + plan.fleet]), pushes + counters + 1
local revision, head, now = '', nil, nil
local words, marks, takes, sweeps, stale, holding = 0, 0, 0, false, false, true
local wordsAt = at + list.size
if fleets == 1 then
  stale = redis.call('EXISTS', KEYS[FLEET]) > 0
elseif fleets > 1 then
  revision, now = ARGV[at + list.revision], tonumber(ARGV[at + list.now]) or time[1] * 1000000 + time[2]
  words, marks = tonumber(ARGV[at + list.words]), tonumber(ARGV[at + list.marks])
  takes = tonumber(ARGV[at + list.leaves])
  head = redis.pcall('HMGET', KEYS[FLEET], 'revision', 'version', 'swept', words > 0 and ARGV[wordsAt + word.sender] or 'units')
  local swept = whole(head[3])
  stale, sweeps = head[1] ~= revision, pushes + words > 0 and ARGV[at + list.later] == '' and (now < swept or now - swept >= far.sweep)
  holding = not (stale or sweeps)
  for i = wordsAt, wordsAt + (words - 1) * word.size, word.size do
    if not holding or ARGV[i + word.same] == '' then
      holding = false
      break
    end
    local own = i == wordsAt and head[4] or redis.call('HGET', KEYS[FLEET], ARGV[i + word.sender]) or ''
    local divisor, heard, answered = string.match(own, '^(%d+) (%d+) (%d+) %d+$')
    holding = divisor == ARGV[i + word.divisor] and divisor ~= '0' and heard == ARGV[i + word.version] and heard == head[2]
      and now >= tonumber(answered) and now - tonumber(answered) <= far.late
  end
end

-- If somebody else has written one of its keys, all are forgotten: then no sender has a part.
local NEAR, HEARD, DIVISORS, ANSWERED, SILENT = FLEET + 1, FLEET + 2, FLEET + 3, FLEET + 4, FLEET + 5
local broken, fleet, forget = false, nil, nil
if stale or marks + takes > 0 or not holding then
  fleet = function(command, key, ...)
    local r = redis.pcall(command, KEYS[key], ...)
    if type(r) == 'table' and r.err then
      if not foreign(r) then
        return redis.call(command, KEYS[key], ...)
      end
      broken = true
      return nil
    end
    return r
  end
  forget = function()
    for i = FLEET, FLEET + fleets - 1 do
      redis.call('UNLINK', KEYS[i])
    end
  end
end

local lacks, version, span = nil, 0, 0
local adds, removes = nil, nil
if fleet then
  head = fleet('HMGET', FLEET, 'revision', 'version', 'units', 'senders', 'lost') or {}
  version = whole(head[2])
  if version > 4503599627370496 then -- no clock has told it
    version = 0
  end
  if (head[1] or '') ~= revision then
    lacks = {'changed', head[1] or '', digits(version), not broken and fleet('HGET', FLEET, 'contents') or ''}
  end
end
if fleet and fleets > 1 and not lacks then
  span = tonumber(ARGV[at + list.lasts])
  at = wordsAt + words * word.size
  adds, removes = {}, {}
  local spares = {}
  for _ = 1, marks do
    local key, to = ARGV[at + mark.key], ARGV[at + mark.to]
    if to == '-' then
      removes[#removes + 1] = key
    elseif not fleet('ZSCORE', NEAR, key) then
      local new = to == '+' and adds or spares
      new[#new + 1] = key
    end
    at = at + mark.size
  end
  local listed = #adds + #spares > 0 and fleet('ZCARD', NEAR) or 0
  if #adds > 0 and #adds + listed > far.near then
    lacks = {'full', adds[1]}
  end
  for i = 1, math.min(#spares, far.full - listed - #adds) do
    adds[#adds + 1] = spares[i]
  end
  holding = holding and #adds + #removes == 0

  if takes > 0 or sweeps then
    -- A key that is lost, with what others go by, is noticed by what the others have; one of another type by any command.
    fleet('ZCARD', NEAR)
    local given, silent = fleet('ZCARD', DIVISORS) or 0, fleet('ZCARD', SILENT) or 0
    if given ~= (fleet('ZCARD', HEARD) or 0) + silent or whole(head[4]) ~= (fleet('ZCARD', ANSWERED) or 0) + silent
      or (given > 0) ~= (whole(head[3]) > 0) then
      broken = true
    end
  end
  if takes > 0 then
    local least
    -- mostAdvanced is the most hits that so many senders may have advanced of a key.
    local function mostAdvanced(senders, limit)
      if senders == 0 then
        return 0
      end
      least = least or tonumber((fleet('ZRANGE', DIVISORS, 0, 0, 'WITHSCORES') or {})[2]) or 1
      local whole = math.floor(limit / 2) - 1
      return math.min(whole, senders * math.min(far.advance, math.floor(whole / least)))
    end
    local keep, enough = {'keep'}, true
    for _ = 1, takes do
      local since, limit, owing = ARGV[at + leaves.since], tonumber(ARGV[at + leaves.limit]), ARGV[at + leaves.owing]
      local left, exact = tonumber(ARGV[at + leaves.hits]), ARGV[at + leaves.exact] ~= ''
      local below = '(' .. ARGV[at + leaves.unlisted]
      if since ~= '' then
        local near = fleet('ZSCORE', NEAR, ARGV[at + leaves.key])
        if not near then
          below = '+inf' -- nobody has heard of it yet
        elseif tonumber(near) >= tonumber(since) then
          below = '(' .. near
        end
      end
      local live, silent = fleet('ZCOUNT', HEARD, '-inf', below) or 0, 0
      if (fleet('ZCOUNT', SILENT, owing, '+inf') or 0) > 0 then
        local some = fleet('ZRANGEBYSCORE', SILENT, owing, '+inf', 'LIMIT', 0, 64) or {}
        for _, sender in ipairs(some) do
          local heard = string.match(fleet('HGET', FLEET, sender) or '', '^%d+ (%d+)')
          if not heard or below == '+inf' or tonumber(heard) < tonumber(string.sub(below, 2)) then
            silent = silent + 1
          end
        end
        if #some == 64 then
          silent = silent + fleet('ZCOUNT', SILENT, owing, '+inf') - 64
        end
      end
      silent = mostAdvanced(silent, limit)
      live = math.min(mostAdvanced(live, limit), math.max(0, math.floor(limit / 2) - 1 - silent))
      enough = enough and (live + silent == left or live + silent < left and not exact)
      keep[#keep + 1], keep[#keep + 2] = live, silent
      at = at + leaves.size
    end
    if not enough then
      lacks = lacks or keep
    end
  end
end
if broken then
  forget()
  lacks = {'broken', '', '0', ''}
end

if known or others or lacks or not holds then
  if ARGV[1 + plan.locks] ~= '' then
    redis.pcall('SET', KEYS[#KEYS], ARGV[1 + plan.lock], 'PX', LOCK)
  end
  local reply = {time[1], time[2], OTHER}
  for i = 1, pushes do
    local state = known and known[i] or {NEW, ''}
    reply[#reply + 1] = state[1]
    reply[#reply + 1] = state[2]
  end
  for i = pushes + 1, pushes + counters do
    reply[#reply + 1] = others and others[i] or false
  end
  if fleets > 0 then
    reply[#reply + 1] = lacks or false
  end
  return reply
end

-- From here on only the first write can fail: Redis may refuse it.

-- write calls a command with count arguments from ARGV[from] on, at most 1000 at a time, because
-- Lua's stack has no room for more.
local function write(command, key, from, count)
  for j = from, from + count - 1, 1000 do
    redis.call(command, key, unpack(ARGV, j, math.min(j + 1000, from + count) - 1))
  end
end

local reply = {time[1], time[2], WRITTEN, 0}
at = first
for i = pushes + 1, pushes + counters do
  local key, form = KEYS[i], ARGV[at]
  if form == 'windows' then
    local n, life = tonumber(ARGV[at + windows.count]), ARGV[at + windows.life]
    local got, gone, born = had[i][1], had[i][2], false
    local absent = #got == 0 -- then it has no life to compare
    at = at + windows.size
    for j = at, at + n - 1 do
      local hits = ARGV[j + 2 * n]
      if hits ~= '0' then
        local k = 1
        while got[k] and got[k] ~= ARGV[j] do
          k = k + 2
        end
        born = born or not got[k]
        got[k], got[k + 1] = ARGV[j], redis.call('HINCRBY', key, ARGV[j], hits)
      end
    end
    at = at + 3 * n
    if life ~= '=' then
      if gone then
        for j = 1, #gone, 1000 do
          redis.call('HDEL', key, unpack(gone, j, math.min(j + 999, #gone)))
        end
      end
      if absent and born or (born or gone) and redis.call('PTTL', key) < tonumber(life) then
        redis.call('PEXPIRE', key, life)
      end
    end
    reply[#reply + 1] = i <= pushes + new and 0 or got
  elseif form == 'log' then
    local life, records = ARGV[at + log.life], ARGV[at + log.records]
    if life == '=' then
    elseif records == '' then
      redis.call('UNLINK', key)
    else
      redis.call('SET', key, records, 'PX', life)
    end
    at = at + log.size
  else
    local life, anew = ARGV[at + hash.life], ARGV[at + hash.anew]
    local set, removed = tonumber(ARGV[at + hash.set]), tonumber(ARGV[at + hash.removed])
    at = at + hash.size
    if anew ~= '' then
      redis.call('UNLINK', key)
    end
    write('HSET', key, at, set)
    write('HDEL', key, at + set, removed)
    at = at + set + removed
    if life ~= '' and life ~= '=' then
      redis.call('PEXPIRE', key, life)
    end
  end
end

-- shed removes a sender's oldest grants beyond the most that there may be, but for those of the push at the floor, which has no
-- answer, and of this push.
local function shed(key, sequence, floor)
  local parts, left = {}, grants.most
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    local of = string.match(member, '^(%d+)%+?%d*:')
    local _, commas = string.gsub(of and member or '', ',', '')
    if of == sequence or of == floor then
      left = left - commas - 1
    elseif of then
      parts[#parts + 1] = {member, commas + 1}
    end
  end
  for i = #parts, 1, -1 do
    left = left - parts[i][2]
    if left < 0 then
      redis.call('ZREM', key, parts[i][1])
    end
  end
end

at = 1 + plan.size
for i = 1, pushes do
  local key, sequence, floor, life = KEYS[i], ARGV[at + push.sequence], ARGV[at + push.floor], tonumber(ARGV[at + push.life])
  local part, granted = ARGV[at + push.part], ARGV[at + push.granted]
  if sequence == '' then
    -- WAIT waits for the last write of its own connection, and another connection may have applied
    -- this push.
    redis.call('PEXPIRE', key, digits(math.max(redis.call('PTTL', key), math.abs(life))))
  else
    local known = floors[i]
    if known and known < 0 then
      reply[4], known = reply[4] + 1, nil
      redis.call('UNLINK', key)
    end
    if known and known > tonumber(floor) then
      floor = digits(known)
    end
    if granted == '' then
      redis.call('ZADD', key, floor, 'floor', sequence, part)
    else
      redis.call('ZADD', key, floor, 'floor', sequence, part, sequence, granted)
    end
    if known and known ~= tonumber(floor) then
      redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. floor)
    end
    if granted ~= '' and math.abs(sequence - (redis.call('ZSCORE', key, 'shed') or floor)) >= grants.pushes then
      redis.call('ZADD', key, sequence, 'shed') -- all of the record is read, so not each time
      shed(key, sequence, floor)
    end
    if not known then
      redis.call('PEXPIRE', key, digits(math.abs(life)))
    elseif life > 0 and redis.call('PTTL', key) < life then
      redis.call('PEXPIRE', key, digits(life))
    end
  end
  at = at + push.size
end
if holder then
  redis.call('UNLINK', KEYS[#KEYS])
end
if fleets < 2 then
  return reply
elseif holding then
  if words > 0 and pushes == 0 then
    -- WAIT waits for writes of its connection, and a replica must not answer. A full Redis does not refuse this.
    redis.call('PEXPIRE', KEYS[FLEET], digits(ARGV[wordsAt - list.size + list.lasts] / 1000 + 3600000))
  end
  reply[#reply + 1] = 0
  return reply
end

-- What senders may have advanced. The pushes' items are counted.
local units, senders, lost = whole(head[3]), whole(head[4]), whole(head[5])
local touched, made = false, false
-- touch comes before a write, and before sums are used. Redis may refuse a first write: then nothing is written.
local function touch()
  if not touched then
    touched = true
    redis.call('HSET', KEYS[FLEET], 'version', digits(version))
  end
end
-- put writes, and returns how much is there that was not.
local function put(command, ...)
  touch()
  local n = fleet(command, ...) or 0
  made = made or n > 0 and (command == 'ZADD' or command == 'HSET')
  return n
end
if #adds > 0 then
  version = math.max(version + 1, now)
  for _, key in ipairs(adds) do
    put('ZADD', NEAR, digits(version), key)
  end
end
local gone = 0
for _, key in ipairs(removes) do
  gone = gone + put('ZREM', NEAR, key)
end
if gone > 0 then
  put('HSET', FLEET, 'gone', digits(whole(fleet('HGET', FLEET, 'gone')) + gone))
end

local function unitsOf(divisor) return divisor == 0 and 0 or math.floor((far.whole + divisor - 1) / divisor) end

-- part is that of a sender: its divisor, the version heard, when it had an answer, 0 if the sender is silent, and the last
-- sequence that has changed it.
local function part(sender)
  local divisor, heard, answered, sequence = string.match(fleet('HGET', FLEET, sender) or '', '^(%d+) (%d+) (%d+) (%d+)$')
  return divisor and {divisor = whole(divisor), heard = whole(heard), answered = whole(answered), sequence = whole(sequence)}
end

local function keepPart(sender, own)
  senders = senders + put('HSET', FLEET, sender, string.format('%.0f %.0f %.0f %.0f', own.divisor, own.heard, own.answered, own.sequence))
end

-- fair is the divisor by which there is a part for each sender; 0 if there is none. The sums were touched.
local function fair()
  if lost >= far.whole then
    return 0
  end
  local live, free = fleet('ZCARD', ANSWERED) or 0, far.whole - lost
  local divisor = math.max(far.least, math.floor((live * far.whole + free - 1) / free))
  local step = 1
  while step * 16 <= divisor do
    step = step * 2
  end
  divisor = math.ceil(divisor / step) * step
  if live * unitsOf(divisor) > free then
    divisor = divisor + step -- as units are rounded up, the last sender would have none
  end
  return divisor <= far.most and divisor or 0
end

-- hear takes in a word, and returns the divisor that the sender gets.
local function hear(sender, sequence, settled, divisor, heard, wants)
  local own, changed = part(sender), false
  if own and own.answered == 0 then
    put('ZREM', SILENT, sender)
    lost, changed = lost - unitsOf(own.divisor), true
  end
  if own and sequence > own.sequence and settled then
    if divisor ~= own.divisor and (divisor == 0 or divisor > own.divisor and own.divisor > 0) then
      touch()
      units = units + unitsOf(divisor) - unitsOf(own.divisor)
      own.divisor, own.sequence, changed = divisor, sequence, true
    end
    if math.min(heard, version) > own.heard then
      own.heard, own.sequence, changed = math.min(heard, version), sequence, true
    end
  end
  if not own then
    if not wants or senders >= far.most then
      return 0
    end
    own = {sequence = sequence, divisor = 0, heard = 0, answered = 0}
  end
  -- So few answers are noted that silent senders are known three seconds late.
  if now < own.answered or now - own.answered > far.late then
    put('ZADD', ANSWERED, digits(now), sender)
    own.answered, changed = now, true
  end
  local gets = own.divisor
  if changed or own.divisor == 0 then
    touch()
    local want = fair()
    if want == 0 or own.divisor > 4 * want then -- it comes back for a larger part
      gets = 0
    elseif own.divisor > 0 then
      gets = math.max(own.divisor, want)
    elseif wants and divisor == 0 and settled and units + unitsOf(want) <= far.whole and sequence >= own.sequence then
      units = units + unitsOf(want)
      own.divisor, own.heard, own.sequence, changed, gets = want, version, sequence, true, want
    end
  end
  if gets > 0 and divisor == 0 and sequence >= own.sequence then
    -- It has a part again: an earlier word that it has none is late. And WAIT waits for writes of its connection.
    own.sequence, changed = sequence, true
  end
  if changed then
    keepPart(sender, own)
    if own.divisor > 0 then
      put('ZADD', HEARD, digits(own.heard), sender)
      put('ZADD', DIVISORS, digits(own.divisor), sender)
    else
      put('ZREM', HEARD, sender)
      put('ZREM', DIVISORS, sender)
    end
  end
  return gets
end

at = wordsAt
local told = {}
for i = 1, words do
  local heard, same = tonumber(ARGV[at + word.version]), ARGV[at + word.same] ~= ''
  local gets = hear(ARGV[at + word.sender], tonumber(ARGV[at + word.sequence]), ARGV[at + word.settled] ~= '',
    tonumber(ARGV[at + word.divisor]), heard, ARGV[at + word.wants] ~= '')
  if heard > version then
    gets = 0 -- this server has lost what told the sender, who gets a part of it by the next list
  end
  told[i] = {gets, same and heard <= version, heard}
  if not told[i][2] or heard < version or pushes == 0 then
    touch() -- so that WAIT waits for what is told, too, which others may have written, and no replica answers
  end
  at = at + word.size
end

local due = '0'
if sweeps then
  put('HSET', FLEET, 'swept', digits(now))
  for _, sender in ipairs(fleet('ZRANGEBYSCORE', ANSWERED, '-inf', '(' .. digits(now - far.silent), 'LIMIT', 0, 128) or {}) do
    local own = part(sender)
    put('ZREM', ANSWERED, sender)
    if own and own.divisor > 0 then
      put('ZREM', HEARD, sender)
      put('ZADD', SILENT, digits(own.answered), sender)
      lost, own.answered = lost + unitsOf(own.divisor), 0
      keepPart(sender, own)
    else
      senders = senders - put('HDEL', FLEET, sender)
    end
  end
  for _, sender in ipairs(fleet('ZRANGEBYSCORE', SILENT, '-inf', '(' .. digits(now - span), 'LIMIT', 0, 128) or {}) do
    local own = part(sender)
    local gone = own and unitsOf(own.divisor) or 0
    units, lost = units - gone, lost - gone
    put('ZREM', SILENT, sender)
    put('ZREM', DIVISORS, sender)
    senders = senders - put('HDEL', FLEET, sender)
  end
  local reviewed = whole(fleet('HGET', FLEET, 'reviewed'))
  if words > 0 and (now < reviewed or now - reviewed >= far.review) then -- the first word's push reviews
    due = '1'
    put('HSET', FLEET, 'reviewed', digits(now))
  end
  for i = FLEET, SILENT do
    redis.call('PEXPIRE', KEYS[i], digits(span / 1000 + 3600000))
  end
end
if touched then
  put('HSET', FLEET, 'version', digits(version), 'units', digits(units), 'lost', digits(lost), 'senders', digits(senders))
  for i = NEAR, made and SILENT or FLEET do -- one that is new may be the last that is written
    if redis.call('PTTL', KEYS[i]) == -1 then
      redis.call('PEXPIRE', KEYS[i], digits(span / 1000 + 3600000))
    end
  end
end

reply[#reply + 1] = due
for _, word in ipairs(told) do
  local gets, same, heard = word[1], word[2], word[3]
  local answer = {digits(version), digits(gets), same and '0' or '1'}
  if not same or heard < version then
    for _, key in ipairs(fleet('ZRANGEBYSCORE', NEAR, same and '(' .. digits(heard) or '-inf', '+inf') or {}) do
      answer[#answer + 1] = key
    end
  end
  reply[#reply + 1] = answer
end
if broken then
  forget()
  reply[4] = reply[4] + 1
  for i = #reply - words + 1, #reply do
    reply[i] = {'0', '0', '1'}
  end
end
return reply
