-- Leases: which part of the allowed concurrency each worker holds.
--
-- State, in the document of a model or of a provider, under `leases`, by worker name (for a
-- provider `worker|model`):
--   slots    calls in flight that the worker may have
--   held     calls in flight that it has
--   wants    calls in flight and calls that wait
--   expires  seconds; the lease ends then unless the worker asks again
-- Policy: `[leases]`.

local leases = {}

-- Return the slots that a worker may have of `limit` calls in flight, nil without a limit.
--
-- While there are enough, each worker gets what it wants and a part of the rest, so that it need
-- not ask for every call; otherwise equal parts, one more for the first to ask, and what others
-- leave of theirs.
function leases.share(held_leases, name, limit, wants)
  if not limit then return nil end
  local claimants, leased, wanted = 1, 0, 0
  for other, lease in pairs(held_leases) do
    if other ~= name then
      leased, wanted = leased + lease.slots, wanted + lease.wants
      if lease.wants > 0 then claimants = claimants + 1 end
    end
  end
  local left, share = limit - wanted - wants, nil
  if left >= 0 then
    share = wants + math.floor(left / (claimants + 1))
  else
    local part = math.floor(limit / claimants)
    local rest = limit
    for other, lease in pairs(held_leases) do
      if other ~= name then rest = rest - math.max(lease.slots, math.min(part, lease.wants)) end
    end
    part = math.min(math.max(part, rest), math.ceil(limit / claimants))
    share = math.min(wants, math.max(1, part, limit - wanted))
  end
  return math.max(0, math.min(share, limit - leased))
end

-- Renew the lease of a worker; one that has no call and wants none gives it back.
function leases.renew(held_leases, name, slots, held, wants, now, policy)
  if wants == 0 then
    held_leases[name] = nil
  else
    held_leases[name] = {slots = math.max(slots or 0, held), held = held, wants = wants,
                         expires = now + policy.lease_s}
  end
end
