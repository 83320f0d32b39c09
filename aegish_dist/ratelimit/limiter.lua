-- What a worker may do next with one model, decided on the state that the fleet shares.
--
-- KEYS: the model's state, its provider's state, then the money of each capped run that asks.
-- ARGV: the ask as JSON (`Ask` in grants.py). Returns the grant as JSON (`Grant`).
-- Whatever a worker holds is a lease that it renews by asking: a killed worker's share comes back
-- by itself. Times are seconds on Redis' clock, rates are per second, money is in 1e-9 USD.

local LEASE_S = 5
local RENEW_S = 1
local KEEP_S = 86400
local SLOW_START = 20        -- calls in flight to a model of which nothing is known
local FREE_RATE = 10000      -- a rate that no fleet reaches: not counted
local LOWEST_RATE = 0.02
local IDLE_RATE = 0.5        -- while every call is refused, one in two seconds finds out when that ends
local BURST_S = 0.5          -- what a bucket saves up
local BATCH_S = 0.1          -- at high rates, ask for the permits of this time together
local SHORTEST_WAIT_S = 0.02
local DEBOUNCE_S = 1         -- refusals within this time are one event
local FEW = 5                -- refusals of a rate that is nearly right
local RECENT_S = 5           -- the provider's answers are counted over about this time
local LONGEST_PAUSE_S = 300  -- a longer one parks the model
local LONGEST_PARK_S = 3600  -- before a probe asks again, whatever the provider said
local OVERLOAD_PAUSE_S = 1
local OVERLOAD_EVERY_S = 5
local FAILURES = 10          -- in a row, over the fleet: the model is parked
local UNANSWERED = 20        -- calls that were paid for without an answer, with 429s between them or not
local PROBE_S, LONGEST_PROBE_S = 2, 300
local SHOWN_PROBES = 2       -- failed ones after which a model is called parked, as in ration.py

local ask = cjson.decode(ARGV[1])
local told = ask.told
local now = ask.now
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1e6
end

local function read(key, fresh)
  local stored = redis.call('GET', key)
  return stored and cjson.decode(stored) or fresh
end

local function write(key, state)
  redis.call('SET', key, cjson.encode(state), 'EX', KEEP_S)
end

local function drop_expired(leases)
  for name, lease in pairs(leases) do
    if lease.expires <= now then leases[name] = nil end
  end
end

-- Calls at once, nil without a limit. As long as there is enough, each gets what it wants and a
-- part of what is left over, so that it need not ask for every call; otherwise equal parts, and what
-- others leave of theirs.
local function slots_of(leases, name, limit)
  if not limit then return nil end
  local claimants, leased, wanted = 1, 0, 0
  for other, lease in pairs(leases) do
    if other ~= name then
      leased, wanted = leased + lease.slots, wanted + lease.wants
      if lease.wants > 0 then claimants = claimants + 1 end
    end
  end
  local wants = ask.held + ask.waiting
  local left, share = limit - wanted - wants, nil
  if left >= 0 then
    share = wants + math.floor(left / (claimants + 1))
  else
    share = math.min(wants, math.max(1, math.floor(limit / claimants), limit - wanted))
  end
  return math.max(0, math.min(share, limit - leased))
end

local function renew(leases, name, slots)
  local wants = ask.held + ask.waiting
  if wants == 0 then
    leases[name] = nil
  else
    leases[name] = {slots = math.max(slots or 0, ask.held), held = ask.held, wants = wants,
                    expires = now + LEASE_S}
  end
end

-- The bucket of a rate, filled up to now. Returns nil without a rate. What calls used beyond what was
-- expected of them is made up for within a minute: limits are per minute.
local function bucket_of(owner, kind, rate, size, correction)
  if not rate or rate >= FREE_RATE * size then return nil end
  local bucket = owner[kind] or {level = size, at = now}
  owner[kind] = bucket
  local most = size + rate * BURST_S
  bucket.level = math.min(most, bucket.level + math.max(0, now - bucket.at) * rate) - correction
  bucket.level = math.max(bucket.level, -60 * rate)
  bucket.at = now
  return {state = bucket, rate = rate, size = size}
end

