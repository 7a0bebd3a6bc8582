-- KEYS: all ends, open claims. ARGV: limit, prefix. The other keys have the same hash tag.
-- Removes records that are over; returns how many.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local over = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, member in ipairs(over) do
    local account, key = string.sub(member, 1, 32), string.sub(member, 33)
    local bytes = ARGV[2] .. 'bytes:' .. account
    redis.call('HINCRBY', bytes, 'total', 0 - tonumber(redis.call('HGET', bytes, key) or '0'))
    redis.call('HDEL', bytes, key)
    redis.call('ZREM', ARGV[2] .. 'live:' .. account, key)
    redis.call('DEL', ARGV[2] .. 'key:' .. key)
    redis.call('ZREM', KEYS[2], key)
    redis.call('ZREM', KEYS[1], member)
    if redis.call('EXISTS', ARGV[2] .. 'live:' .. account) == 0 then
        redis.call('DEL', bytes)
    end
end
return #over
