-- Congestion: a bound on the calls in flight of a model at which more of them wait longer and none
-- ends earlier.
--
-- A queue makes the latency grow with the calls in flight (Little). As it grows for other reasons too,
-- a high one is only suspicious: the calls in flight are held until they are steady, and then a trial
-- cuts them. Where the latency falls with them they had queued; where it does not, the throughput
-- fell instead, and they had not.
--
-- State, in the document of a model, under `congestion`:
--   window     calls in flight of the fleet; nil without a bound
--   queued     whether a trial has found a queue: `window` stays, and follows `base`
--   queued_at  seconds; when a queue was last seen that is long enough for missed deadlines
--   start      {at, answers}: when the first calls of a listed limit began, and the answers since;
--              nil after the first trial
--   base       seconds; the latency without a queue, as far as it is known
--   is_known   whether the throughput was seen to fall with the calls in flight, at `base`
--   proven     calls in flight up to which the throughput was seen to grow with them
--   check_at   seconds; when a trial is due without a suspicion
--   patience   time between two such trials, in latencies
--   before     calls in flight of the interval before; nil after a time without calls
--   trial      {load, latency}: from before its newest cut; `crowded`: whether most calls of a start
--              waited; nil: none is under way
--   drains     whether more calls than the cut allows are still in flight
--   skip       answers to leave out after that, of calls that began before; nil: none
--   answers, latency, seconds, area   of the present interval: answers, their latencies in all, its
--              length, and the calls in flight over time
--   load, at   calls in flight after the newest request, and its time
-- Policy: `[congestion]`, with the sources.

local congestion = {}

local function begin_interval(flow)
  flow.answers, flow.latency, flow.seconds, flow.area = 0, 0, 0, 0
end

-- Return the calls in flight that the throughput needs, and some more.
local function needed(load, latency, base, policy)
  return math.max(policy.least_window, load * base / latency * policy.headroom)
end

local function cut(flow, load, latency, window, policy)
  flow.trial = {load = load, latency = latency}
  flow.window, flow.drains, flow.skip = math.max(policy.least_window, window), true, nil
end

-- Note that the throughput grows up to `load`, and when the next trial is due.
local function prove(flow, load, now, policy)
  flow.proven = load
  flow.patience = math.min(policy.longest_patience, 2 * (flow.patience or policy.patience))
  flow.check_at = now + flow.base * (flow.queued and policy.patience or flow.patience)
end

-- Return how the latency followed the calls in flight in a trial: 1 in proportion, 0 not at all.
-- Nil while too few answers tell, as latencies vary about as much as their mean.
local function elasticity(flow, load, latency, policy)
  local trial = flow.trial
  local fewer = math.log(trial.load / math.max(load, 1e-3))
  if fewer < policy.least_cut then return 0 end
  local followed = math.log(trial.latency / latency) / fewer
  -- A cut down to what a known base needs costs nothing if there is a queue.
  if flow.is_known and followed >= 0.5 then return followed end
  local clear = math.abs(followed - 0.5) * fewer * math.sqrt(flow.answers) > policy.clear
  return (clear or flow.answers >= policy.most_answers) and followed or nil
end

-- Decide a trial after an interval with fewer calls in flight; return whether it is decided.
local function judge(flow, load, latency, now, policy)
  local followed, trial = elasticity(flow, load, latency, policy), flow.trial
  if not followed then return false end
  flow.trial = nil
  if followed < 0.5 then
    local window = math.max(load, needed(trial.load, trial.latency, latency, policy))
    if not flow.queued then window, flow.queued_at = trial.load * policy.growth, nil end
    flow.window, flow.base, flow.is_known = window, latency, true
    prove(flow, trial.load, now, policy)
    return true
  end
  flow.queued, flow.patience = true, nil
  if not flow.is_known then
    flow.queued_at = now
    if load > policy.least_window then
      -- The base may come from calls that queued as well: lower still.
      cut(flow, load, latency, load * policy.cut, policy)
    else
      flow.base, flow.is_known = latency, true
      prove(flow, load, now, policy)
    end
  end
  return true
end

-- Whether few of the calls that have begun since the start are answered.
local function is_crowded(flow, load, policy)
  return flow.start and flow.start.answers < policy.crowded * load
end

-- Begin a trial while the base is unknown.
--
-- All calls of a listed limit may have begun at once. Those that are not answered by now wait for
-- longer than those that are: by Little's law, each call in flight takes the time per answer.
local function begin_trial(flow, load, latency, now, policy)
  local start, crowded = flow.start, is_crowded(flow, load, policy)
  local window = load * policy.cut
  if crowded then
    latency = math.max(latency, load * (now - start.at) / start.answers)
    window = math.min(window, needed(load, latency, flow.base, policy))
    flow.proven = window
  end
  cut(flow, load, latency, window, policy)
  flow.start, flow.trial.crowded = nil, crowded
