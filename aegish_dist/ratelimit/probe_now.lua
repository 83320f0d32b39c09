-- Has the fleet probe parked models the next time it asks, as if they had just been parked.
--
-- KEYS: the states of models, as limiter.lua writes them. One probe at a time stays one.

for _, key in ipairs(KEYS) do
  local stored = redis.call('GET', key)
  local model = stored and cjson.decode(stored)
  if model and model.parked then
    model.parked.at, model.parked.failed = 0, 0
    model.parked.wait = 1    -- twice as long after each probe in vain
    redis.call('SET', key, cjson.encode(model), 'KEEPTTL')
  end
end
