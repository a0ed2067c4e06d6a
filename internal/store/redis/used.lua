-- Adds to the usage of keys, as store.UsedDay does, in one step.
--
-- KEYS    1 string: the last sequence of the sender; then for each day a hash: label to hits, a space
--         and the budget; and behind it a sorted set, if the day had no room for a label: labels but
--         those of others, by rank (see store.Displaces)
-- ARGV    1 sequence
--         2 how many milliseconds the sequence is remembered
--         3 most labels of a day, and 4 with the labels of others
--         5 number of rows
--         For each row: the index of its day in KEYS, label, label of the rule's others, label of all
--         others, hits, budget, and a random number from 0 up to 1.
--         For each day: for how many milliseconds it is kept.
--
-- Returns how many rows went to labels of others, or false if the sequence was known.
local most = 9007199254740991
local known = redis.pcall('GET', KEYS[1])
if type(known) == 'table' then
  if not string.find(known.err, 'WRONGTYPE') then
    return known
  end
  known = false
end
if known and string.find(known, '^%d+$') and tonumber(known) >= tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return false
end
for i = 2, #KEYS do
  local of = redis.call('TYPE', KEYS[i])['ok']
  if of ~= (i % 2 == 0 and 'hash' or 'zset') and of ~= 'none' then
    redis.call('UNLINK', KEYS[i])
  end
end

-- The hits and the budget of a value.
local function parsed(value)
  local had, budget = string.match(value or '', '^(%-?%d+) ?(.*)$')
  return tonumber(had) or 0, budget or ''
end

local function put(key, label, hits, budget)
  redis.call('HSET', key, label, string.format('%.0f', math.max(-most, math.min(most, hits))) .. ' ' .. budget)
end

-- The label of others of a label's rule, whose name is first.
local function others_of(label)
  return string.sub(label, 1, 1 + (string.byte(label) or 0)) .. string.rep('\0', 18)
end

-- Add hits to others.
local function fold(key, hits, others, all)
  local label = others
  local value = redis.call('HGET', key, label)
  if not value and redis.call('HLEN', key) >= tonumber(ARGV[4]) then
    label = all
    value = redis.call('HGET', key, label)
  end
  local had, budget = parsed(value)
  put(key, label, had + hits, budget)
end

-- Fills the sorted set of a day with ranks, if it has none.
local function rank(key, ranks)
  if redis.call('EXISTS', ranks) == 1 then
    return
  end
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if all[i] ~= others_of(all[i]) then
      redis.call('ZADD', ranks, string.format('%.0f', (parsed(all[i + 1]))), all[i])
    end
  end
end

-- Has a new label displace another. Returns the rank of that; nothing if none makes room.
local function displaced(key, ranks, hits, all, random)
  rank(key, ranks)
  local least = redis.call('ZRANGE', ranks, 0, 0, 'WITHSCORES')
  if #least == 0 then
    return nil
  end
  local had = parsed(redis.call('HGET', key, least[1]))
  if hits <= 0 or random * had >= hits then
    return nil
  end
  redis.call('ZREM', ranks, least[1])
  redis.call('HDEL', key, least[1])
  fold(key, had, others_of(least[1]), all)
  return tonumber(least[2])
end

local folded, at = 0, 6
for _ = 1, tonumber(ARGV[5]) do
  local key, ranks = KEYS[tonumber(ARGV[at])], KEYS[tonumber(ARGV[at]) + 1]
  local label, others, all, hits, budget = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]), ARGV[at + 5]
  local value = redis.call('HGET', key, label)
  local base, placed = 0, true
  if not value and redis.call('HLEN', key) >= tonumber(ARGV[3]) then
    base = label ~= others and displaced(key, ranks, hits, all, tonumber(ARGV[at + 6]))
    if not base then
      placed = false
      fold(key, hits, others, all)
    end
    if label ~= others then
      folded = folded + 1
    end
  end
  if placed then
    local had, before = parsed(value)
    put(key, label, had + hits, budget ~= '' and budget or before)
    if label ~= others and redis.call('EXISTS', ranks) == 1 then
      redis.call('ZINCRBY', ranks, string.format('%.0f', hits + base), label)
    end
  end
  at = at + 7
end
for i = 2, #KEYS, 2 do
  redis.call('PEXPIRE', KEYS[i], ARGV[at])
  redis.call('PEXPIRE', KEYS[i + 1], ARGV[2])
  at = at + 1
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return folded
