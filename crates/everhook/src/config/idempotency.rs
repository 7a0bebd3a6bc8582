//! The section `[idempotency]`.

use std::time::Duration;

use super::reader::Reader;
use super::rule;

const SECOND: Duration = Duration::from_secs(1);
const DAYS_90: Duration = Duration::from_secs(90 * 86_400);
const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

/// `[idempotency]`
#[derive(Clone, Debug)]
pub(crate) struct Idempotency {
    /// How long an answer is kept.
    pub(crate) ttl: Duration,
    /// Keys of an account that are not over.
    pub(crate) account_keys_max: u32,
    /// Bytes of answers under an account's keys.
    pub(crate) account_bytes_max: usize,
}

/// Reads the section; `None` when a value is wrong.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Idempotency> {
    let ttl = reader.read("idempotency.ttl", &rule::duration(SECOND..=DAYS_90));
    let keys = rule::count(1..=1_000_000_000);
    let account_keys_max = reader.read("idempotency.account_keys_max", &keys);
    let bytes = rule::size(KIB..=1_024 * GIB);
    let account_bytes_max = reader.read("idempotency.account_bytes_max", &bytes);
    Some(Idempotency {
        ttl: ttl?,
        account_keys_max: account_keys_max?,
        account_bytes_max: account_bytes_max?,
    })
}
