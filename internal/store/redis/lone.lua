-- Counts takes that a backend has decided, of counters with windows of the clock. It leaves what commit.lua would leave, with
-- few commands. If that may do anything else, nothing is left.
--
-- KEYS  the sender's record, the counters, and the namespace's fleet, if it can have one
-- ARGV  lone of message.go, and one for each counter
-- Returns nothing, or the server's time in microseconds, and for each counter the window's hits, and those of the window
--         before, if that is named
local call, try, sender, n = redis.call, redis.pcall, KEYS[1], (#ARGV - lone.size) / one.size
local sequence, floor = ARGV[1 + lone.sequence], ARGV[1 + lone.floor]
if KEYS[n + 2] and call('EXISTS', KEYS[n + 2]) > 0 then
  return
end
local known = call('ZSCORE', sender, 'floor')
if not known or not string.find(known, '^%d+$') or tonumber(known) > tonumber(sequence) then
  return
end
local time, decided = call('TIME'), ARGV[1 + lone.decided]
local now = time[1] * 1000000 + time[2]
if decided ~= '' and math.abs(now - decided) >= 2000000 then
  return
end

local fresh = tonumber(ARGV[1 + lone.new]) -- these have nothing else
if fresh > 0 and call('EXISTS', unpack(KEYS, 2, 1 + fresh)) > 0 then
  fresh = 0
end
local reply, fits, new, counted, at = {now}, true, nil, 0, 1 + lone.size
while fits and counted < n do
  local key, window, hits, before, earlier = KEYS[counted + 2], ARGV[at + one.window], ARGV[at + one.hits], ARGV[at + one.before], false
  if before ~= '' and counted >= fresh then
    earlier = try('HGET', key, before)
    fits = not earlier or type(earlier) == 'string' and string.find(earlier, '^%d+$') and tonumber(earlier) <= tonumber(ARGV[at + one.mostbefore])
  end
  -- One command reads and writes. What was there is a number as this package writes it, or this fails.
  local is = fits and try('HINCRBY', key, window, hits)
  fits = type(is) == 'number'
  if fits then
    counted = counted + 1
    local had = is - hits
    fits = had >= 0 and had <= tonumber(ARGV[at + one.most])
    if fits and had == 0 then
      new = new or {}
      new[#new + 1] = at
      new[#new + 1] = counted
      new[#new + 1] = earlier
      fits = counted <= fresh or call('HLEN', key) == (earlier and 2 or 1) -- or else other windows may have to go
    end
    reply[#reply + 1] = is
    reply[#reply + 1] = earlier
  end
  at = at + one.size
end

if fits then
  local floored = tonumber(known) < tonumber(floor)
  local noted = call('ZADD', sender, floored and floor or known, 'floor', sequence, sequence, sequence, ARGV[1 + lone.granted])
  if noted == 2 then
    if floored then
      call('ZREMRANGEBYSCORE', sender, '-inf', '(' .. floor)
    end
    for i = 1, new and #new or 0, 3 do
      local key, life = KEYS[new[i + 1] + 1], ARGV[new[i] + one.life]
      if not new[i + 2] or call('PTTL', key) < tonumber(life) then
        call('PEXPIRE', key, life)
      end
    end
    return reply
  end
  if noted == 1 then -- it was applied before, by another decision
    call('ZREM', sender, ARGV[1 + lone.granted])
  end
end
for i = 1, counted do
  at = 1 + lone.size + (i - 1) * one.size
  if call('HINCRBY', KEYS[i + 1], ARGV[at + one.window], '-' .. ARGV[at + one.hits]) == 0 then
    call('HDEL', KEYS[i + 1], ARGV[at + one.window])
  end
end
