-- Renews the leases of unacknowledged messages; tags that are no longer held are left out.
-- KEYS: the sorted set of their tags.
-- ARGV: seconds by which the time is back-dated, then the tags.

-- Redis with full memory refuses a script whose first write may need memory. This first write needs
-- none, and the ones below are then permitted.
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local score = time[1] + time[2] / 1000000 - ARGV[1]
for number = 2, #ARGV do
  redis.call('ZADD', KEYS[1], 'XX', score, ARGV[number])
end
