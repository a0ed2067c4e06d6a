-- Counts a single take that a backend has decided, of a counter with windows of the clock, by a sender that has all earlier
-- answers. It writes what commit.lua would write, with few commands. If that may do anything else, nothing is written.
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
local window, before, had, earlier = ARGV[1 + lone.window], ARGV[1 + lone.before], nil, nil
if before == '' then
  had = redis.call('HGET', counter, window)
else
  had = redis.call('HMGET', counter, window, before)
  had, earlier = had[1], had[2]
  if earlier and not (string.find(earlier, '^%d+$') and tonumber(earlier) <= tonumber(ARGV[1 + lone.mostbefore])) then
    return
  end
end
-- HINCRBY accepts no text that is not a number as this package writes it, except that it may be negative.
if had and not (tonumber(had) >= 0 and tonumber(had) <= tonumber(ARGV[1 + lone.most])) then
  return
elseif not had and redis.call('HLEN', counter) ~= (earlier and 1 or 0) then
  return -- others may have to go
end

local hits = redis.call('HINCRBY', counter, window, ARGV[1 + lone.hits])
if not had and (not earlier or redis.call('PTTL', counter) < tonumber(ARGV[1 + lone.life])) then
  redis.call('PEXPIRE', counter, ARGV[1 + lone.life])
end
if redis.call('ZADD', sender, sequence, 'floor', sequence, sequence, sequence, ARGV[1 + lone.granted]) == 2 then
  redis.call('ZREMRANGEBYSCORE', sender, '-inf', '(' .. sequence)
else
  redis.call('PEXPIRE', sender, ARGV[1 + lone.senderlife]) -- it was lost
end
return {now, hits, earlier}
