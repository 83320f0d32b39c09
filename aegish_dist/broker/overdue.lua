-- Finds unacknowledged messages that nobody has renewed in time.
-- KEYS: the hash of unacknowledged messages, the sorted set of their tags.
-- ARGV: seconds without renewal, messages at most.
-- Returns the messages as they stand in the hash, each after its tag.
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
