-- Times are milliseconds since the Unix epoch. A claim is open while `remembered` is null.
CREATE TABLE IF NOT EXISTS everhook_keys (
    key BLOB PRIMARY KEY NOT NULL,
    account BLOB NOT NULL,
    rule INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    token INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    checkpoint BLOB,
    remembered BLOB,
    -- As counted in the account.
    bytes INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS everhook_keys_over ON everhook_keys (expires_at);
CREATE INDEX IF NOT EXISTS everhook_keys_of ON everhook_keys (account, expires_at);
CREATE INDEX IF NOT EXISTS everhook_keys_open ON everhook_keys (lease_until)
    WHERE remembered IS NULL;
CREATE TABLE IF NOT EXISTS everhook_key_accounts (
    account BLOB PRIMARY KEY NOT NULL,
    keys INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;
