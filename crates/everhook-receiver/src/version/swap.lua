-- KEYS: the object.
-- ARGV: version seen, content seen ('' for absent), version, content, value, milliseconds after
-- which it is forgotten ('' for never: it is not deleted).
-- Returns 1 when it is done, 0 when the object is another than was seen.
local held = redis.call('HMGET', KEYS[1], 'version', 'content')
if (held[1] or '') ~= ARGV[1] or (held[2] or '') ~= ARGV[2] then
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'version', ARGV[3], 'content', ARGV[4])
if ARGV[6] == '' then
    redis.call('HSET', KEYS[1], 'value', ARGV[5])
else
    redis.call('PEXPIRE', KEYS[1], ARGV[6])
end
return 1
