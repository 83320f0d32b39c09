-- Pacing: the rate at which calls to a model begin, where its provider does not state its limit.
--
-- Additive increase on answers and multiplicative decrease on refusals (AIMD), with a growth that
-- accelerates with the time since the last decrease (CUBIC). Refusals that stay when the rate falls
-- have another cause: their share is the background, and only an excess counts. policy.toml names
-- the sources.
--
-- State, in the document of a model:
--   since            seconds; when the model was first asked for
--   epoch            number; goes up with each change of the rate after which answers and refusals
--                    are counted from 0. A call carries the epoch it began in: a refusal of an
--                    older one is not counted
--   epoch_at         seconds; when the epoch began
--   answers          answers of calls that began in the epoch
--   refusals         429s of calls that began in the epoch
--   begun            calls that began in the epoch; like `refusals` weighed by
--                    e^(-age / share_window_s)
--   low              {begun, refusals} of the epoch while the rate is clearly below `top`
--   before           {begun, refusals} of the epochs before the last decrease
--   doubt            whether the rate is the cause of refusals: {begun, refusals} at low rates, the
--                    `weight` of the evidence against it, `rate` and `window` to return to
--   background       {begun, refusals} that show the share refused whatever the rate; nil: none
--   trial            {rate, pace, window, begun, refusals} from before a trial of a lower rate
--   examined_at      seconds; when the background was last tried
--   lately           {begun, refusals} of calls that ended, whatever their epoch; weighed likewise
--   growing_at       seconds; since when the rate grows, pauses left out
--   recent           calls begun, each weighed by e^(-age / pace_window_s)
--   counted_at       seconds; up to when `recent` has been weighed
--   window           calls in flight allowed in the slow start; nil once a rate is known
--   awaited          answers until the start of a listed `max_in_flight` is over; nil: no such start
--   rate             calls per second; nil while nothing limits them
--   top              calls per second; the rate at which the provider last refused, nil before that
--   grown_at         seconds; when the rate last grew
--   remembered       {rate, top} from before a time in which every call is refused
--   resumed          whether `remembered` is in force again, and no answer has come since
--   hinted_requests  {rate, pace} from response headers: calls per second, and the part of them
--                    to use
--   hinted_tokens    the same in tokens
--   pause_until      seconds; no call begins before
--   overloaded_at    seconds; when an overload last caused a pause
-- Policy: `[pacing]`.

local pacing = {}

-- Give a new model's document its fields; `max_in_flight` is listed in the catalog, nil if it is not.
-- A listed limit is used at once.
function pacing.init(model, max_in_flight, now, policy)
  if model.since then return end
  model.since, model.epoch, model.epoch_at, model.answers, model.refusals = now, 0, 0, 0, 0
  model.recent, model.counted_at = 0, now
  if max_in_flight then
    model.awaited = max_in_flight * policy.answered_part
  else
    model.window = policy.first_window
  end
  model.pause_until, model.overloaded_at = 0, 0
end

-- Remember what response headers say of a limit. Calls begin somewhat below it while little of it
-- is left: others may use the same key, and an empty bucket refuses every early call.
function pacing.heed(model, kind, per_minute, remaining, policy)
  if not per_minute then return end
  local rate = per_minute / 60
  if rate >= policy.unlimited_per_s then
    model[kind] = nil
    return
  end
  local left = remaining and math.min(1, remaining / math.max(1, rate / 2)) or 1
  model[kind] = {rate = rate, pace = policy.scarce_pace + (1 - policy.scarce_pace) * left}
  if kind == 'hinted_requests' then model.window = nil end
end

-- End the slow start: the catalog names a rate.
function pacing.end_slow_start(model)
  model.window = nil
end

-- Return the rate that response headers allow, per second; nil without such headers.
function pacing.hinted(model, kind)
  return model[kind] and model[kind].rate * model[kind].pace
end

local function enter_epoch(model, now)
  model.epoch, model.epoch_at, model.grown_at = model.epoch + 1, now, now
  model.growing_at = now
  model.answers, model.begun, model.refusals, model.low = 0, 0, 0, nil
end

-- Begin slowly after all, without counting these refusals, where the first calls are refused: they
-- may be far more at once than a rate allows that is not stated. They have spent what the provider
-- saves up for a burst; a moment later there is some again.
local function start_listed(model, report, now, policy)
  model.awaited = model.awaited - report.answers
  if report.refused > 0 then
    model.awaited, model.window = nil, policy.first_window
    model.pause_until = math.max(model.pause_until, now + policy.same_event_s)
    enter_epoch(model, now)
  elseif model.awaited <= 0 then
    model.awaited = nil
  end
