-- Pacing: the rate at which calls to a model begin, where its provider does not state its limit.
--
-- Additive increase on answers and multiplicative decrease on refusals (AIMD), with a growth that
-- accelerates with the time since the last decrease (CUBIC). policy.toml names the sources.
--
-- State, in the document of a model:
--   since            seconds; when the model was first asked for
--   epoch            number; goes up with each change of the rate after which answers and refusals
--                    are counted from 0. A call carries the epoch it began in: a refusal of an
--                    older one is not counted
--   epoch_at         seconds; when the epoch began
--   answers          answers of calls that began in the epoch
--   refusals         429s of calls that began in the epoch
--   recent           answers, each weighed by e^(-age / goodput_window_s)
--   counted_at       seconds; up to when `recent` has been weighed
--   window           calls in flight allowed in the slow start; nil once a rate or a limit is known
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

-- Give a new model's document its fields.
function pacing.init(model, now, policy)
  if model.since then return end
  model.since, model.epoch, model.epoch_at, model.answers, model.refusals = now, 0, 0, 0, 0
  model.recent, model.counted_at, model.window = 0, now, policy.first_window
  model.pause_until, model.overloaded_at = 0, 0
end

-- Remember what response headers say of a limit. Calls begin somewhat below it while little of it
-- is left: others may use the same key, and an empty bucket refuses every early call.
function pacing.heed(model, kind, per_minute, remaining, policy)
  if not per_minute then return end
  local rate = per_minute / 60
  local left = remaining and math.min(1, remaining / math.max(1, rate / 2)) or 1
  model[kind] = {rate = rate, pace = policy.scarce_pace + (1 - policy.scarce_pace) * left}
  if kind == 'hinted_requests' then model.window = nil end
end

-- End the slow start: the catalog names a limit.
function pacing.end_slow_start(model)
  model.window = nil
end

-- Return the rate that response headers allow, per second; nil without such headers.
function pacing.hinted(model, kind)
  return model[kind] and model[kind].rate * model[kind].pace
end

local function enter_epoch(model, now)
  model.epoch, model.epoch_at, model.grown_at = model.epoch + 1, now, now
  model.answers, model.refusals = 0, 0
end

-- Answers per second of late.
local function goodput(model, now, policy)
  local window = policy.goodput_window_s
  local age = math.max(1, now - model.since)
  return model.recent / (window * (1 - math.exp(-age / window)))
end

-- Refusals without an answer between them mean that no call is accepted now. They say nothing about
-- the rate after that: the rate is remembered, and halved if no answer follows its return either.
local function back_off(model, now, policy)
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

-- The first guess of a rate. What was accepted so far holds the provider's burst; half of it is a
-- safe guess. Answers may take much longer than refusals: calls in flight were accepted too.
local function first_rate(model, in_flight, now, policy)
  local age = math.max(1, math.min(policy.goodput_window_s, now - model.since))
  local rate = math.max(goodput(model, now, policy), (model.recent + in_flight) / age) / 2
  -- Without an answer nothing is known of the rate.
  return model.answers == 0 and math.max(policy.idle_rate, rate) or rate
end

-- The provider's limit as refusals at `rate` show it. The goodput bounds it from below: a rate that
-- is far too high comes down in one step, and one that is nearly right hardly changes.
local function limit_below(model, rate, now, policy)
  -- While the rate climbs, slow answers lag behind it and say little.
  local climbing = not model.top or now - model.since < policy.goodput_window_s
  local least = climbing and policy.least_climbing or policy.least
  local right = math.min(rate, goodput(model, now, policy) * policy.goodput_margin)
  if model.refusals > policy.few_refusals then
    -- Far above the limit, the part of the calls that was refused tells how far. An answer takes
    -- longer than a refusal: calls in flight were accepted too.
    local calls = math.max(model.answers + model.refusals, rate * (now - model.epoch_at))
    right = math.min(right, rate * (1 - model.refusals / calls))
    least = policy.least_refused
  end
  return math.max(rate * least, right)
end

local function decrease(model, fleet, now, policy)
  local rate = state.lowest(model.rate, fleet.given)
  if not rate or rate >= policy.unlimited_per_s then
    model.rate, model.top = first_rate(model, fleet.in_flight, now, policy), nil
  else
    rate = limit_below(model, rate, now, policy)
    model.rate, model.top = rate * policy.decrease, fleet.given or rate
  end
  model.rate = math.max(policy.lowest_rate, model.rate)
  model.window = nil
  enter_epoch(model, now)
end

local function increase(model, given, now, policy)
  local top, step = model.top, policy.growth
  if not top then
    top, step = model.rate, policy.first_growth  -- not refused since the first guess
  elseif model.rate >= policy.near_top * top then
    step = policy.top_growth * math.max(1, (now - model.epoch_at) / 60) ^ 2
  end
  model.rate = model.rate + top * step * math.min(policy.longest_growth_s, now - model.grown_at)
  if model.top then model.top = math.max(model.top, model.rate) end
  model.grown_at = now
  local limit = state.lowest(given, policy.unlimited_per_s)
  if model.rate >= limit then model.rate = nil end
end

-- Learn from what became of calls since the worker's last report.
--
-- report: a `UsageReport`; fleet: `given` (calls per second that are known to be allowed, nil when
-- unknown), `in_flight` (calls, over all workers), `waiting` (calls of this worker).
-- Returns whether calls of this epoch were refused.
function pacing.update(model, report, fleet, now, policy)
  -- A pause brings no answers and says nothing of the rate: its time does not count.
  local counted_at = math.max(model.counted_at, math.min(now, model.pause_until))
  model.recent = model.recent * math.exp((counted_at - now) / policy.goodput_window_s)
                 + report.answers
  model.counted_at = now
  local answers, refused = 0, 0
  if report.epoch == model.epoch then
    answers, refused = report.epoch_answers, report.refused
    model.answers, model.refusals = model.answers + answers, model.refusals + refused
  end
  if refused > 0 then
    if now - model.epoch_at > policy.same_event_s then
      if model.rate and model.answers == 0 then
        back_off(model, now, policy)
      else
        decrease(model, fleet, now, policy)
      end
    end
  elseif model.remembered and answers > 0 then
    resume(model, now)
  elseif model.rate and report.answers > 0 and fleet.waiting > 0 then
    if answers > 0 then model.resumed = nil end
    increase(model, fleet.given, now, policy)
  end
  if model.window then
    model.window = model.window + report.answers
    if model.window >= policy.unlimited_per_s then model.window = nil end
  end
  return refused > 0
end

-- Pause a model as long as its provider asked, or for a moment when it is overloaded; its rate
-- does not change.
--
-- Returns the seconds asked for when that is too long for a pause, otherwise nil.
function pacing.pause(model, report, now, policy)
  local pause_s = report.pause_s
  if report.overloaded > 0 and now - model.overloaded_at > policy.overload_apart_s then
    model.overloaded_at = now
    pause_s = math.max(pause_s, policy.overload_pause_s)
  end
  if pause_s > policy.longest_pause_s then return pause_s end
  if pause_s > 0 then model.pause_until = math.max(model.pause_until, now + pause_s) end
  return nil
end

-- Begin with the slow start again, where nothing is known of the model's limits.
function pacing.restart(model, known, policy)
  if not (known or model.rate) then model.window = policy.first_window end
end
