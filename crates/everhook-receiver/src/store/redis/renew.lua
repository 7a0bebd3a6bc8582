-- KEYS: record, lease. ARGV: token, milliseconds.
local record = redis.call('GET', KEYS[1])
local lease = redis.call('GET', KEYS[2])
if lease and lease ~= ARGV[1] then
    return 0
end
if not lease and not (record and string.match(record, '^%S+ (%S+)') == ARGV[1]) then
    return 0
end
if not (record and string.match(record, '^%S+ %S+ %S+$')) then
    redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
end
return 1
