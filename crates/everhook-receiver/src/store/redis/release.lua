-- KEYS: record, lease. ARGV: token.
local record = redis.call('GET', KEYS[1])
local received, token, processed = string.match(record or '', '^(%S+) (%S+) ?(%S*)$')
local lease = redis.call('GET', KEYS[2])
if (token or lease) ~= ARGV[1] or (processed or '') ~= '' then
    return 0
end
if received then
    redis.call('SET', KEYS[1], received .. ' -', 'XX', 'KEEPTTL')
end
redis.call('DEL', KEYS[2])
return 1
