-- KEYS: record, live keys of the account, open claims, all ends.
-- ARGV: key, account, token.
-- Returns whether an open claim with this token was removed. It has no bytes yet.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[3]
    or redis.call('HEXISTS', KEYS[1], 'remembered') == 1 then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[2] .. ARGV[1])
return 1
