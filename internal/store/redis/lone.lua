-- Counts takes that a backend has decided, of counters with windows of the clock. It leaves what commit.lua would leave, with
-- few commands. If that may do anything else, nothing is left.
--
-- KEYS  the sender's record, the counters, and the namespace's fleet, if it can have one
-- ARGV  lone of message.go, and one for counters that follow each other, if they have the same
-- Returns nothing, or the server's time in microseconds, and for each counter the window's hits, and if the window before is
--         named, the hits of that
local call, try, sender, n = redis.call, redis.pcall, KEYS[1], tonumber(ARGV[1 + lone.counters])
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
local reply, size, fits, new, counted, at = {now}, 1, true, nil, 0, 1 + lone.size
repeat
  local window, hits, before, last = ARGV[at + one.window], ARGV[at + one.hits], ARGV[at + one.before], counted + ARGV[at + one.count]
  local adds, most, named = tonumber(hits), tonumber(ARGV[at + one.most]), before ~= ''
  repeat
    local key, earlier = KEYS[counted + 2], false
    if named and counted >= fresh then
      earlier = try('HGET', key, before)
      fits = not earlier or type(earlier) == 'string' and string.find(earlier, '^%d+$') and tonumber(earlier) <= tonumber(ARGV[at + one.mostbefore])
    end
    -- One command reads and writes. What was there is a number as this package writes it, or this fails.
    local is = fits and try('HINCRBY', key, window, hits)
    fits = type(is) == 'number'
    if fits then
      counted = counted + 1
      local had = is - adds
      fits = had >= 0 and had <= most
      if fits and had == 0 then
        new = new or {}
        new[#new + 1] = at
        new[#new + 1] = counted
        new[#new + 1] = earlier or ARGV[at + one.others] ~= '0'
        -- There are no windows that may have to go.
        fits = counted <= fresh or call('HLEN', key) == (earlier and 2 or 1) + ARGV[at + one.others]
      end
      size = size + 1
      reply[size] = is
      if named then
        size = size + 1
        reply[size] = earlier
      end
    end
  until not fits or counted == last
  at = at + one.size
until not fits or counted == n

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
at = 1 + lone.size
local last = tonumber(ARGV[at + one.count])
for i = 1, counted do
  if i > last then
    at = at + one.size
    last = last + ARGV[at + one.count]
  end
  if call('HINCRBY', KEYS[i + 1], ARGV[at + one.window], '-' .. ARGV[at + one.hits]) == 0 then
    call('HDEL', KEYS[i + 1], ARGV[at + one.window])
  end
end
