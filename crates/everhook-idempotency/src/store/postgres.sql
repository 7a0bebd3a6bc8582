-- Times are milliseconds since the Unix epoch. A claim is open while `remembered` is null.
CREATE TABLE IF NOT EXISTS everhook_keys (
    key BYTEA PRIMARY KEY,
    account BYTEA NOT NULL,
    rule SMALLINT NOT NULL,
    fingerprint BYTEA NOT NULL,
    token BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    checkpoint BYTEA,
    remembered BYTEA,
    -- As counted in the account.
    bytes BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS everhook_keys_over ON everhook_keys (expires_at);
CREATE INDEX IF NOT EXISTS everhook_keys_of ON everhook_keys (account, expires_at);
CREATE INDEX IF NOT EXISTS everhook_keys_open ON everhook_keys (lease_until)
    WHERE remembered IS NULL;
CREATE TABLE IF NOT EXISTS everhook_key_accounts (
    account BYTEA PRIMARY KEY,
    keys BIGINT NOT NULL,
    bytes BIGINT NOT NULL
);
