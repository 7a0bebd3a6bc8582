-- KEYS: record. Returns its fields, then the time in ms.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local r = redis.call('HMGET', KEYS[1], 'rule', 'fingerprint', 'token', 'lease_until', 'expires_at',
    'checkpoint', 'remembered', 'account')
r[9] = now
return r
