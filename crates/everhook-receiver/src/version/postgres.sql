-- The state of each object that was applied last. Times are milliseconds since the Unix epoch.
CREATE TABLE IF NOT EXISTS everhook_versions (
    object BYTEA PRIMARY KEY,
    version BIGINT NOT NULL,
    -- Null: the object is deleted, and this is forgotten at `expires_at`.
    content BYTEA,
    expires_at BIGINT
);
CREATE INDEX IF NOT EXISTS everhook_versions_over ON everhook_versions (expires_at)
    WHERE expires_at IS NOT NULL;
