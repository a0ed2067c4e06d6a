-- Reads what a review needs, in one step, as a sender that falls silent is moved.
--
-- KEYS  of a fleet's keys the first, the near keys, the senders by what they have heard, and the silent ones
-- Returns how many near keys are gone, as far as that is noted, and how many there are; how many senders are silent; and the least
--         version that another sender has heard, 'inf' if there is none
return {
  redis.call('HGET', KEYS[1], 'gone') or '0', redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[4]),
  redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2] or 'inf',
}