local model = read(KEYS[1], nil)
if not model then
  model = {since = now, epoch = 0, epoch_at = 0, answers = 0, refusals = 0, recent = 0,
           counted_at = now, window = SLOW_START, pause_until = 0, overloaded_at = 0, failures = 0,
           leases = {}}
end
local provider = ask.shares and read(KEYS[2], {leases = {}}) or nil
drop_expired(model.leases)
if provider then drop_expired(provider.leases) end

-- 1. What the headers said. A provider's own rate, slowed down while little of it is left: others
-- may be using the key, and an empty bucket turns every early call away.
local function heed(kind, per_minute, remaining)
  if not per_minute then return end
  local rate = per_minute / 60
  local left = remaining and math.min(1, remaining / math.max(1, rate / 2)) or 1
  model[kind] = {rate = rate, pace = 0.9 + 0.1 * left}
  if kind == 'hinted_requests' then model.window = nil end
end
local hint = told.hint or {}
heed('hinted_requests', hint.requests_per_minute, hint.requests_remaining)
heed('hinted_tokens', hint.tokens_per_minute, hint.tokens_remaining)

local function lowest(first, second)
  if first and second then return math.min(first, second) end
  return first or second
end

local function hinted(kind)
  return model[kind] and model[kind].rate * model[kind].pace
end

local listed = ask.requests_per_minute and ask.requests_per_minute / 60
local given = lowest(listed, hinted('hinted_requests'))
if listed or ask.max_in_flight then model.window = nil end

-- 2. Rate: additive increase on success, multiplicative decrease on refusal. All refusals of calls
-- that were let through before a decrease belong to it: they carry an older epoch. What the provider
-- answered in the last seconds bounds the guess of its limit from below: a rate far too high comes
-- down in one step, and one that is nearly right is hardly touched.
local function goodput()
  local age = math.max(1, now - model.since)
  return model.recent / (RECENT_S * (1 - math.exp(-age / RECENT_S)))
end

local function enter_epoch()
  model.epoch, model.epoch_at, model.grown_at = model.epoch + 1, now, now
  model.answers, model.refusals = 0, 0
end

-- Refusals without an answer between them say that nothing is let in now. They say nothing about the
-- rate of the time after: it is remembered, and halved if it brings no answer the next time either.
local function back_off()
  if model.rate <= IDLE_RATE then return end
  if not model.remembered then
    local part = model.resumed and 0.5 or 1
    model.remembered = {rate = math.max(IDLE_RATE, model.rate * part), top = model.top}
  end
  model.resumed = nil
  model.rate = math.max(IDLE_RATE, model.rate / 2)
  enter_epoch()
end

local function resume()
  model.rate, model.top = model.remembered.rate, model.remembered.top
  model.remembered, model.resumed = nil, true
  enter_epoch()
end

local function decrease()
  local rate = lowest(model.rate, given)
  if not rate or rate >= FREE_RATE then
    -- What was let in so far holds the provider's burst; half of it is a safe guess. Answers may
    -- take much longer than refusals: calls in flight were let in too.
    local in_flight = ask.held
    for other, lease in pairs(model.leases) do
      if other ~= ask.worker then in_flight = in_flight + lease.held end
    end
    -- Without either, nothing is known of the rate.
    local age = math.max(1, math.min(RECENT_S, now - model.since))
    model.rate, model.top = math.max(goodput(), (model.recent + in_flight) / age) / 2, nil
    if model.answers == 0 then model.rate = math.max(IDLE_RATE, model.rate) end
  else
    -- While the rate climbs, slow answers lag behind it and say little. Far above the limit, the
    -- part of the calls that was let in tells how far.
    local climbing = not model.top or now - model.since < RECENT_S
    local right, least = math.min(rate, goodput() * 1.15), climbing and 0.9 or 0.7
    if model.refusals > FEW then
      right = math.min(right, rate * model.answers / (model.answers + model.refusals))
      least = 0.5
    end
    rate = math.max(rate * least, right)
    model.rate, model.top = rate * 0.9, given or rate
  end
  model.rate = math.max(LOWEST_RATE, model.rate)
  model.window = nil
  enter_epoch()
end

