-- KEYS: record, lease. ARGV: token, milliseconds of the lease, milliseconds of the record.
-- Returns 0 when somebody is at work on it, 1 when it is claimed, 2 when it was processed.
-- A record is when its event was received, the token of the last claim or '-', and when it was
-- processed: two or three words. The lease is there while it lasts.
local record = redis.call('GET', KEYS[1])
if record and string.match(record, '^%S+ %S+ %S+$') then
    return 2
end
if redis.call('EXISTS', KEYS[2]) == 1 then
    return 0
end
if record then
    local received = string.match(record, '^%S+')
    redis.call('SET', KEYS[1], received .. ' ' .. ARGV[1], 'XX', 'KEEPTTL')
else
    local t = redis.call('TIME')
    local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
    redis.call('SET', KEYS[1], now .. ' ' .. ARGV[1], 'NX', 'PX', ARGV[3])
end
redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2])
return 1
