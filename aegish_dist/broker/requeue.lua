-- Requeues unacknowledged messages, each at most once.
-- KEYS: the hash of unacknowledged messages, the sorted set of their leases.
-- ARGV: the channel that wakes workers, maximum number of expired leases, RPUSH (in front of the
--       waiting messages) or LPUSH (behind them), then the tags; without any, those whose leases
--       have expired.
-- Returns how many were requeued.
local tags, requeued, woken = {unpack(ARGV, 4)}, 0, {}
if #tags == 0 then
  local time = redis.call('TIME')
  local now = time[1] + time[2] / 1000000
  tags = redis.call('ZRANGE', KEYS[2], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[2])
end
for _, tag in ipairs(tags) do
  redis.call('ZREM', KEYS[2], tag)
  local entry = redis.call('HGET', KEYS[1], tag)
  -- Missing: acknowledged, or requeued by another worker.
  if entry and redis.call('HDEL', KEYS[1], tag) == 1 then
    local queue_ends = string.find(entry, '\n', 1, true)
    if queue_ends then
      local queue = string.sub(entry, 1, queue_ends - 1)
      redis.call(ARGV[3], queue, string.sub(entry, queue_ends + 1))
      requeued, woken[queue] = requeued + 1, true
    end
  end
end
for queue in pairs(woken) do
  redis.call('PUBLISH', ARGV[1], queue)
end
return requeued
