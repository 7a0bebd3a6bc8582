-- Claims of idempotency keys that are made first and finished later, and idempotency records that
-- can be listed.

CREATE TABLE claims (
    tenant       text NOT NULL,
    key          uuid NOT NULL,
    id           uuid NOT NULL,
    -- What it is counted with, and what is shown of it.
    account      uuid NOT NULL,
    origin       text NOT NULL,
    account_name text NOT NULL,
    subject      text NOT NULL,
    rule         smallint NOT NULL,
    fingerprint  bytea NOT NULL,
    token        bigint NOT NULL,
    lease_until  bigint NOT NULL,
    expires_at   bigint NOT NULL,
    -- Of what is remembered; NULL while the claim is open.
    status       integer,
    replayable   boolean,
    checkpoint   bytea,
    remembered   bytea,
    PRIMARY KEY (tenant, key)
);

CREATE UNIQUE INDEX claims_by_id ON claims (tenant, id);
CREATE INDEX claims_expiring ON claims (expires_at);
-- What runs, and what is unknown: seldom many.
CREATE INDEX claims_open ON claims (tenant, id) WHERE status IS NULL;

-- What accounts have of idempotency keys, claims and records of our own API alike, until their rows
-- are cleared away.
CREATE TABLE idempotency_accounts (
    tenant  text NOT NULL,
    account uuid NOT NULL,
    keys    bigint NOT NULL,
    bytes   bigint NOT NULL,
    PRIMARY KEY (tenant, account)
);

-- NULL in records written before: they expire within a day, and are neither shown nor counted.
ALTER TABLE idempotency_records ADD COLUMN id uuid;
ALTER TABLE idempotency_records ADD COLUMN account uuid;
ALTER TABLE idempotency_records ADD COLUMN account_name text;
ALTER TABLE idempotency_records ADD COLUMN subject text;
ALTER TABLE idempotency_records ADD COLUMN bytes bigint;
DROP INDEX idempotency_records_by_tenant;
CREATE INDEX idempotency_records_by_id ON idempotency_records (tenant, id);
