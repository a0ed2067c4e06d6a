-- Records that a node is active, and returns how many are.
--
-- KEYS[1]  sorted set: nodes, each with the time in microseconds when it joined last
-- ARGV     1 time in microseconds, or '' for Redis's; 2 node; 3 how long a node stays active
local now, life = tonumber(ARGV[1]), tonumber(ARGV[3])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local function digits(n) return string.format('%.0f', n) end

local known = redis.pcall('ZSCORE', KEYS[1], ARGV[2])
if type(known) == 'table' and known.err then
  if not string.find(known.err, 'WRONGTYPE') then
    return known
  end
  redis.call('UNLINK', KEYS[1]) -- it is not ours
end
redis.call('ZADD', KEYS[1], digits(now), ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', digits(now - life))
redis.call('ZREMRANGEBYSCORE', KEYS[1], digits(now + life), '+inf')
redis.call('PEXPIRE', KEYS[1], digits(life / 1000))
return redis.call('ZCARD', KEYS[1])
