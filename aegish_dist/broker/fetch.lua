-- Fetches messages: moves them from their queues to the unacknowledged ones, in one step.
-- KEYS: the hash of unacknowledged messages, the sorted set of their tags, then the queues.
-- ARGV: seconds by which the time is back-dated, maximum number of messages, then for each queue
--       its maximum number and whether its messages need an acknowledgement ("1") or not ("0").
-- Returns the number of the queue and the message, in turn; number 0 for text that is no message.
local time = redis.call('TIME')
local score = time[1] + time[2] / 1000000 - ARGV[1]
local left = tonumber(ARGV[2])
local reply, held, tags = {}, {}, {}

local function register(message)
  local ok, decoded = pcall(cjson.decode, message)
  local properties = ok and type(decoded) == 'table' and decoded.properties
  local info = type(properties) == 'table' and properties.delivery_info
  if type(info) ~= 'table' or type(properties.delivery_tag) ~= 'string'
      or type(info.exchange) ~= 'string' or type(info.routing_key) ~= 'string' then
    return false
  end
  held[#held + 1] = properties.delivery_tag
  held[#held + 1] = '[' .. message .. ',' .. cjson.encode(info.exchange) .. ','
    .. cjson.encode(info.routing_key) .. ']'
  tags[#tags + 1] = score
  tags[#tags + 1] = properties.delivery_tag
  return true
end

local function fetch(number, count)
  local messages = redis.call('RPOP', KEYS[number + 2], count) or {}
  for _, message in ipairs(messages) do
    local kept = ARGV[2 * number + 2] == '0' or register(message)
    reply[#reply + 1] = kept and number or 0
    reply[#reply + 1] = message
  end
  return #messages
end

local open, allowed = {}, {}
for number = 1, #KEYS - 2 do
  open[number], allowed[number] = number, tonumber(ARGV[2 * number + 1])
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
if #held > 0 then
  redis.call('HSET', KEYS[1], unpack(held))
  redis.call('ZADD', KEYS[2], unpack(tags))
end
return reply