end

-- Calls per second of late.
local function pace(model, now, policy)
  local window = policy.pace_window_s
  local age = math.max(1, now - model.since)
  return model.recent / (window * (1 - math.exp(-age / window)))
end

-- The part of calls that was refused.
local function share(calls)
  return calls.refusals / math.max(1, calls.begun)
end

local function log_likelihood(calls)
  local begun, refusals = calls.begun, math.min(calls.refusals, calls.begun)
  if refusals <= 0 or refusals >= begun then return 0 end
  return refusals * math.log(refusals / begun) + (begun - refusals) * math.log(1 - refusals / begun)
end

-- Whether more of some calls than of others were refused, beyond chance: the logarithm of the
-- likelihood ratio of two shares to one.
local function exceeds(calls, others, policy)
  if share(calls) <= share(others) then return false end
  local all = {begun = calls.begun + others.begun, refusals = calls.refusals + others.refusals}
  return log_likelihood(calls) + log_likelihood(others) - log_likelihood(all) > policy.proof
end

-- Return the calls with the weight of so many, as a short trial knows the share too vaguely to be
-- exceeded.
local function at_least(calls, number)
  local begun = math.max(calls.begun, number)
  return {begun = begun, refusals = share(calls) * begun}
end

-- Refusals without an answer between them mean that no call is accepted now. They say nothing about
-- the rate after that: the rate is remembered, and halved if no answer follows its return either.
local function back_off(model, now, policy)
  model.trial = nil
  if model.rate <= policy.idle_rate then return end
  if not model.remembered then
    local part = model.resumed and 0.5 or 1
    model.remembered = {rate = math.max(policy.idle_rate, model.rate * part), top = model.top}
  end
  model.resumed = nil
  model.rate = math.max(policy.idle_rate, model.rate / 2)
  enter_epoch(model, now)
end

local function resume(model, now)
  model.rate, model.top = model.remembered.rate, model.remembered.top
  model.remembered, model.resumed = nil, true
  enter_epoch(model, now)
end

-- The rate that calls begin at, nil while nothing limits it.
local function present(model, fleet, now, policy)
  local rate = state.lowest(model.rate, fleet.given)
  if not rate or rate >= policy.unlimited_per_s then return nil end
  return math.min(rate, math.max(policy.idle_rate, policy.slack * pace(model, now, policy)))
end

-- Whether calls begin clearly below the rate that was refused: what becomes of them tells its cause.
local function is_low(model, policy)
  return model.low and model.rate and model.top and model.rate < policy.near_top * model.top
end

-- Set a rate; `top` is the limit as far as it is known.
local function set_rate(model, rate, top, now, policy)
  model.rate, model.top = rate and math.max(policy.lowest_rate, rate), top
  model.window = nil
  enter_epoch(model, now)
end

local function decrease(model, fleet, now, policy)
  local rate, before = present(model, fleet, now, policy), model.before
  if before and not (exceeds(model, before, policy) or exceeds(before, model, policy)) then
    local kept = math.min(1, policy.most_calls / math.max(1, before.begun))
    model.before = {begun = before.begun * kept + model.begun,
                    refusals = before.refusals * kept + model.refusals}
  else
    model.before = {begun = model.begun, refusals = model.refusals}
  end
  if not rate then
    -- What was accepted so far holds the provider's burst; half of it is a safe guess.
    local accepted = pace(model, now, policy) * (1 - share(model))
    set_rate(model, math.max(policy.idle_rate, accepted / 2), nil, now, policy)
  else
    local right = rate * (1 - share(model))
    local top = right
    if model.top and rate >= policy.near_top * model.top then
      top = math.max(right, (right + model.top) / 2)  -- one refusal so near it may be chance
    end
    set_rate(model, math.max(right, rate * policy.least) * policy.decrease,
             fleet.given or top, now, policy)
  end
  model.low = {begun = 0, refusals = 0}
end

-- Return to the rate of before, which was not the cause of refusals.
local function restore(model, was, now, policy)
  set_rate(model, was.rate and model.rate and math.max(was.rate, model.rate), nil, now, policy)
  model.window = was.window
end

