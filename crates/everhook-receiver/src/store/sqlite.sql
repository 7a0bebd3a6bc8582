-- Events that were received, one row each; times are milliseconds since the Unix epoch.
CREATE TABLE IF NOT EXISTS webhook_events (
    -- <source>:<the provider's id>
    id TEXT PRIMARY KEY NOT NULL,
    source TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    processed_at INTEGER,
    -- Of the last claim; null when it was given back.
    lease_token INTEGER,
    -- Null when nobody is at work.
    lease_until INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS webhook_events_received ON webhook_events (received_at);