local function increase()
  local top, step = model.top, 0.03
  if not top then
    top, step = model.rate, 0.1                     -- not refused since the first guess
  elseif model.rate >= 0.97 * top then
    step = 0.002 * math.max(1, (now - model.epoch_at) / 60) ^ 2
  end
  model.rate = model.rate + top * step * math.min(5, now - model.grown_at)
  if model.top then model.top = math.max(model.top, model.rate) end
  model.grown_at = now
  if model.rate >= FREE_RATE or (given and model.rate >= given) then model.rate = nil end
end

-- A pause brings no answers and says nothing of the rate: its time does not count.
local counted_at = math.max(model.counted_at, math.min(now, model.pause_until))
model.recent = model.recent * math.exp((counted_at - now) / RECENT_S) + told.answers
model.counted_at = now
if told.epoch == model.epoch then
  model.answers = model.answers + told.epoch_answers
  model.refusals = model.refusals + told.refused
end
if told.epoch == model.epoch and told.refused > 0 then
  if now - model.epoch_at > DEBOUNCE_S then
    if model.rate and model.answers == 0 then back_off() else decrease() end
  end
  model.requests = model.requests or {at = now}
  model.requests.level = math.min(0, model.requests.level or 0)
elseif model.remembered and told.epoch == model.epoch and told.epoch_answers > 0 then
  resume()
elseif model.rate and told.answers > 0 and ask.waiting > 0 then
  if told.epoch == model.epoch and told.epoch_answers > 0 then model.resumed = nil end
  increase()
end
if model.window then
  model.window = model.window + told.answers
  if model.window >= FREE_RATE then model.window = nil end
end

-- 3. Pauses. A busy provider is left alone for a moment, at the speed it had before.
local pause_s = told.pause_s or 0
if told.overloaded > 0 and now - model.overloaded_at > OVERLOAD_EVERY_S then
  model.overloaded_at = now
  pause_s = math.max(pause_s, OVERLOAD_PAUSE_S)
end
if pause_s > 0 and pause_s <= LONGEST_PAUSE_S then
  model.pause_until = math.max(model.pause_until, now + pause_s)
end

-- 4. Breaker: closed by any sign of life, opened by failures in a row or by a provider that asks for
-- a long wait, with a probe now and then. During such a wait late answers say nothing.
local told_to_wait = model.parked and model.parked.asked and now < model.parked.at
model.reason = told.reason or model.reason
model.unanswered = told.unanswered + (told.answers > 0 and 0 or model.unanswered or 0)
local unanswered = model.unanswered >= UNANSWERED
if told.alive and not told_to_wait and not unanswered then
  if model.parked and not (given or model.rate or ask.max_in_flight) then
    model.window = SLOW_START
  end
  model.failures, model.parked = told.failures, nil
elseif not model.parked then
  model.failures = model.failures + told.failures
end
local parked = model.parked
if not parked and (model.failures >= FAILURES or unanswered) then
  parked = {wait = PROBE_S, at = now + PROBE_S, failed = 0}
  model.parked = parked
elseif parked and told.probe_failed then
  parked.failed, parked.prober = parked.failed + 1, nil
  parked.wait = math.min(parked.wait * 2, LONGEST_PROBE_S)
  parked.at = now + parked.wait
end
if pause_s > LONGEST_PAUSE_S then
  parked = {wait = PROBE_S, at = now + math.min(pause_s, LONGEST_PARK_S), failed = SHOWN_PROBES,
            asked = true}
  model.parked = parked
end
-- A worker without a place for its probe leaves it to the next one to ask.
local missed = parked and parked.prober == ask.worker and not ask.probing
if missed then parked.prober = nil end

-- 5. Money: none is let through once what was spent and what is in flight reach the cap.
local name = ask.worker .. '|' .. ask.model
local permits = ask.waiting
local runs, purses = {}, {}

local function room_in(purse, run)
  local all, same = run.held, run.held
  for other, lease in pairs(purse.leases) do
    if other ~= name then
      all = all + lease.cost
      if lease.model == ask.model then same = same + lease.cost end
    end
  end
  local room, over = run.waiting, false
  local function bound(cap, spent, in_flight)
    if not cap then return end
    over = over or spent >= cap
    room = math.min(room, math.ceil((cap - spent - in_flight) / math.max(1, run.estimate)))
  end
  bound(run.cap, purse.total, all)
  bound(run.model_cap, purse.models[ask.model], same)
  return math.max(0, room), over
