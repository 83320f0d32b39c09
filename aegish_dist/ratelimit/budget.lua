-- The spend ledger of a run: no call begins once its cost and that of the calls in flight reach
-- a cap.
--
-- State, in the document of a run:
--   total   cost of all calls, in 1e-9 USD
--   models  cost by model id, in 1e-9 USD
--   leases  by `worker|model`: {cost = estimated cost of the calls in flight and permitted,
--           model = model id, expires = seconds}
-- Policy: `[leases]`.

local budget = {}

-- Enter in the ledger what a worker spent on a model.
function budget.spend(ledger, run, model, now)
  ledger.leases = ledger.leases or {}
  state.drop_expired(ledger.leases, now)
  ledger.total = ledger.total + run.spent
  ledger.models[model] = (ledger.models[model] or 0) + run.spent
end

-- Return how many of the waiting calls may begin within the caps, and whether a cap is reached.
function budget.room(ledger, run, name, model)
  local all, same = run.held, run.held
  for other, lease in pairs(ledger.leases) do
    if other ~= name then
      all = all + lease.cost
      if lease.model == model then same = same + lease.cost end
    end
  end
  local room, over = run.waiting, false
  local function bound(cap, spent, in_flight)
    if not cap then return end
    over = over or spent >= cap
    room = math.min(room, math.ceil((cap - spent - in_flight) / math.max(1, run.estimate)))
  end
  bound(run.cap, ledger.total, all)
  bound(run.model_cap, ledger.models[model], same)
  return math.max(0, room), over
end

-- Reserve the cost of the calls in flight and of those permitted.
function budget.reserve(ledger, run, name, model, permits, now, policy)
  local cost = run.held + permits * run.estimate
  local expires = now + policy.lease_s
  ledger.leases[name] = cost > 0 and {cost = cost, model = model, expires = expires} or nil
end
