-- The state of each object that was applied last. Times are milliseconds since the Unix epoch.
CREATE TABLE IF NOT EXISTS everhook_versions (
    object BLOB PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    -- Null: the object is deleted, and this is forgotten at `expires_at`.
    content BLOB,
    expires_at INTEGER
) STRICT;
CREATE INDEX IF NOT EXISTS everhook_versions_over ON everhook_versions (expires_at)
    WHERE expires_at IS NOT NULL;
