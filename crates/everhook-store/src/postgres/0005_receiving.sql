-- Receiving: sources, receipts, and the headers that go on with received events.

-- Of a deleted one, the name is left for its receipts, and no secret.
CREATE TABLE sources (
    tenant     text NOT NULL,
    id         uuid NOT NULL,
    name       text NOT NULL,
    version    bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    deleted_at bigint,
    settings   text NOT NULL,
    secrets    text NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX sources_by_name ON sources (tenant, name) WHERE deleted_at IS NULL;

-- id is that of its event, which was accepted when the receipt first came.
CREATE TABLE receipts (
    tenant       text NOT NULL,
    id           uuid NOT NULL,
    source       uuid NOT NULL,
    type         text NOT NULL,
    key          text NOT NULL,
    content      bytea NOT NULL,
    -- The row of received_headers.
    headers      uuid NOT NULL,
    last_seen_at bigint NOT NULL,
    duplicates   bigint NOT NULL,
    body_changed boolean NOT NULL,
    status       smallint NOT NULL,
    -- Why, with the receipt that it names, or its text.
    reason       smallint,
    reason_of    uuid,
    reason_text  text,
    released_at  bigint,
    PRIMARY KEY (tenant, id)
);

-- What waits for a decision, and what is dead: seldom any.
CREATE INDEX receipts_held ON receipts (tenant, status, id) WHERE status > 0;

-- Once a request, however many events it has; id is the first one's.
CREATE TABLE received_headers (
    tenant  text NOT NULL,
    id      uuid NOT NULL,
    headers text NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- One row a key; the row decides, its expiry is part of the question.
CREATE TABLE receipt_keys (
    tenant     text NOT NULL,
    key        uuid NOT NULL,
    receipt    uuid NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX receipt_keys_expiring ON receipt_keys (expires_at);
