-- KEYS: open claims. ARGV: limit, prefix.
-- Returns key, end of the lease, key, end of the lease, …
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local lapsed, at = {}, 0
while #lapsed < 2 * ARGV[1] do
    local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', at, 100)
    if #found == 0 then
        break
    end
    at = at + 100
    for i = 1, #found, 2 do
        local expires_at = redis.call('HGET', ARGV[2] .. 'key:' .. found[i], 'expires_at')
        -- One that is over waits to be cleared away; it is absent already.
        if expires_at and tonumber(expires_at) > now and #lapsed < 2 * ARGV[1] then
            lapsed[#lapsed + 1] = found[i]
            lapsed[#lapsed + 1] = found[i + 1]
        end
    end
end
return lapsed