-- Weigh whether the rate is the cause of refusals (Wald's sequential test). If it is, the share of
-- refused calls has fallen to next to nothing since the rate fell, otherwise it has stayed.
local function weigh(model, fleet, now, policy)
  local doubt, before, low = model.doubt, model.before, model.low
  if low then model.low = {begun = 0, refusals = 0} end
  local stayed = before and share(before) or 0
  if doubt and not low then return false end  -- the rate was not lowered: nothing was tried
  if not doubt or stayed <= policy.stray or exceeds(low, before, policy) then
    doubt = nil
  else
    stayed = math.min(0.95, stayed)
    -- The limit is known within a standard error of the calls before.
    local fallen = math.sqrt(stayed / (1 - stayed) / before.begun) - (1 - policy.decrease)
    fallen = math.max(policy.stray, math.min(stayed, fallen))
    doubt.begun, doubt.refusals = doubt.begun + low.begun, doubt.refusals + low.refusals
    doubt.weight = math.min(2 * policy.proof, doubt.weight + low.refusals * math.log(stayed / fallen)
      + (low.begun - low.refusals) * math.log((1 - stayed) / (1 - fallen)))
    if doubt.weight < 0 then doubt = nil end
  end
  model.doubt = doubt or {begun = 0, refusals = 0, weight = 0, window = model.window,
                          rate = present(model, fleet, now, policy)}
  return model.doubt.weight > policy.proof and share(model.doubt) <= policy.most_background
end

-- Take back the decreases: the rate was not the cause.
local function tolerate(model, now, policy)
  local doubt = model.doubt
  model.background = {begun = doubt.begun, refusals = doubt.refusals}
  model.doubt, model.before, model.examined_at = nil, nil, now
  restore(model, doubt, now, policy)
end

-- Begin calls below the rate at which they were accepted, and see whether fewer are refused.
local function examine(model, fleet, now, policy)
  local rate = present(model, fleet, now, policy)
  model.trial = {rate = rate, pace = rate or pace(model, now, policy), window = model.window,
                 begun = model.begun, refusals = model.refusals}
  set_rate(model, model.trial.pace * (1 - share(model)) * policy.decrease, nil, now, policy)
end

-- End a trial: the share that is still refused is the background, the rest showed the limit.
local function conclude(model, fleet, now, policy)
  local before, found = model.trial, {begun = model.begun, refusals = model.refusals}
  if exceeds(found, before, policy) then return examine(model, fleet, now, policy) end
  model.trial, model.examined_at = nil, now
  model.background = share(found) > policy.stray and share(found) <= policy.most_background
    and found or nil
  if exceeds(before, found, policy) then
    local limit = before.pace * (1 - share(before)) / (1 - share(found))
    set_rate(model, limit * policy.decrease, limit, now, policy)
  else
    restore(model, before, now, policy)
  end
end

local function increase(model, given, now, policy)
  local top, step = model.top, policy.growth
  if not top then
    top, step = model.rate, policy.first_growth  -- not refused since the first guess
  elseif model.rate >= policy.near_top * top then
    step = policy.top_growth * math.max(1, ((now - (model.growing_at or model.epoch_at)) / policy.top_growth_s) ^ 2)
  end
  if model.rate <= policy.slack * pace(model, now, policy) then
    local grown_s = math.min(policy.longest_growth_s, now - model.grown_at)
    local rate = model.rate + top * math.min(step, policy.first_growth) * grown_s
    local doubt = model.doubt
    if doubt and is_low(model, policy) and doubt.weight > 0 and rate >= policy.near_top * top then
      local left = doubt.weight - model.low.begun * share(model.before)
      if left > 0 then rate = model.rate end
    end
    model.rate = rate
  end
  if model.top then model.top = math.max(model.top, model.rate) end
  model.grown_at = now
  local limit = state.lowest(given, policy.unlimited_per_s)
  if model.rate >= limit then model.rate = nil end
end

-- Count the calls of a report, and weigh older ones less.
local function count(model, report, now, policy)
  -- A pause brings no calls and says nothing of the rate: its time does not count.
  local counted_at = math.min(now, math.max(model.counted_at, model.pause_until))
  model.recent = model.recent * math.exp((counted_at - now) / policy.pace_window_s) + report.begun
  local kept = math.exp((counted_at - now) / policy.share_window_s)
  model.growing_at = (model.growing_at or model.epoch_at) + counted_at - model.counted_at
  model.counted_at = now
  model.begun, model.refusals = (model.begun or 0) * kept, model.refusals * kept
  local lately = model.lately or {begun = 0, refusals = 0}
  lately.begun = lately.begun * kept + report.answers + report.limited
  lately.refusals, model.lately = lately.refusals * kept + report.limited, lately
  if report.epoch ~= model.epoch then return end
  model.answers = model.answers + report.epoch_answers
  model.begun, model.refusals = model.begun + report.begun, model.refusals + report.refused
  model.begun = math.max(model.begun, model.refusals)
  if is_low(model, policy) then
    local low = model.low
    low.begun, low.refusals = low.begun + report.begun, low.refusals + report.refused
    low.begun = math.max(low.begun, low.refusals)
  end
end

-- What refusals of calls in this epoch mean. Returns whether the rate is their cause.
local function refuse(model, fleet, now, policy)
  local all = model.answers == 0 and share(model) > policy.all_refused
  local is_same_event = now - model.epoch_at <= policy.same_event_s and not all
  local early = is_same_event or model.begun < policy.few_calls
  if model.trial or early then
    return not model.background
  end
  if model.rate and all then
    back_off(model, now, policy)
  elseif model.background then
    if not exceeds(model, at_least(model.background, policy.trial_calls), policy) then return false end
    examine(model, fleet, now, policy)
  elseif not weigh(model, fleet, now, policy) then
    decrease(model, fleet, now, policy)
  elseif model.doubt.begun >= policy.least_calls then
    tolerate(model, now, policy)
    return false
  elseif is_low(model, policy) then
    return false  -- more calls at this rate are to show it
  else
    decrease(model, fleet, now, policy)
  end
  return true
end

-- Learn from what became of calls since the worker's last report.
--
-- report: a `UsageReport`; fleet: `given` (calls per second that are known to be allowed, nil when
-- unknown), `waiting` (calls of this worker).
-- Returns whether calls were refused because of the rate.
function pacing.update(model, report, fleet, now, policy)
  if model.awaited then start_listed(model, report, now, policy) end
  count(model, report, now, policy)
  local refused = report.epoch == model.epoch and report.refused or 0
  local answers = report.epoch == model.epoch and report.epoch_answers or 0
  local caused = refused > 0 and refuse(model, fleet, now, policy)
  local expected = refused == 0 or model.background and not caused
  if refused == 0 and answers > 0 and model.remembered then
    resume(model, now)
  elseif expected and model.rate and not model.trial and report.answers > 0 and fleet.waiting > 0 then
    if answers > 0 then model.resumed = nil end
    increase(model, fleet.given, now, policy)
  end
  local trial = model.trial
  if trial then
    if model.begun >= policy.trial_calls or now - model.epoch_at > policy.trial_s then
      conclude(model, fleet, now, policy)
    end
  elseif model.background then
    local ended = {begun = math.min(model.begun, model.answers + model.refusals), refusals = model.refusals}
    if exceeds(model.background, ended, policy) then
      model.background = share(ended) > policy.stray and ended or nil
    elseif now - (model.examined_at or now) > policy.trial_apart_s then
      examine(model, fleet, now, policy)
    end
  end
  if model.window then
    model.window = model.window + report.answers
    if model.window >= policy.unlimited_per_s then model.window = nil end
  end
  return caused
end

-- Return the share of calls refused of late, of those answered or refused, to a thousandth; nil
-- after none.
function pacing.refused(model)
  return model.lately.begun > 0 and math.floor(1000 * share(model.lately) + 0.5) / 1000 or nil
end

-- Pause a model as long as its provider asked, or for a moment when it is overloaded; its rate
-- does not change.
--
-- Returns the seconds asked for when that is too long for a pause, otherwise nil.
function pacing.pause(model, report, now, policy)
  local pause_s = report.pause_s
  if model.background and report.overloaded == 0 and pause_s <= policy.longest_pause_s then
    return nil  -- refusals whatever the rate: each concerns its own call
  end
  if report.overloaded > 0 and now - model.overloaded_at > policy.overload_apart_s then
    model.overloaded_at = now
    pause_s = math.max(pause_s, policy.overload_pause_s)
  end
  if pause_s > policy.longest_pause_s then return pause_s end
  if pause_s > 0 then model.pause_until = math.max(model.pause_until, now + pause_s) end
  return nil
end

-- Begin with the slow start again, where no rate is known.
function pacing.restart(model, known, policy)
  if not (known or model.rate) then model.window, model.awaited = policy.first_window, nil end
end
