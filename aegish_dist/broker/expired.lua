-- Finds unacknowledged messages whose leases have expired.
-- KEYS: the hash of unacknowledged messages, the sorted set of their tags.
-- ARGV: seconds without renewal after which a lease has expired, maximum number of messages.
-- Returns tags and entries of the hash, in turn.
local time = redis.call('TIME')
local latest = time[1] + time[2] / 1000000 - ARGV[1]
local reply = {}
for _, tag in ipairs(redis.call('ZRANGE', KEYS[2], '-inf', latest, 'BYSCORE', 'LIMIT', 0, ARGV[2])) do
  local message = redis.call('HGET', KEYS[1], tag)
  if message then
    reply[#reply + 1] = tag
    reply[#reply + 1] = message
  else
    redis.call('ZREM', KEYS[2], tag)
  end
end
return reply
