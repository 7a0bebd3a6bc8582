-- KEYS: record, live keys of the account, bytes of the account, open claims, all ends.
-- ARGV: key, account, token, remembered, ttl.
-- Returns 0 when the claim has another token, 1 when it is finished now, 2 when it was before.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[3] then
    return 0
end
if redis.call('HEXISTS', KEYS[1], 'remembered') == 1 then
    return 2
end
local expires_at = now + ARGV[5]
redis.call('HDEL', KEYS[1], 'checkpoint')
redis.call('HSET', KEYS[1], 'remembered', ARGV[4],
    'expires_at', string.format('%.0f', expires_at))
redis.call('HSET', KEYS[3], ARGV[1], #ARGV[4])
redis.call('HINCRBY', KEYS[3], 'total', #ARGV[4])
redis.call('ZADD', KEYS[2], expires_at, ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZADD', KEYS[5], expires_at, ARGV[2] .. ARGV[1])
return 1
