-- KEYS: record, live keys of the account, bytes of the account, open claims, all ends.
-- ARGV: key, account, token seen, end seen ('' for absent), token, rule, fingerprint, checkpoint,
-- lease, ttl, most keys, most bytes, prefix, whether there is a checkpoint.
-- Returns 0 when the key is another than was seen, 1 when it is taken, 2 when there is no room.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local stored = redis.call('HMGET', KEYS[1], 'token', 'expires_at')
if (stored[1] or '') ~= ARGV[3] or (stored[2] or '') ~= ARGV[4] then
    return 0
end
local function used()
    return tonumber(redis.call('HGET', KEYS[3], 'total') or '0')
end
local function forget(key)
    local bytes = tonumber(redis.call('HGET', KEYS[3], key) or '0')
    redis.call('HINCRBY', KEYS[3], 'total', 0 - bytes)
    redis.call('HDEL', KEYS[3], key)
    redis.call('ZREM', KEYS[2], key)
end
if ARGV[3] == '' then
    local full = redis.call('ZCOUNT', KEYS[2], '(' .. now, '+inf') >= tonumber(ARGV[11])
    while not full and used() >= tonumber(ARGV[12]) do
        local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 1000)
        if #over == 0 then
            full = true
        end
        for _, key in ipairs(over) do
            forget(key)
            redis.call('DEL', ARGV[13] .. 'key:' .. key)
            redis.call('ZREM', KEYS[4], key)
            redis.call('ZREM', KEYS[5], ARGV[2] .. key)
        end
    end
    if full then
        return 2
    end
else
    forget(ARGV[1])
    redis.call('DEL', KEYS[1])
end
local lease_until = now + ARGV[9]
local expires_at = lease_until + ARGV[10]
redis.call('HSET', KEYS[1], 'account', ARGV[2], 'token', ARGV[5], 'rule', ARGV[6],
    'fingerprint', ARGV[7], 'lease_until', string.format('%.0f', lease_until),
    'expires_at', string.format('%.0f', expires_at))
if ARGV[14] == '1' then
    redis.call('HSET', KEYS[1], 'checkpoint', ARGV[8])
end
redis.call('ZADD', KEYS[2], expires_at, ARGV[1])
redis.call('ZADD', KEYS[4], lease_until, ARGV[1])
redis.call('ZADD', KEYS[5], expires_at, ARGV[2] .. ARGV[1])
return 1
