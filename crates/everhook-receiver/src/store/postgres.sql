-- Events that were received, one row each. A claim holds one between the two facts.
CREATE TABLE IF NOT EXISTS webhook_events (
    -- <source>:<the provider's id>
    id text PRIMARY KEY,
    source text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz,
    -- Of the last claim; null when it was given back.
    lease_token bigint,
    -- Null when nobody is at work.
    lease_until timestamptz
);
CREATE INDEX IF NOT EXISTS webhook_events_received ON webhook_events (received_at);
