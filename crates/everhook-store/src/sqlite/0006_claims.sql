-- Claims of idempotency keys that are made first and finished later, and idempotency records that
-- can be listed.

-- seq and created_at are drawn with those of events, for claims and for records of our own API
-- alike: created_at never falls as seq rises, and no number is given twice.
CREATE TABLE claims (
    seq          INTEGER PRIMARY KEY,
    created_at   INTEGER NOT NULL,
    tenant       INTEGER NOT NULL,
    key          BLOB NOT NULL UNIQUE,
    -- What it is counted with, and what is shown of it.
    account      BLOB NOT NULL,
    origin       TEXT NOT NULL,
    account_name TEXT NOT NULL,
    subject      TEXT NOT NULL,
    rule         INTEGER NOT NULL,
    fingerprint  BLOB NOT NULL,
    token        INTEGER NOT NULL,
    lease_until  INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    -- Of what is remembered; NULL while the claim is open.
    status       INTEGER,
    replayable   INTEGER,
    checkpoint   BLOB,
    remembered   BLOB
);

CREATE INDEX claims_expiring ON claims (expires_at);
-- What runs, and what is unknown: seldom many.
CREATE INDEX claims_open ON claims (tenant) WHERE status IS NULL;

-- The body comes last, so that a list does not read through it. There is no index but the key
-- log's: each would be written with every keyed request. NULL in records written before: they
-- expire within a day, and are not shown.
CREATE TABLE named_records (
    seq          INTEGER PRIMARY KEY,
    created_at   INTEGER,
    tenant       INTEGER,
    key          BLOB,
    account_name TEXT,
    subject      TEXT,
    fingerprint  BLOB NOT NULL,
    expires_at   INTEGER NOT NULL,
    status       INTEGER NOT NULL,
    headers      TEXT NOT NULL,
    body         BLOB NOT NULL
);
INSERT INTO named_records (seq, tenant, fingerprint, expires_at, status, headers, body)
    SELECT seq, tenant, fingerprint, expires_at, status, headers, body FROM idempotency_records;
DROP TABLE idempotency_records;
ALTER TABLE named_records RENAME TO idempotency_records;

-- What an idempotency key is counted with, and the bytes of its answer: here, so that counting at
-- start reads no answers. NULL in other keys, and in those written before.
ALTER TABLE key_log ADD COLUMN account BLOB;
ALTER TABLE key_log ADD COLUMN bytes INTEGER;
