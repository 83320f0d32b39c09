-- Fetches messages: moves them from their queues to the unacknowledged ones, in one step.
-- KEYS: the hash of unacknowledged messages, the sorted set of their leases, then the queues.
-- ARGV: seconds of a lease, maximum number of messages, prefix of the tags that the messages get
--       in the order of the reply, then the maximum number for each queue.
-- Returns the number of the queue and the message, in turn.
local left = tonumber(ARGV[2])
local reply, held, tags = {}, {}, {}

local function fetch(number, count)
  local queue = KEYS[number + 2]
  local messages = redis.call('RPOP', queue, count) or {}
  for _, message in ipairs(messages) do
    reply[#reply + 1] = number
    reply[#reply + 1] = message
    local tag = ARGV[3] .. #tags
    tags[#tags + 1] = tag
    held[#held + 1] = tag
    held[#held + 1] = queue .. '\n' .. message
  end
  return #messages
end

local open, allowed = {}, {}
for number = 1, #KEYS - 2 do
  open[number], allowed[number] = number, tonumber(ARGV[number + 3])
end
-- An equal share for each queue; a share that is not used up is divided among the others.
while left > 0 and #open > 0 do
  local share, still_open = math.max(1, math.floor(left / #open)), {}
  for _, number in ipairs(open) do
    local count = math.min(share, allowed[number], left)
    local fetched = count > 0 and fetch(number, count) or 0
    left, allowed[number] = left - fetched, allowed[number] - fetched
    if fetched == count and allowed[number] > 0 then
      still_open[#still_open + 1] = number
    end
  end
  open = still_open
end
if #tags > 0 then
  local time = redis.call('TIME')
  local lease_ends = time[1] + time[2] / 1000000 + ARGV[1]
  local leases = {}
  for _, tag in ipairs(tags) do
    leases[#leases + 1] = lease_ends
    leases[#leases + 1] = tag
  end
  redis.call('HSET', KEYS[1], unpack(held))
  redis.call('ZADD', KEYS[2], unpack(leases))
end
return reply
