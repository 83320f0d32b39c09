-- The state that the fleet shares in Redis, one JSON document per key. Used by all other parts.
--
-- Times are seconds on Redis' clock, rates are per second, costs are in 1e-9 USD. Names in the
-- stored documents stay as they are: workers of two versions may share a Redis while a fleet is
-- upgraded.

local state = {}

-- Return the document of a key, nil when there is none.
function state.read(key)
  local stored = redis.call('GET', key)
  return stored and cjson.decode(stored) or nil
end

-- Store a document for `kept_s` seconds.
function state.write(key, document, kept_s)
  redis.call('SET', key, cjson.encode(document), 'EX', kept_s)
end

-- Remove the leases that were not renewed in time: a killed worker's share becomes free by itself.
function state.drop_expired(leases, now)
  for name, lease in pairs(leases) do
    if lease.expires <= now then leases[name] = nil end
  end
end

-- Return the lower of two numbers, either of which may be nil: no limit.
function state.lowest(first, second)
  if first and second then return math.min(first, second) end
  return first or second
end
