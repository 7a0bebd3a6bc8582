//! The sections `[idempotency]` and `[claims]`.

use std::time::Duration;

use super::reader::Reader;
use super::rule;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DAY: Duration = Duration::from_secs(86_400);

/// `[idempotency]`
#[derive(Clone, Debug)]
pub(crate) struct Idempotency {
    /// How long an answer is kept.
    pub(crate) ttl: Duration,
    /// Keys of an account that are not over.
    pub(crate) account_keys_max: u32,
    /// Bytes of answers under an account's keys.
    pub(crate) account_bytes_max: usize,
    /// How long a key belongs to work that is not heard of.
    pub(crate) lease: Duration,
}

/// `[claims]`
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    /// How long a request may wait for a claim to end.
    pub(crate) wait_max: Duration,
    /// The longest result, in bytes.
    pub(crate) result_bytes_max: usize,
}

/// Reads `[idempotency]`; `None` when a value is wrong.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Idempotency> {
    let ttl = rule::duration(Duration::from_secs(1)..=90 * DAY);
    let ttl = reader.read("idempotency.ttl", &ttl);
    let keys = rule::count(1..=1_000_000_000);
    let account_keys_max = reader.read("idempotency.account_keys_max", &keys);
    let bytes = rule::size(KIB..=1_024 * GIB);
    let account_bytes_max = reader.read("idempotency.account_bytes_max", &bytes);
    let lease = rule::duration(Duration::from_millis(100)..=Duration::from_secs(3_600));
    let lease = reader.read("idempotency.lease", &lease);
    Some(Idempotency {
        ttl: ttl?,
        account_keys_max: account_keys_max?,
        account_bytes_max: account_bytes_max?,
        lease: lease?,
    })
}

/// Reads `[claims]`; `None` when a value is wrong.
pub(super) fn read_claims(reader: &mut Reader<'_>) -> Option<Claims> {
    let patience = rule::duration(Duration::ZERO..=Duration::from_secs(300));
    let wait_max = reader.read("claims.wait_max", &patience);
    let result_bytes_max = reader.read("claims.result_bytes_max", &rule::size(KIB..=16 * MIB));
    Some(Claims { wait_max: wait_max?, result_bytes_max: result_bytes_max? })
}
