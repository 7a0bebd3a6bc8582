-- Events that wait to be worked on, and the keys of those that were. Times are milliseconds since
-- the Unix epoch.
CREATE TABLE IF NOT EXISTS webhook_inbox (
    -- <source>:<the provider's id>
    id TEXT PRIMARY KEY NOT NULL,
    source TEXT NOT NULL,
    event_type TEXT NOT NULL,
    headers TEXT NOT NULL,
    body BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    -- When anybody may take it, and so the end of the lease of who has it; null when nobody may.
    due_at INTEGER,
    -- Of the last attempt.
    lease_token INTEGER,
    processed_at INTEGER,
    dead_at INTEGER,
    -- Why the last attempt failed.
    reason TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS webhook_inbox_due ON webhook_inbox (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhook_inbox_dead ON webhook_inbox (dead_at)
    WHERE dead_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhook_inbox_over ON webhook_inbox (received_at)
    WHERE processed_at IS NOT NULL;
