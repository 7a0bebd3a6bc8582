-- Receiving: sources, receipts, and the headers that go on with received events.

-- Of a deleted one, the name is left for its receipts, and no secret.
CREATE TABLE sources (
    seq        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER,
    settings   TEXT NOT NULL,
    secrets    TEXT NOT NULL
);

-- seq is that of its event, which was accepted when the receipt first came.
CREATE TABLE receipts (
    seq          INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    source       INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    type         TEXT NOT NULL,
    key          TEXT NOT NULL,
    content      BLOB NOT NULL,
    -- The row of received_headers.
    headers      INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    duplicates   INTEGER NOT NULL,
    body_changed INTEGER NOT NULL,
    status       INTEGER NOT NULL,
    -- Why, with the receipt that it names and when that came, or its text.
    reason       INTEGER,
    reason_of    INTEGER,
    reason_at    INTEGER,
    reason_text  TEXT,
    released_at  INTEGER
);

-- What waits for a decision, and what is dead: seldom any.
CREATE INDEX receipts_held ON receipts (tenant, status) WHERE status > 0;

-- Once a request, however many events it has; seq is the first one's.
CREATE TABLE received_headers (
    seq     INTEGER PRIMARY KEY,
    tenant  INTEGER NOT NULL,
    headers TEXT NOT NULL
);

-- Windows differ from source to source, so that what expires first is anywhere in the log.
CREATE INDEX key_log_expiring ON key_log (expires_at);
