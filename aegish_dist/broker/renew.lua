-- Renews unacknowledged messages; those that are no longer there stay away.
-- KEYS: the sorted set of their tags.
-- ARGV: seconds to back-date, then the tags.

-- Redis refuses a script whose first write may need memory while its memory is full; this one needs
-- none, and with it the ones below are let through.
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local score = time[1] + time[2] / 1000000 - ARGV[1]
for number = 2, #ARGV do
  redis.call('ZADD', KEYS[1], 'XX', score, ARGV[number])
end
