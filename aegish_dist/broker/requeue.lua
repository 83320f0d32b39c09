-- Requeues unacknowledged messages, each at most once.
-- KEYS: the hash of unacknowledged messages, the sorted set of their tags.
-- ARGV: RPUSH (in front of the waiting messages) or LPUSH (behind them), seconds without renewal
--       after which a message is requeued or "" for any, then for each message its tag, its JSON,
--       the number of its queues, and the queues.
-- Returns how many were requeued.
local latest = math.huge
if ARGV[2] ~= '' then
  local time = redis.call('TIME')
  latest = time[1] + time[2] / 1000000 - ARGV[2]
end
local requeued, at = 0, 3
while at <= #ARGV do
  local tag, message, queues = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local score = redis.call('ZSCORE', KEYS[2], tag)
  if latest == math.huge or (score and tonumber(score) <= latest) then
    redis.call('ZREM', KEYS[2], tag)
    -- Missing from the hash: acknowledged, or requeued by another worker.
    if redis.call('HDEL', KEYS[1], tag) == 1 then
      for queue = at + 3, at + 2 + queues do
        redis.call(ARGV[1], ARGV[queue], message)
      end
      requeued = requeued + 1
    end
  end
  at = at + 3 + queues
end
return requeued
