-- Writes what a backend has decided, if it still holds by what is there. All of it is written, or nothing.
--
-- KEYS  the sender's record of each push, a sorted set: the parts of pushes that were applied, each with its sequence as score
--       and, if it had takes, once more as part:time in nanoseconds:units,units… of the takes; and "floor" with the floor;
--       then the counters; then, if any counter is to be as expected, the lock; and one key at least, to tell where this runs
-- ARGV  1 when it was decided by this server's clock, in microseconds, or '' for no matter when; 2 number of pushes, 3 of
--       counters; 4 the caller's name for a lock, or '' if there is no lock to look at; 5 '1' to lock if it can't be written;
--       6 how many counters, the first ones, are of form 2 and most likely new, so that all of these are looked for at once;
--       then for each push: sequence, or '' to only keep the record of a push that was applied before; floor; part; life that
--       the record needs in ms, negative if it is known to have that unless it is new; what its takes were granted, or '';
--       then for each counter its form and
--         0, a hash that must be as expected    fields and values expected, in one string; life in ms, '' to leave it, or '='
--                                               to write nothing; unless that, '1' to write it anew; count n of what follows,
--                                               n/2 fields and values; count m, m fields to remove
--         1, a string whose end must be so      how many bytes of it to look at, these bytes, life or '=', the new string
--         2, a hash to which hits are added     count n; n fields, numbers; the most hits that each may have; the hits to add
--                                               to each; life in ms, at least, or '=' to write nothing; the number below
--                                               which other fields go. It may have no others
-- Returns seconds and microseconds of the server's clock, then
--         0, and for each push '0' if it is new, '1' if applied before or '2' if below the floor, and what it was granted; for
--         each counter nothing if it is as expected, 0 if it is of another type, or what it has; nothing was written; or
--         1, the number of records of senders begun anew, and for each counter of form 2 what it has, or 0 if it was new and has
--         nothing else; or
--         2, and nothing was looked at: somebody else has the lock
local time = redis.call('TIME')
local pushes, counters, locks = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] ~= ''
local LOCK = 50 -- ms
local holder = locks and redis.pcall('GET', KEYS[#KEYS])
if type(holder) == 'string' and holder ~= ARGV[4] then
  -- No backend sets a longer life, but the clock may have been set back.
  local left = redis.call('PTTL', KEYS[#KEYS])
  if left >= 0 and left <= LOCK then
    return {time[1], time[2], 2}
  end
end
local holds = ARGV[1] == '' or math.abs(time[1] * 1000000 + time[2] - ARGV[1]) < 2000000

local function foreign(reply) return string.find(reply.err, 'WRONGTYPE') end

local new = tonumber(ARGV[6])
for i = pushes + 1, pushes + new, 1000 do
  if new > 0 and redis.call('EXISTS', unpack(KEYS, i, math.min(i + 999, pushes + new))) > 0 then
    new = 0
  end
end

local at, floors, known, repaired = 7, {}, nil, 0
for i = 1, pushes do
  local key, sequence = KEYS[i], ARGV[at]
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
      known[i] = {'2', ''}
    elseif redis.call('ZSCORE', key, ARGV[at + 2]) then
      local part, granted = ARGV[at + 2] .. ':', ''
      for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, sequence, sequence)) do
        if string.sub(member, 1, #part) == part then
          granted = member
        end
      end
      known = known or {}
      known[i] = {'1', granted}
    end
    floors[i] = floor
  end
  at = at + 5
end

local first, had, others = at, {}, nil
for i = pushes + 1, pushes + counters do
  local key, form = KEYS[i], ARGV[at]
  local got, same
  if form == '2' then
    got = i <= pushes + new and {} or redis.pcall('HGETALL', key)
    local n, rest = tonumber(ARGV[at + 1]), #got
    same = not got.err
    for j = at + 2, at + 1 + n do
      for k = 1, #got, 2 do
        if got[k] == ARGV[j] then
          local hits = got[k + 1]
          rest = rest - 2
          local ours = #hits <= 16 and (hits == '0' or string.find(hits, '^[1-9]%d*$')) -- HINCRBY accepts no other number
          same = same and ours and tonumber(hits) <= tonumber(ARGV[j + n])
          break
        end
      end
    end
    local last = at + 1 + n
    at = at + 4 + 3 * n
    local gone
    if same and rest > 0 then
      gone = {}
      for k = 1, #got, 2 do
        if string.find(got[k], '^%d+$') and tonumber(got[k]) < tonumber(ARGV[at - 1]) then
          gone[#gone + 1] = got[k]
        end
      end
      for j = last - n + 1, last do
        if tonumber(ARGV[j]) < tonumber(ARGV[at - 1]) then
          same = false
        end
      end
      same = same and 2 * #gone == rest
    end
    had[i] = {got, gone}
  elseif form == '1' then
    got = redis.pcall('GETRANGE', key, '-' .. ARGV[at + 1], -1)
    same = (type(got) == 'table' and '?' or got) == ARGV[at + 2]
    at = at + 5
  else
    got = redis.pcall('HGETALL', key)
    same = (got.err and '?' or table.concat(got, ' ')) == ARGV[at + 1]
    at = at + 3
    if ARGV[at - 1] ~= '=' then
      at = at + 2 + ARGV[at + 1]
      at = at + 1 + ARGV[at]
    end
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

if known or others or not holds then
  if ARGV[5] == '1' then
    redis.pcall('SET', KEYS[#KEYS], ARGV[4], 'PX', LOCK)
  end
  local reply = {time[1], time[2], 0}
  for i = 1, pushes do
    local state = known and known[i] or {'0', ''}
    reply[#reply + 1] = state[1]
    reply[#reply + 1] = state[2]
  end
  for i = pushes + 1, pushes + counters do
    reply[#reply + 1] = others and others[i] or false
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

local function digits(n) return string.format('%.0f', n) end

local reply = {time[1], time[2], 1, 0}
at = first
for i = pushes + 1, pushes + counters do
  local key, form = KEYS[i], ARGV[at]
  if form == '2' then
    local n, got, gone, born = tonumber(ARGV[at + 1]), had[i][1], had[i][2], false
    local absent = #got == 0 -- then it has no life to compare
    for j = at + 2, at + 1 + n do
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
    at = at + 4 + 3 * n
    local life = ARGV[at - 2]
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
  elseif form == '1' then
    local life, records = ARGV[at + 3], ARGV[at + 4]
    if life == '=' then
    elseif records == '' then
      redis.call('UNLINK', key)
    else
      redis.call('SET', key, records, 'PX', life)
    end
    at = at + 5
  else
    local life = ARGV[at + 2]
    at = at + 3
    if life ~= '=' then
      if ARGV[at] == '1' then
        redis.call('UNLINK', key)
      end
      local n = tonumber(ARGV[at + 1])
      write('HSET', key, at + 2, n)
      at = at + 2 + n
      n = tonumber(ARGV[at])
      write('HDEL', key, at + 1, n)
      at = at + 1 + n
      if life ~= '' then
        redis.call('PEXPIRE', key, life)
      end
    end
  end
end

at = 7
for i = 1, pushes do
  local key, sequence, floor, part, life, granted = KEYS[i], ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4]
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
    if not known then
      redis.call('PEXPIRE', key, digits(math.abs(life)))
    elseif life > 0 and redis.call('PTTL', key) < life then
      redis.call('PEXPIRE', key, digits(life))
    end
  end
  at = at + 5
end
if holder then
  redis.call('DEL', KEYS[#KEYS])
end
return reply
