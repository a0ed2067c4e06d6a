-- Counts takes and hits that a backend has decided, of counters with windows of the clock, or reads these. It leaves what
-- commit.lua would leave, with few commands. If that may do anything else, nothing is left.
--
-- KEYS  the sender's record, the counters, and the list of the namespace's fleet, if it can have one
-- ARGV  lone of message.go; if a fleet was seen, list, and word if that says that there is one; and one for counters that
--       follow each other, if they have the same
-- Returns nothing, or the server's time in microseconds, and for each counter the window's hits, and if the window before is
--         named, the hits of that
local call, try, sender, n = redis.call, redis.pcall, KEYS[1], tonumber(ARGV[1 + lone.counters])
local sequence, floor, granted = ARGV[1 + lone.sequence], ARGV[1 + lone.floor], ARGV[1 + lone.granted]
local fleet, first, seen = KEYS[n + 2], 1 + lone.size, ARGV[1 + lone.fleet] ~= ''
if fleet and not seen and call('EXISTS', fleet) > 0 then
  return
end
local known = sequence ~= '' and call('ZSCORE', sender, 'floor')
if sequence == '' then -- nothing is noted
elseif not known or not string.find(known, '^%d+$') or tonumber(known) > tonumber(sequence) then
  return
end
local time, decided = call('TIME'), ARGV[1 + lone.decided]
local now = time[1] * 1000000 + time[2]
if decided ~= '' and math.abs(now - decided) >= 2000000 then
  return
end
if seen then -- all holds as it is, or commit.lua tells what does not
  local words, at, is = ARGV[first + list.words] ~= '0', first + list.size, tonumber(ARGV[first + list.now]) or now
  local head = try('HMGET', fleet, 'revision', 'version', 'swept', words and ARGV[at + word.sender] or 'units')
  local since = head[1] == ARGV[first + list.revision] and is - (tonumber(head[3]) or 0)
  if not since or ARGV[first + list.later] == '' and sequence ~= '' and (since < 0 or since >= far.sweep) then
    return
  end
  first = at
  if words then
    local divisor, heard, answered = string.match(head[4] or '', '^(%d+) (%d+) (%d+) %d+$')
    if ARGV[at + word.same] == '' or divisor ~= ARGV[at + word.divisor] or divisor == '0' or heard ~= ARGV[at + word.version]
      or heard ~= head[2] or is < tonumber(answered) or is - answered > far.late then
      return
    end
    first = at + word.size
  end
end

local fresh = tonumber(ARGV[1 + lone.new]) -- these have nothing else
if fresh > 0 and call('EXISTS', unpack(KEYS, 2, 1 + fresh)) > 0 then
  fresh = 0
end
-- read returns the hits of a window, false if there are none, and whether they are as this package writes them, and not too many.
local function read(key, window, most)
  local is = try('HGET', key, window)
  return is, not is or type(is) == 'string' and #is <= 16 and (is == '0' or string.find(is, '^[1-9]%d*$')) and tonumber(is) <= tonumber(most)
end
local reply, size, fits, new, counted, at = {now}, 1, true, nil, 0, first
repeat
  local window, hits, before, last = ARGV[at + one.window], ARGV[at + one.hits], ARGV[at + one.before], counted + ARGV[at + one.count]
  local adds, most, named = tonumber(hits), tonumber(ARGV[at + one.most]), before ~= ''
  repeat
    local key, earlier, is = KEYS[counted + 2], false, 0
    if named and counted >= fresh then
      earlier, fits = read(key, before, ARGV[at + one.mostbefore])
    end
    if adds == 0 then
      if fits and counted >= fresh then
        is, fits = read(key, window, most)
        is = fits and tonumber(is or 0)
      end
    elseif fits then
      -- One command reads and writes. What was there is a number as this package writes it, or this fails.
      is = try('HINCRBY', key, window, hits)
      fits = type(is) == 'number'
    end
    if fits then
      counted = counted + 1
      local had = is - adds
      fits = had >= 0 and had <= most and is >= 0
      if fits and had == 0 and adds ~= 0 then
        new = new or {}
        new[#new + 1] = at
        new[#new + 1] = counted
        new[#new + 1] = counted > fresh
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

if fits and sequence == '' then
  return reply
elseif fits then
  local floored, noted = tonumber(known) < tonumber(floor), nil
  local upto, part = floored and floor or known, ARGV[1 + lone.part]
  if granted == '' then
    noted = call('ZADD', sender, upto, 'floor', sequence, part) + 1
  else
    noted = call('ZADD', sender, upto, 'floor', sequence, part, sequence, granted)
  end
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
  if noted == 1 and granted ~= '' then -- it was applied before, by another decision
    call('ZREM', sender, granted)
  end
end
at = first
local last = tonumber(ARGV[at + one.count])
for i = 1, counted do
  if i > last then
    at = at + one.size
    last = last + ARGV[at + one.count]
  end
  local hits = tonumber(ARGV[at + one.hits])
  if hits ~= 0 and call('HINCRBY', KEYS[i + 1], ARGV[at + one.window], string.format('%.0f', -hits)) == 0 then
    call('HDEL', KEYS[i + 1], ARGV[at + one.window])
  end
end
