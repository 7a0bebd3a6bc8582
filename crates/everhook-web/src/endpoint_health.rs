//! What is shown of an endpoint's health.

use everhook_domain::health::EndpointHealth;
use everhook_domain::time::Timestamp;
use serde::Serialize;

/// What an endpoint's last attempts have come to, over all its deliveries.
#[derive(Debug, Serialize)]
pub(crate) struct ShownHealth {
    status: &'static str,
    consecutive_failures: u32,
    /// The start of the first of them, while it counts as failing.
    failing_since: Option<Timestamp>,
}

impl ShownHealth {
    /// A health as it is shown.
    pub(crate) fn new(health: EndpointHealth) -> Self {
        Self {
            status: if health.health.is_failing() { "failing" } else { "healthy" },
            consecutive_failures: health.health.consecutive_failures,
            failing_since: health.failing_since(),
        }
    }
}
