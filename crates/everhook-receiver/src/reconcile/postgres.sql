-- How far each reconciler is. Times are milliseconds since the Unix epoch, on the API's clock.
CREATE TABLE IF NOT EXISTS everhook_reconcilers (
    name TEXT PRIMARY KEY NOT NULL,
    complete_until BIGINT,
    -- Of the pass under way: null without one, 0 while pages are read, 1 after that.
    stage BIGINT,
    pass_from BIGINT,
    pass_until BIGINT,
    cursor TEXT
);
-- The objects that were on no page of the pass so far.
CREATE TABLE IF NOT EXISTS everhook_reconciler_unseen (
    name TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (name, id)
);
