-- Decides what a worker may do next with one model, on the state that the fleet shares.
--
-- KEYS: documents of the model, of its provider, and of each capped run in the request.
-- ARGV: the `LeaseRequest` and the `Policy` as JSON, the worker's name, and for tests the time in
-- seconds; otherwise Redis' clock decides. Returns the `Lease` as JSON.

local request, policy, worker = cjson.decode(ARGV[1]), cjson.decode(ARGV[2]), ARGV[3]
local limits, shared, requested_runs = request.limits, request.shared, request.runs or {}
-- Counts of 0 are left out of the JSON.
local NOTHING = {epoch = 0, begun = 0, answers = 0, latency_s = 0, epoch_answers = 0, refused = 0,
                 limited = 0, overloaded = 0, failures = 0, unanswered = 0, pause_s = 0, tokens = 0}
local report = setmetatable(request.report, {__index = NOTHING})
local now = tonumber(ARGV[4])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1e6
end

local model = state.read(KEYS[1]) or {leases = {}}
pacing.init(model, state.lowest(limits.max_in_flight, shared.max_in_flight), now, policy.pacing)
breaker.init(model)
state.drop_expired(model.leases, now)
local provider = next(shared) and (state.read(KEYS[2]) or {leases = {}})
if provider then state.drop_expired(provider.leases, now) end

local function per_second(per_minute)
  return per_minute and per_minute / 60
end

-- 1. Pacing, by headers and by what became of calls.
local hint = report.hint
if hint then
  pacing.heed(model, 'hinted_requests', hint.requests_per_minute, hint.requests_remaining,
              policy.pacing)
  pacing.heed(model, 'hinted_tokens', hint.tokens_per_minute, hint.tokens_remaining, policy.pacing)
end
local listed = per_second(limits.requests_per_minute)
local given = state.lowest(listed, pacing.hinted(model, 'hinted_requests'))
if listed then pacing.end_slow_start(model) end
local fleet = {given = given, waiting = request.waiting}
if pacing.update(model, report, fleet, now, policy.pacing) then
  buckets.drain(model, 'requests', now)
end

congestion.update(model, report, now, policy.congestion)

-- 2. Pause and circuit breaker.
local asked_s = pacing.pause(model, report, now, policy.pacing)
if breaker.update(model, report, asked_s, now, policy.breaker) then
  pacing.restart(model, given, policy.pacing)
end

-- 3. Budgets.
-- The arms of a model are contenders of their own, and share the ledger of their run.
local name = worker .. '|' .. request.model
local permits = request.waiting
local runs, ledgers, by_run = {}, {}, {}
local function reserve(run, ledger, allowed)
  local contender = run.contender or request.model
  budget.reserve(ledger, run, worker .. '|' .. contender, contender, allowed, now, policy.leases)
end
for index, run in ipairs(requested_runs) do
  local contender = run.contender or request.model
  local ledger = by_run[run.run] or state.read(KEYS[2 + index]) or run.stored
  local lease = {run = run.run, permits = 0, unknown = not ledger or nil}
  if ledger then
    budget.spend(ledger, run, contender, now)
    local over
    lease.permits, over = budget.room(ledger, run, worker .. '|' .. contender, contender)
    lease.over = over or nil
    reserve(run, ledger, lease.permits)
    ledgers[index], by_run[run.run] = ledger, ledger
  end
  runs[index] = lease
  permits = permits - (run.waiting - lease.permits)
end

-- 4. Concurrency.
local wants = request.held + request.waiting
local bound = congestion.window(model)
local most = state.lowest(limits.max_in_flight, state.lowest(model.window, bound))
local slots = leases.share(model.leases, worker, most, wants)
local congested = bound and bound == most
if provider then
  local part = leases.share(provider.leases, name, shared.max_in_flight, wants)
  congested = congested and not (part and part < slots)
  slots = state.lowest(slots, part)
end
if slots then permits = math.max(0, math.min(permits, slots - request.held)) end

-- 5. Rates.
local filled = {}
local function fill(owner, kind, rate, size, correction)
  filled[#filled + 1] = buckets.fill(owner, kind, rate, size, correction, now, policy.buckets)
end
local tokens = math.max(1, request.tokens)
local token_rate = state.lowest(per_second(limits.tokens_per_minute),
                                pacing.hinted(model, 'hinted_tokens'))
fill(model, 'requests', state.lowest(given, model.rate), 1, 0)
fill(model, 'tokens', token_rate, tokens, report.tokens)
if provider then
  fill(provider, 'requests', per_second(shared.requests_per_minute), 1, 0)
  fill(provider, 'tokens', per_second(shared.tokens_per_minute), tokens, report.tokens)
end

-- 6. The lease, and when to ask again.
local circuit = model.parked
local starts = model.window and not bound
local wait = starts and policy.leases.slow_start_s or policy.leases.crowded_s
if permits == request.waiting then wait = policy.leases.renew_s end
local limited, probe = false, false
if circuit then
  probe = breaker.probe(model, worker, request.probing, permits > 0, now)
  limited, permits, wait = true, probe and 1 or 0, circuit.at - now
  slots = request.held + permits
elseif model.pause_until > now then
  limited, permits, wait = true, 0, model.pause_until - now
else
  local fill_s
  permits, fill_s = buckets.take(filled, permits, policy.buckets)
  limited, wait = fill_s ~= nil, fill_s or wait
end
for index, ledger in pairs(ledgers) do
  local run, lease = requested_runs[index], runs[index]
  lease.permits = math.min(permits, lease.permits)
  reserve(run, ledger, lease.permits)
  state.write(KEYS[2 + index], ledger, policy.leases.kept_s)
end
leases.renew(model.leases, worker, slots, request.held, wants, now, policy.leases)
if model.leases[worker] then model.leases[worker].load = request.held + permits end
congestion.note(model)
if provider then
  leases.renew(provider.leases, name, slots, request.held, wants, now, policy.leases)
  state.write(KEYS[2], provider, policy.leases.kept_s)
end
state.write(KEYS[1], model, policy.leases.kept_s)

local workers = 0
for _ in pairs(model.leases) do workers = workers + 1 end
local rate = buckets.rate(filled)
-- What is false is left out: encoding takes time.
return cjson.encode({
  epoch = model.epoch, slots = slots, permits = permits,
  metered = limited or #filled > 0 or nil, limited = limited or nil,
  wait_s = math.min(policy.leases.renew_s, math.max(policy.leases.shortest_wait_s, wait)),
  circuit_open = circuit ~= nil or nil, failed_probes = circuit and circuit.failed,
  congested_s = congestion.since(model, now), congested = congested or nil,
  refused = pacing.refused(model),
  reason = circuit and model.reason, probe_at = circuit and circuit.at, probe = probe or nil,
  rate = rate and rate / math.max(1, workers), runs = #runs > 0 and runs or nil,
})
