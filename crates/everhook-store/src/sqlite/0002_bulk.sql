-- Work on many deliveries at once: bulk replays, acknowledging in bulk, catch-up.

CREATE TABLE bulks (
    seq             INTEGER PRIMARY KEY,
    tenant          INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    filter          TEXT NOT NULL,
    rate_per_second INTEGER NOT NULL,
    status          TEXT NOT NULL,
    matched         INTEGER,
    tally           TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    ended_at        INTEGER,
    -- Up to this delivery (of a catch-up: event) all is done; beyond the last there is none.
    cursor          INTEGER NOT NULL,
    last            INTEGER NOT NULL,
    paced_since     INTEGER NOT NULL,
    paced_done      INTEGER NOT NULL,
    next_at         INTEGER NOT NULL,
    -- Whether rows of bulk_members are left.
    has_members     INTEGER NOT NULL
);

CREATE INDEX bulks_by_tenant ON bulks (tenant, seq);
CREATE INDEX bulks_running ON bulks (next_at) WHERE status = 'running';
CREATE INDEX bulks_to_clear ON bulks (seq) WHERE status <> 'running' AND has_members = 1;

-- Delivery ids that rise from row to row; within a row each is written as its distance from the one
-- before. last is the last one in keys.
CREATE TABLE bulk_members (
    seq  INTEGER PRIMARY KEY,
    bulk INTEGER NOT NULL,
    last INTEGER NOT NULL,
    keys BLOB NOT NULL
);

CREATE INDEX bulk_members_by_last ON bulk_members (bulk, last);
