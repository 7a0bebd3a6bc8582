-- KEYS: record, lease. ARGV: token.
local record = redis.call('GET', KEYS[1])
if not record then
    -- Forgotten while its handler ran. It was the token's if nobody else has come since.
    if redis.call('GET', KEYS[2]) ~= ARGV[1] then
        return 0
    end
    return redis.call('DEL', KEYS[2])
end
if string.match(record, '^%S+ (%S+)') ~= ARGV[1] then
    return 0
end
if not string.match(record, '^%S+ %S+ %S+$') then
    local t = redis.call('TIME')
    local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
    redis.call('SET', KEYS[1], record .. ' ' .. now, 'XX', 'KEEPTTL')
end
redis.call('DEL', KEYS[2])
return 1
