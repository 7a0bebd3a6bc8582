-- Work on many deliveries at once: bulk replays, acknowledging in bulk, catch-up.

CREATE TABLE bulks (
    tenant          text NOT NULL,
    id              uuid NOT NULL,
    kind            text NOT NULL,
    filter          text NOT NULL,
    rate_per_second integer NOT NULL,
    status          text NOT NULL,
    matched         bigint,
    tally           text NOT NULL,
    created_at      bigint NOT NULL,
    ended_at        bigint,
    -- Up to this delivery (of a catch-up: event) all is done; beyond the last there is none.
    cursor          uuid NOT NULL,
    last            uuid NOT NULL,
    paced_since     bigint NOT NULL,
    paced_done      bigint NOT NULL,
    next_at         bigint NOT NULL,
    -- Whether rows of bulk_members are left.
    has_members     boolean NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX bulks_running ON bulks (next_at) WHERE status = 'running';
CREATE INDEX bulks_to_clear ON bulks (tenant, id) WHERE status <> 'running' AND has_members;

-- Delivery ids that rise from row to row; last is the last one in ids.
CREATE TABLE bulk_members (
    tenant text NOT NULL,
    bulk   uuid NOT NULL,
    last   uuid NOT NULL,
    ids    uuid[] NOT NULL,
    PRIMARY KEY (tenant, bulk, last)
);
