-- Conversations and their messages.

-- Of a deleted one the row stays, with its last version.
CREATE TABLE conversations (
    tenant     text NOT NULL,
    id         uuid NOT NULL,
    created_at bigint NOT NULL,
    subject    text,
    status     smallint NOT NULL,
    assignee   text,
    version    bigint NOT NULL,
    updated_at bigint NOT NULL,
    -- The tenant's number of the change that made it so.
    change     bigint NOT NULL,
    deleted_at bigint,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX conversations_changed ON conversations (tenant, updated_at, change);
CREATE INDEX conversations_present ON conversations (tenant, updated_at, change)
    WHERE deleted_at IS NULL;

-- How far a tenant's changes have come. Whoever changes a conversation holds the row until its
-- commit, so that numbers rise in the order of the commits, and a list by change skips none.
CREATE TABLE conversation_changes (
    tenant  text PRIMARY KEY,
    last    bigint NOT NULL,
    last_at bigint NOT NULL
);

CREATE TABLE messages (
    tenant       text NOT NULL,
    conversation uuid NOT NULL,
    id           uuid NOT NULL,
    created_at   bigint NOT NULL,
    -- Which the conversation has by it.
    version      bigint NOT NULL,
    body         text NOT NULL,
    PRIMARY KEY (tenant, conversation, version)
);
