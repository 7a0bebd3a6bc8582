-- KEYS: record, live keys of the account, open claims, all ends.
-- ARGV: key, account, token, lease, ttl, checkpoint, whether there is one.
-- Returns whether the claim still has this token.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[3] then
    return 0
end
if redis.call('HEXISTS', KEYS[1], 'remembered') == 1 then
    return 1
end
local lease_until = now + ARGV[4]
local expires_at = lease_until + ARGV[5]
redis.call('HSET', KEYS[1], 'lease_until', string.format('%.0f', lease_until),
    'expires_at', string.format('%.0f', expires_at))
if ARGV[7] == '1' then
    redis.call('HSET', KEYS[1], 'checkpoint', ARGV[6])
end
redis.call('ZADD', KEYS[2], expires_at, ARGV[1])
redis.call('ZADD', KEYS[3], lease_until, ARGV[1])
redis.call('ZADD', KEYS[4], expires_at, ARGV[2] .. ARGV[1])
return 1
