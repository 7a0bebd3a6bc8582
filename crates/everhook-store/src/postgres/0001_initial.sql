-- Sending: tenants, endpoints, events, deliveries, attempts, and the keys that keep them single.
-- Ids are the 128 bits of the public ones as uuid, led by time; instants are Unix milliseconds.

CREATE TABLE meta (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);

-- Fences leases; a number is never given twice.
CREATE SEQUENCE lease_tokens;

CREATE TABLE tenants (
    id         text PRIMARY KEY,
    created_at bigint NOT NULL
);

CREATE TABLE endpoints (
    tenant     text NOT NULL,
    id         uuid NOT NULL,
    state      text NOT NULL,
    version    bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    settings   text NOT NULL,
    secrets    text NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE events (
    tenant          text NOT NULL,
    id              uuid NOT NULL,
    type            text NOT NULL,
    origin          smallint NOT NULL,
    happened_at     bigint NOT NULL,
    source_event_id text,
    deliveries      integer NOT NULL,
    body            bytea NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE deliveries (
    tenant          text NOT NULL,
    id              uuid NOT NULL,
    endpoint        uuid NOT NULL,
    type            text NOT NULL,
    created_at      bigint NOT NULL,
    status          smallint NOT NULL,
    share           smallint NOT NULL,
    cause           smallint NOT NULL,
    due_at          bigint NOT NULL,
    token           bigint,
    lease_until     bigint,
    reason          smallint,
    acknowledged_at bigint,
    round           integer NOT NULL,
    number          integer NOT NULL,
    step            integer NOT NULL,
    anchor          bigint,
    shift_ms        bigint NOT NULL,
    last_start      bigint,
    interruptions   integer NOT NULL,
    owed            integer NOT NULL,
    cancel          smallint,
    PRIMARY KEY (tenant, id)
);

-- A result names its delivery and nothing else.
CREATE UNIQUE INDEX deliveries_by_id ON deliveries (id);
CREATE INDEX deliveries_due ON deliveries (endpoint, share, due_at, id) WHERE status = 0;
CREATE INDEX deliveries_leased ON deliveries (endpoint) WHERE status = 2;
CREATE INDEX deliveries_lapsing ON deliveries (lease_until) WHERE status = 2;
CREATE INDEX deliveries_by_status ON deliveries (tenant, status, id) WHERE status <> 3;

CREATE TABLE attempts (
    delivery    uuid NOT NULL,
    number      integer NOT NULL,
    round       integer NOT NULL,
    cause       smallint NOT NULL,
    started_at  bigint NOT NULL,
    duration_ms bigint NOT NULL,
    url         text NOT NULL,
    error       text,
    response    text,
    retry_after bigint,
    resent      boolean NOT NULL,
    PRIMARY KEY (delivery, number)
);

-- Leases that ended without a result; outcome is what came in too late.
CREATE TABLE interruptions (
    delivery uuid NOT NULL,
    token    bigint NOT NULL,
    ended_at bigint NOT NULL,
    outcome  text,
    PRIMARY KEY (delivery, token)
);

-- One row a source event ID; the row decides, its expiry is part of the question.
CREATE TABLE source_event_ids (
    tenant     text NOT NULL,
    key        uuid NOT NULL,
    event      uuid NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX source_event_ids_expiring ON source_event_ids (expires_at);

CREATE TABLE idempotency_records (
    key         uuid PRIMARY KEY,
    fingerprint bytea NOT NULL,
    expires_at  bigint NOT NULL,
    status      integer NOT NULL,
    headers     text NOT NULL,
    body        bytea NOT NULL
);
CREATE INDEX idempotency_records_expiring ON idempotency_records (expires_at);

-- What waits here for a disabled or deleted endpoint is being cancelled.
CREATE TABLE sweeps (
    endpoint uuid PRIMARY KEY,
    reason   smallint NOT NULL
);
