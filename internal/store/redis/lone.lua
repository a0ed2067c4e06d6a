-- Counts a single take that a backend has decided, of a counter with windows of the clock, by a sender that has all earlier
-- answers. It leaves what commit.lua would leave, with few commands. If that may do anything else, nothing is left.
--
-- KEYS  the sender's record, the counter, and the namespace's fleet, if it can have one
-- ARGV  lone of message.go
-- Returns nothing, or the server's time in microseconds, the window's hits, and those of the window before, if that is named
local sender, counter, sequence = KEYS[1], KEYS[2], ARGV[1 + lone.sequence]
if KEYS[3] and redis.call('EXISTS', KEYS[3]) > 0 or redis.call('ZCOUNT', sender, sequence, '+inf') > 0 then
  return
end
local time, decided = redis.call('TIME'), ARGV[1 + lone.decided]
local now = time[1] * 1000000 + time[2]
if decided ~= '' and math.abs(now - decided) >= 2000000 then
  return
end
local window, before, earlier = ARGV[1 + lone.window], ARGV[1 + lone.before], false
if before ~= '' then
  earlier = redis.call('HGET', counter, before)
  if earlier and not (string.find(earlier, '^%d+$') and tonumber(earlier) <= tonumber(ARGV[1 + lone.mostbefore])) then
    return
  end
end
-- One command reads and writes. What was there is a number as this package writes it, or this fails.
local hits = tonumber(ARGV[1 + lone.hits])
local is = redis.call('HINCRBY', counter, window, ARGV[1 + lone.hits])
local new = is == hits
if is < hits or is - hits > tonumber(ARGV[1 + lone.most]) or new and redis.call('HLEN', counter) ~= (earlier and 2 or 1) then
  -- The decision does not hold, or other windows may have to go.
  if redis.call('HINCRBY', counter, window, '-' .. ARGV[1 + lone.hits]) == 0 then
    redis.call('HDEL', counter, window)
  end
  return
end
if new and (not earlier or redis.call('PTTL', counter) < tonumber(ARGV[1 + lone.life])) then
  redis.call('PEXPIRE', counter, ARGV[1 + lone.life])
end
if redis.call('ZADD', sender, sequence, 'floor', sequence, sequence, sequence, ARGV[1 + lone.granted]) == 2 then
  redis.call('ZREMRANGEBYSCORE', sender, '-inf', '(' .. sequence)
else
  redis.call('PEXPIRE', sender, ARGV[1 + lone.senderlife]) -- it was lost
end
return {now, is, earlier}
