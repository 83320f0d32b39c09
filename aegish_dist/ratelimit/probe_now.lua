-- Has the next worker to ask for a model whose circuit is open probe it. One probe at a time stays
-- one.
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