end

for index, run in ipairs(ask.runs) do
  local purse = read(KEYS[2 + index], run.stored)
  local answer = {run = run.run, permits = 0, over = false, unknown = not purse}
  if purse then
    purse.leases = purse.leases or {}
    drop_expired(purse.leases)
    purse.total = purse.total + run.spent
    purse.models[ask.model] = (purse.models[ask.model] or 0) + run.spent
    answer.permits, answer.over = room_in(purse, run)
    purses[index] = purse
  end
  runs[index] = answer
  permits = permits - (run.waiting - answer.permits)
end

-- 6. Concurrency, then rates.
local shares = ask.shares or {}
local slots = slots_of(model.leases, ask.worker, lowest(ask.max_in_flight, model.window))
if provider then slots = lowest(slots, slots_of(provider.leases, name, shares.max_in_flight)) end
if slots then permits = math.max(0, math.min(permits, slots - ask.held)) end

local buckets = {}
local function count(owner, kind, rate, size, correction)
  local bucket = owner and bucket_of(owner, kind, rate, size, correction)
  if bucket then buckets[#buckets + 1] = bucket end
end
local function per_second(per_minute)
  return per_minute and per_minute / 60
end
local tokens = math.max(1, ask.tokens)
count(model, 'requests', lowest(given, model.rate), 1, 0)
count(model, 'tokens', lowest(per_second(ask.tokens_per_minute), hinted('hinted_tokens')), tokens,
      told.tokens)
count(provider, 'requests', per_second(shares.requests_per_minute), 1, 0)
count(provider, 'tokens', per_second(shares.tokens_per_minute), tokens, told.tokens)

-- 7. The grant, and when to ask again.
local wait = model.window and 0.05 or 0.25
if permits == ask.waiting then wait = RENEW_S end
local limited, probe, rate = false, false, nil
if parked then
  local prober = parked.prober and model.leases[parked.prober]
  probe = permits > 0 and now >= parked.at and not prober and not missed
  limited, permits = true, probe and 1 or 0
  if probe then parked.prober = ask.worker end
  wait = math.min(RENEW_S, parked.at - now)
  slots = ask.held + permits
elseif model.pause_until > now then
  limited, permits = true, 0
  wait = math.min(RENEW_S, model.pause_until - now)
else
  local asked = permits
  for _, bucket in ipairs(buckets) do
    permits = math.min(permits, math.max(0, math.floor(bucket.state.level / bucket.size + 1e-6)))
  end
  limited = permits < asked
  if limited then wait = 0 end
  for _, bucket in ipairs(buckets) do
    bucket.state.level = bucket.state.level - permits * bucket.size
    local need = math.max(bucket.size, bucket.rate * BATCH_S)
    if limited then wait = math.max(wait, (need - bucket.state.level) / bucket.rate) end
  end
end
for _, bucket in ipairs(buckets) do
  rate = lowest(rate, bucket.rate / bucket.size)
end

local metered = limited or #buckets > 0
for index, purse in pairs(purses) do
  local run = ask.runs[index]
  runs[index].permits = math.min(permits, runs[index].permits)
  local cost = run.held + runs[index].permits * run.estimate
  purse.leases[name] = cost > 0 and {cost = cost, model = ask.model, expires = now + LEASE_S} or nil
  write(KEYS[2 + index], purse)
end
renew(model.leases, ask.worker, slots)
if provider then
  renew(provider.leases, name, slots)
  write(KEYS[2], provider)
end
write(KEYS[1], model)

local fleet = 0
for _ in pairs(model.leases) do fleet = fleet + 1 end
return cjson.encode({
  epoch = model.epoch, slots = slots, permits = permits, metered = metered, limited = limited,
  wait_s = math.min(RENEW_S, math.max(SHORTEST_WAIT_S, wait)), probe = probe,
  parked = parked ~= nil, failed_probes = parked and parked.failed or 0,
  reason = parked and model.reason,
  rate = rate and rate / math.max(1, fleet), runs = runs,
})
