-- Tenants have names, and can be deleted: what was theirs is then erased step by step.

ALTER TABLE tenants ADD COLUMN name TEXT NOT NULL DEFAULT '';
UPDATE tenants SET name = id;
ALTER TABLE tenants ADD COLUMN deleted_at INTEGER;

-- Whose a key or record is. NULL in those written before: they expire within a day.
ALTER TABLE key_log ADD COLUMN tenant INTEGER;
ALTER TABLE idempotency_records ADD COLUMN tenant INTEGER;

-- How far the erasing of a deleted tenant has come: the part that is being erased, the last row of
-- it that was looked at, and the last one to look at.
CREATE TABLE erasures (
    tenant   INTEGER PRIMARY KEY,
    part     INTEGER NOT NULL,
    last_row INTEGER NOT NULL,
    end_row  INTEGER NOT NULL
);
