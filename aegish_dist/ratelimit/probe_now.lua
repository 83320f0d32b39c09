-- Lets the next worker that asks for a model with an open circuit probe it. A probe under way stays
-- the only one.
--
-- KEYS: documents of models. ARGV: the `Policy` as JSON.

local policy = cjson.decode(ARGV[1])

for _, key in ipairs(KEYS) do
  local model = state.read(key)
  if model and model.parked then
    breaker.probe_now(model, policy.breaker)
    redis.call('SET', key, cjson.encode(model), 'KEEPTTL')
  end
end
