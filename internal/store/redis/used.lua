-- Adds to the usage of keys. See store.Accounts.
--
-- KEYS    1 string: the last sequence of the sender; then hashes, one for each day: label to hits, a
--         space and the budget
-- ARGV    1 sequence
--         2 how many milliseconds the sequence is remembered
--         3 most labels of a day, and 4 with the labels of others
--         5 number of rows
--         For each row: the index of its day in KEYS, label, label of the rule's others, label of all
--         others, hits, budget.
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
  if of ~= 'hash' and of ~= 'none' then
    redis.call('UNLINK', KEYS[i])
  end
end
local folded, at = 0, 6
for _ = 1, tonumber(ARGV[5]) do
  local key, label, others, all, hits, budget = KEYS[tonumber(ARGV[at])], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  at = at + 6
  local value = redis.call('HGET', key, label)
  if not value then
    local size = redis.call('HLEN', key)
    if size >= tonumber(ARGV[3]) then
      if label ~= others then
        folded = folded + 1
      end
      label, budget = others, ''
      value = redis.call('HGET', key, label)
      if not value and size >= tonumber(ARGV[4]) then
        label = all
        value = redis.call('HGET', key, label)
      end
    end
  end
  local had, before = string.match(value or '', '^(%-?%d+) ?(.*)$')
  local sum = math.max(-most, math.min(most, (tonumber(had) or 0) + tonumber(hits)))
  if budget == '' then
    budget = before or ''
  end
  redis.call('HSET', key, label, string.format('%.0f', sum) .. ' ' .. budget)
end
for i = 2, #KEYS do
  redis.call('PEXPIRE', KEYS[i], ARGV[at])
  at = at + 1
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return folded
