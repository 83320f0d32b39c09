-- Puts unacknowledged messages back into their queues, each at most once.
-- KEYS: the hash of unacknowledged messages, the sorted set of their tags.
-- ARGV: RPUSH or LPUSH, seconds without renewal that a message needs to be given back or "",
--       then for each message its tag, itself, how many queues it goes to, and the queues.
-- Returns how many were given back.
local latest = math.huge
if ARGV[2] ~= '' then
  local time = redis.call('TIME')
  latest = time[1] + time[2] / 1000000 - ARGV[2]
end
local given_back, at = 0, 3
while at <= #ARGV do
  local tag, message, queues = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local score = redis.call('ZSCORE', KEYS[2], tag)
  if latest == math.huge or (score and tonumber(score) <= latest) then
    redis.call('ZREM', KEYS[2], tag)
    -- Gone from the hash: acknowledged, or given back by another worker.
    if redis.call('HDEL', KEYS[1], tag) == 1 then
      for queue = at + 3, at + 2 + queues do
        redis.call(ARGV[1], ARGV[queue], message)
      end
      given_back = given_back + 1
    end
  end
  at = at + 3 + queues
end
return given_back
