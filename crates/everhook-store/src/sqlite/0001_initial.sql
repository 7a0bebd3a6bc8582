-- Sending: tenants, endpoints, events, deliveries, attempts, and the keys that keep them single.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tenants (
    no         INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
);

CREATE TABLE endpoints (
    seq        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    state      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    settings   TEXT NOT NULL,
    secrets    TEXT NOT NULL
);

-- seq is the order of commits and part of the public id; created_at never falls as seq rises.
CREATE TABLE events (
    seq             INTEGER PRIMARY KEY,
    tenant          INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    type            TEXT NOT NULL,
    origin          INTEGER NOT NULL,
    happened_at     INTEGER NOT NULL,
    source_event_id TEXT,
    deliveries      INTEGER NOT NULL,
    body            BLOB NOT NULL
);

-- id is the event's seq << 16 | ordinal. created_at is NULL where it is the event's.
CREATE TABLE deliveries (
    id              INTEGER PRIMARY KEY,
    tenant          INTEGER NOT NULL,
    endpoint        INTEGER NOT NULL,
    type            TEXT NOT NULL,
    event_at        INTEGER NOT NULL,
    created_at      INTEGER,
    status          INTEGER NOT NULL,
    share           INTEGER NOT NULL,
    cause           INTEGER NOT NULL,
    due_at          INTEGER NOT NULL,
    token           INTEGER,
    reason          INTEGER,
    acknowledged_at INTEGER,
    round           INTEGER NOT NULL,
    number          INTEGER NOT NULL,
    step            INTEGER NOT NULL,
    anchor          INTEGER,
    shift_ms        INTEGER NOT NULL,
    last_start      INTEGER,
    interruptions   INTEGER NOT NULL,
    owed            INTEGER NOT NULL,
    cancel          INTEGER
);

-- A delivery that succeeds at its first attempt never enters any of these.
CREATE INDEX deliveries_due ON deliveries (endpoint, share, due_at) WHERE status = 0;
CREATE INDEX deliveries_due_by_tenant ON deliveries (tenant) WHERE status = 0;
CREATE INDEX deliveries_leased ON deliveries (endpoint) WHERE status = 2;
CREATE INDEX deliveries_given_up ON deliveries (tenant, status) WHERE status >= 4;

CREATE TABLE attempts (
    delivery     INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    round        INTEGER NOT NULL,
    cause        INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    duration_ms  INTEGER NOT NULL,
    url          TEXT NOT NULL,
    error_class  TEXT,
    error_detail TEXT,
    response     TEXT,
    retry_after  INTEGER,
    resent       INTEGER NOT NULL,
    PRIMARY KEY (delivery, number)
) WITHOUT ROWID;

-- Leases that ended without a result; outcome is what came in too late.
CREATE TABLE interruptions (
    delivery INTEGER NOT NULL,
    token    INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    outcome  TEXT,
    PRIMARY KEY (delivery, token)
) WITHOUT ROWID;

-- Append-only: a unique index on random keys would cost more than all the rest. The writer holds
-- an exact map of it.
CREATE TABLE key_log (
    seq        INTEGER PRIMARY KEY,
    key        BLOB NOT NULL,
    ref        INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);

CREATE TABLE idempotency_records (
    seq         INTEGER PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    expires_at  INTEGER NOT NULL,
    status      INTEGER NOT NULL,
    headers     TEXT NOT NULL,
    body        BLOB NOT NULL
);

-- What waits here for a disabled or deleted endpoint is being cancelled.
CREATE TABLE sweeps (
    endpoint INTEGER PRIMARY KEY,
    reason   INTEGER NOT NULL
);
