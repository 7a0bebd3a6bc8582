-- Tenants have names, and can be deleted: what was theirs is then erased step by step.

ALTER TABLE tenants ADD COLUMN name text NOT NULL DEFAULT '';
UPDATE tenants SET name = id;
ALTER TABLE tenants ADD COLUMN deleted_at bigint;

-- Whose a record is. NULL in those written before: they expire within a day.
ALTER TABLE idempotency_records ADD COLUMN tenant text;
CREATE INDEX idempotency_records_by_tenant ON idempotency_records (tenant);
