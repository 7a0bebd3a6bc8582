-- KEYS: record, live keys of the account, bytes of the account, open claims, all ends.
-- ARGV: key, account, token.
-- Returns whether an open claim with this token was removed. It has no bytes yet.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[3]
    or redis.call('HEXISTS', KEYS[1], 'remembered') == 1 then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[2] .. ARGV[1])
if redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[3])
end
return 1
