-- Records that a node is active, and returns how many nodes are active, counting it in any case. See
-- Nodes of package store.
--
-- KEYS[1] sorted set of nodes, each with the time of its last join as score, in microseconds. A new
--         node is recorded as if it had joined earlier, so it expires sooner.
-- ARGV    1 time in microseconds; '' for Redis's
--         2 how long a node stays active, in microseconds
--         3 most nodes
--         4 node
--         5 how long a new node stays active, in microseconds
--         6 '1' to record the node
local now, life, most, node, new, records = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1'
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local function digits(n) return string.format('%.0f', n) end
local oldest, newest = '(' .. digits(now - life), '(' .. digits(now + life)

local joined = redis.pcall('ZSCORE', KEYS[1], node)
if type(joined) == 'table' and joined.err then
  if not string.find(joined.err, 'WRONGTYPE') then
    return joined
  end
  joined = nil
  if not records then
    return 1 -- another program has written the key
  end
  redis.call('UNLINK', KEYS[1])
end
joined = tonumber(joined or nil)
local active = joined and joined > now - life and joined < now + life
if records then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', digits(now - life))
  redis.call('ZREMRANGEBYSCORE', KEYS[1], digits(now + life), '+inf')
  if active then
    redis.call('ZADD', KEYS[1], digits(now), node)
  elseif redis.call('ZCARD', KEYS[1]) < most then
    redis.call('ZADD', KEYS[1], digits(now - life + new), node)
    active = true
  end
  redis.call('PEXPIRE', KEYS[1], digits(life / 1000))
end
return redis.call('ZCOUNT', KEYS[1], oldest, newest) + (active and 0 or 1)
