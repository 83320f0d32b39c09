-- Renews the leases of unacknowledged messages; tags that are no longer held are left out.
-- KEYS: the sorted set of the leases.
-- ARGV: seconds of a lease, then the tags.

-- Redis with full memory refuses a script whose first write may need memory. This first write needs
-- none, and the ones below are then permitted.
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
local lease_ends = time[1] + time[2] / 1000000 + ARGV[1]
for number = 2, #ARGV do
  redis.call('ZADD', KEYS[1], 'XX', lease_ends, ARGV[number])
end
