//! The section `[receive]`.

use std::time::Duration;

use super::reader::Reader;
use super::rule;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// `[receive]`
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    /// The largest body of a webhook, in bytes.
    pub(crate) body_bytes_max: usize,
    /// All bodies of webhooks in memory, in bytes.
    pub(crate) bodies_bytes_max: usize,
    /// How long a body may take to arrive.
    pub(crate) body_timeout: Duration,
    /// The slowest that a body may come, in bytes a second.
    pub(crate) body_pace_min: usize,
    /// How long a certificate that was fetched is used.
    pub(crate) certificate_lifetime: Duration,
}

/// Reads the section; `None` when a value is wrong.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Receive> {
    let body_bytes_max = reader.read("receive.body_bytes_max", &rule::size(KIB..=25 * MIB));
    let bodies_bytes_max = reader.read("receive.bodies_bytes_max", &rule::size(MIB..=64 * GIB));
    let patience = rule::duration(Duration::from_millis(100)..=Duration::from_secs(3_600));
    let body_timeout = reader.read("receive.body_timeout", &patience);
    let body_pace_min = reader.read("receive.body_pace_min", &rule::size(1..=MIB));
    let lifetime = rule::duration(Duration::from_secs(60)..=Duration::from_secs(30 * 86_400));
    let certificate_lifetime = reader.read("receive.certificate_lifetime", &lifetime);
    Some(Receive {
        body_bytes_max: body_bytes_max?,
        bodies_bytes_max: bodies_bytes_max?,
        body_timeout: body_timeout?,
        body_pace_min: body_pace_min?,
        certificate_lifetime: certificate_lifetime?,
    })
}
