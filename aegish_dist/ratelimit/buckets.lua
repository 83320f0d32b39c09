-- Token buckets: a rate of calls or of tokens, of which a short burst is saved up.
--
-- State, in the document of a model or of a provider, under `requests` and under `tokens`:
--   level  calls, or tokens, that may begin now; below 0 what calls used beyond what was expected
--   at     seconds; when `level` was computed
-- Policy: `[buckets]`.

local buckets = {}

-- Fill a bucket up to now.
--
-- owner: the document that holds it; kind: its name there; rate: units per second, nil without a
-- limit; size: units of one call; correction: units used beyond what was expected. They are made up
-- for within `debt_s`, since providers limit per minute. Returns what `take` needs, nil when the
-- rate limits nothing.
function buckets.fill(owner, kind, rate, size, correction, now, policy)
  if not rate or rate >= policy.unlimited_per_s * size then return nil end
  local bucket = owner[kind] or {level = size, at = now}
  owner[kind] = bucket
  local most = size + rate * policy.burst_s
  bucket.level = math.min(most, bucket.level + math.max(0, now - bucket.at) * rate) - correction
  bucket.level = math.max(bucket.level, -policy.debt_s * rate)
  bucket.at = now
  return {bucket = bucket, rate = rate, size = size}
end

-- Empty a bucket: the provider has refused a call that the bucket let begin.
function buckets.drain(owner, kind, now)
  local bucket = owner[kind] or {at = now}
  bucket.level = math.min(0, bucket.level or 0)
  owner[kind] = bucket
end

-- Take as many calls as all buckets hold, `wanted` at most.
--
-- Returns the calls, and the seconds until they hold more, nil when they held enough. At high rates
-- that is the time of a batch, so that a worker does not ask for every single call.
function buckets.take(filled, wanted, policy)
  local permits = wanted
  for _, each in ipairs(filled) do
    -- Filling adds fractions: 0.9999999 of a call is a call.
    permits = math.min(permits, math.max(0, math.floor(each.bucket.level / each.size + 1e-6)))
  end
  local wait = permits < wanted and 0 or nil
  for _, each in ipairs(filled) do
    each.bucket.level = each.bucket.level - permits * each.size
    if wait then
      local need = math.max(each.size, each.rate * policy.batch_s)
      wait = math.max(wait, (need - each.bucket.level) / each.rate)
    end
  end
  return permits, wait
end

-- Return the calls per second that all buckets let begin, nil without a bucket.
function buckets.rate(filled)
  local rate = nil
  for _, each in ipairs(filled) do rate = state.lowest(rate, each.rate / each.size) end
  return rate
end
