-- The failures of an endpoint since its last success. One that never failed has no row, and one
-- that goes on succeeding is never written.
CREATE TABLE endpoint_health (
    endpoint             uuid PRIMARY KEY,
    consecutive_failures integer NOT NULL,
    first_failure_at     bigint
);

-- While it is disabled: why, and when.
ALTER TABLE endpoints ADD COLUMN disabled_reason text;
ALTER TABLE endpoints ADD COLUMN disabled_at bigint;