end

-- Compare an interval with the base: begin a trial, learn, or let the window grow.
local function compare(flow, load, latency, now, policy)
  local slow, may_cut = latency / flow.base, load > policy.least_window
  -- While the calls in flight grow, answers lag behind them.
  local steady = flow.before and load < policy.steady * flow.before
  local due = now >= flow.check_at and steady
  flow.before = load
  local news = flow.queued or load > policy.grown * flow.proven or due
  local crowded = slow > policy.far and is_crowded(flow, load, policy)
  local suspected = may_cut and slow > policy.suspicious and (news or crowded)
  if suspected and not steady then
    flow.window = math.min(flow.window or load, math.max(policy.least_window, load))
    flow.skip = policy.lag * load
  elseif suspected then
    if slow > policy.far then flow.queued_at = now end
    if flow.is_known then
      cut(flow, load, latency, needed(load, latency, flow.base, policy), policy)
    else
      begin_trial(flow, load, latency, now, policy)
    end
  elseif may_cut and due then
    flow.is_known = false
    begin_trial(flow, load, latency, now, policy)
  elseif slow < policy.suspicious then
    local fast = slow < policy.like
    -- In a queue, the base would follow it upwards.
    if slow < 1 or fast and not flow.queued then
      flow.base = flow.base + policy.weight * (latency - flow.base)
    end
    if fast and load > policy.grown * flow.proven then
      prove(flow, load, now, policy)
    end
    if flow.window and load > policy.binding * flow.window then
      flow.window = flow.window * (fast and policy.growth or policy.slow_growth)
    end
  end
end

local function interval_ended(flow, now, policy)
  local load, latency = flow.area / math.max(1e-3, flow.seconds), flow.latency / flow.answers
  if not flow.base then
    flow.base, flow.proven, flow.before = latency, load, flow.start and load
    flow.check_at = now + latency * policy.first_patience
  elseif not flow.trial then
    compare(flow, load, latency, now, policy)
  elseif not judge(flow, load, latency, now, policy) then
    return
  end
  begin_interval(flow)
end

-- Whether the present interval has as many answers as it needs: one for each call in flight, fewer
-- while the latency shoots up. The first one ends early: it is to show the latency of a few calls.
local function is_complete(flow, policy)
  if flow.answers < policy.least_answers then return false end
  if not flow.base then return true end
  local alarm = not flow.trial and flow.latency > policy.alarm * flow.base * flow.answers
  return alarm or flow.answers * flow.seconds >= flow.area
end

-- Learn from the answers since the newest request.
function congestion.update(model, report, now, policy)
  local flow = model.congestion or {}
  model.congestion = flow
  if (flow.load or 0) == 0 then
    -- Nothing is in flight: a trial ends undecided. That of a crowded start goes on, as the provider
    -- may still work on calls that were given up.
    if not (flow.trial and flow.trial.crowded) then
      flow.trial, flow.drains, flow.skip = nil, nil, nil
      flow.window = flow.queued and flow.window or nil
    end
    flow.before, flow.at = nil, now
    if model.awaited and not flow.base then flow.start = {at = now, answers = 0} end
    begin_interval(flow)
  end
  local passed = math.max(0, math.min(now - flow.at, policy.longest_gap_s))
  flow.at = now
  flow.seconds, flow.area = flow.seconds + passed, flow.area + (flow.load or 0) * passed
  if flow.start then flow.start.answers = flow.start.answers + report.answers end
  if report.latency_s > 0 then  -- workers of the version before do not measure it
    flow.answers, flow.latency = flow.answers + report.answers, flow.latency + report.latency_s
  end
  if flow.trial and flow.trial.crowded then flow.queued_at = now end
  if flow.drains and flow.load <= flow.window then
    flow.drains, flow.skip = nil, math.max(flow.window, policy.least_answers / 2)
    begin_interval(flow)
  elseif flow.skip and flow.answers >= flow.skip then
    flow.skip = nil
    begin_interval(flow)
  elseif not (flow.drains or flow.skip) and is_complete(flow, policy) then
    interval_ended(flow, now, policy)
  end
end

-- Return the bound on the calls in flight, nil without one.
function congestion.window(model)
  local window = model.congestion.window
  return window and math.floor(window)
end

-- Return the seconds since calls queued for long, nil if they never did.
function congestion.since(model, now)
  local queued_at = model.congestion.queued_at
  return queued_at and math.max(0, now - queued_at)
end

-- Note the calls in flight that the leases allow after a request.
function congestion.note(model)
  local load = 0
  for _, lease in pairs(model.leases) do load = load + (lease.load or lease.held) end
  model.congestion.load = load
end
