-- The circuit breaker of a model: closed, open, half-open while a probe is under way (Nygard 2007).
--
-- State, in the document of a model:
--   failures    failed calls in a row over the fleet, without an answer or a 429 between them
--   unanswered  failed calls since the last answer that may have to be paid for, whatever 429s
--               came between them
--   refused_at  seconds; the first 429 since the last answer; nil: none
--   reason      the provider's words about the newest failure
--   parked      the open circuit; nil while it is closed:
--     wait      seconds between the newest probe and the next
--     at        seconds; when the next probe may begin
--     failed    probes that failed since the circuit opened
--     prober    the worker that holds the probe (half-open); nil: none
--     asked     whether the provider asked for the wait
-- Policy: `[breaker]`.

local breaker = {}

-- Give a new model's document its field.
function breaker.init(model)
  model.failures = model.failures or 0
end

-- Note what became of calls; open or close the circuit.
--
-- report: a `UsageReport`; asked_s: seconds that the provider asked for, nil unless too long for a
-- pause. Returns whether the circuit was open and is closed now.
function breaker.update(model, report, asked_s, now, policy)
  local circuit = model.parked
  -- During a wait that the provider asked for, late answers say nothing.
  local asked_to_wait = circuit and circuit.asked and now < circuit.at
  model.reason = report.reason or model.reason
  model.unanswered = report.unanswered + (report.answers > 0 and 0 or model.unanswered or 0)
  local unanswered = model.unanswered >= policy.unanswered
  local only_refused = report.alive and report.answers == 0
  if report.answers > 0 then model.refused_at = nil end
  if only_refused then model.refused_at = model.refused_at or now end
  -- For minutes no call was taken: a spent quota, whatever words the provider has for it.
  local refused = only_refused and now - model.refused_at > policy.refused_s
  local closes = report.alive and not (asked_to_wait or unanswered or refused)
  if closes then
    model.failures, model.parked = report.failures, nil
  elseif not circuit then
    model.failures = model.failures + report.failures
  end
  if not model.parked and (model.failures >= policy.failures or unanswered or refused) then
    model.parked = {wait = policy.first_probe_s, at = now + policy.first_probe_s, failed = 0}
  elseif model.parked and report.probe_failed then
    local open = model.parked
    open.failed, open.prober = open.failed + 1, nil
    -- Refusals cost nothing: back within a tenth of the time that they lasted.
    local longest = refused and (now - model.refused_at) * policy.refused_part or math.huge
    open.wait = math.min(open.wait * 2, longest, policy.longest_probe_s)
    open.at = now + open.wait
  end
  if asked_s then
    local at = now + math.min(asked_s, policy.longest_open_s)
    model.parked = {wait = policy.first_probe_s, at = at, failed = policy.shown_probes, asked = true}
  end
  return closes and circuit ~= nil
end

-- Return whether a worker that asks may probe an open circuit now, and note that it does.
--
-- probing: whether one of its calls in flight is a probe. A worker that was given a probe and did
-- not begin it leaves it to the next worker to ask.
function breaker.probe(model, worker, probing, may_begin, now)
  local circuit = model.parked
  if circuit.prober == worker and not probing then
    circuit.prober = nil
    return false
  end
  local prober = circuit.prober and model.leases[circuit.prober]
  if not may_begin or now < circuit.at or prober then return false end
  circuit.prober = worker
  return true
end

-- Have the next worker to ask probe an open circuit, as if it had just opened.
function breaker.probe_now(model, policy)
  local circuit = model.parked
  circuit.at, circuit.failed = 0, 0
  circuit.wait = policy.first_probe_s / 2  -- doubled after each failed probe
end
