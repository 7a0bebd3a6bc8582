-- Events that wait to be worked on, and the keys of those that were.
CREATE TABLE IF NOT EXISTS webhook_inbox (
    -- <source>:<the provider's id>
    id text PRIMARY KEY,
    source text NOT NULL,
    event_type text NOT NULL,
    headers text NOT NULL,
    body bytea NOT NULL,
    received_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    -- When anybody may take it, and so the end of the lease of who has it; null when nobody may.
    due_at timestamptz,
    -- Of the last attempt.
    lease_token bigint,
    processed_at timestamptz,
    dead_at timestamptz,
    -- Why the last attempt failed.
    reason text
);
CREATE INDEX IF NOT EXISTS webhook_inbox_due ON webhook_inbox (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhook_inbox_dead ON webhook_inbox (dead_at)
    WHERE dead_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhook_inbox_over ON webhook_inbox (received_at)
    WHERE processed_at IS NOT NULL;
