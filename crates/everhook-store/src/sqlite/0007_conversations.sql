-- Conversations and their messages.

-- Of a deleted one the row stays, with its last version.
CREATE TABLE conversations (
    seq        INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    subject    TEXT,
    status     INTEGER NOT NULL,
    assignee   TEXT,
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- Rises with every change of any of them, in the order of the commits.
    change     INTEGER NOT NULL,
    deleted_at INTEGER
);
CREATE INDEX conversations_changed ON conversations (tenant, updated_at, change);
CREATE INDEX conversations_present ON conversations (tenant, updated_at, change)
    WHERE deleted_at IS NULL;

CREATE TABLE messages (
    seq          INTEGER PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    -- Which the conversation has by it.
    version      INTEGER NOT NULL,
    body         TEXT NOT NULL
);
CREATE INDEX messages_of ON messages (conversation, version);
