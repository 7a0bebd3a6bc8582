//! What a verb answers when it does not do what it was asked.

use everhook_domain::conversation::NotDone;
use everhook_domain::delivery::IllegalStep;
use everhook_domain::endpoint::IllegalVerb;
use everhook_domain::id::EndpointId;
use everhook_domain::idempotency::claim::IllegalSettlement;
use everhook_domain::receipt::IllegalDecision;
use everhook_domain::secret::TooManySecrets;

/// Why nothing was done. In every case nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The request cannot be done as things stand: the caller's matter.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store takes nothing at the moment (disk full, stopping); trying again later is right.
    /// The text is for the operator, never for the caller.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The store failed. The text is for the operator, never for the caller.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// Why a request cannot be done as things stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such thing in this tenant.
    #[error("not found")]
    NotFound,
    /// The delivery's state, or its endpoint's, forbids it.
    #[error(transparent)]
    Step(#[from] IllegalStep),
    /// It was changed in the meantime: read it again.
    #[error("it was changed in the meantime")]
    VersionChanged,
    /// It has another version than was expected.
    #[error("it has version {current} now; read it again")]
    Stale {
        /// The version that it has.
        current: u64,
    },
    /// The endpoint's state forbids it.
    #[error(transparent)]
    Endpoint(#[from] IllegalVerb),
    /// The deliveries of a disabled endpoint are still being cancelled.
    #[error("its pending deliveries are still being cancelled; try again in a moment")]
    StillCancelling,
    /// A deleted tenant with this id is still being erased.
    #[error("a deleted tenant with this id is still being erased; try again in a moment")]
    StillErasing,
    /// The default tenant stays.
    #[error("the tenant 'default' cannot be deleted: requests that name no tenant are its")]
    DefaultTenant,
    /// The id is taken.
    #[error("the id is taken: choose another, or leave it out to be given one")]
    Taken,
    /// The tenant has as many endpoints as it may have.
    #[error(
        "the tenant has {} endpoints, which is the most it may have",
        crate::directory::ENDPOINTS_PER_TENANT_MAX
    )]
    TooManyEndpoints,
    /// Another source of the tenant has the name.
    #[error("another source has this name")]
    NameTaken,
    /// Endpoints would get nothing of the source any more if it were renamed.
    #[error("{}", still_named(.0))]
    StillNamed(Vec<EndpointId>),
    /// The tenant has as many sources as it may have.
    #[error(
        "the tenant has {} sources, which is the most it may have",
        crate::directory::SOURCES_PER_TENANT_MAX
    )]
    TooManySources,
    /// The receipt's state forbids it.
    #[error(transparent)]
    Receipt(#[from] IllegalDecision),
    /// How far the idempotency record has come forbids it.
    #[error(transparent)]
    Record(#[from] IllegalSettlement),
    /// Too many signing secrets are live.
    #[error(transparent)]
    Secrets(#[from] TooManySecrets),
}

/// A conversation that is deleted is as one that never was.
impl From<NotDone> for Refusal {
    fn from(not_done: NotDone) -> Self {
        match not_done {
            NotDone::Deleted => Self::NotFound,
            NotDone::Stale { current } => Self::Stale { current },
        }
    }
}

/// As many endpoints as a message names.
const NAMED_MAX: usize = 10;

fn still_named(endpoints: &[EndpointId]) -> String {
    let named: Vec<_> =
        endpoints.iter().take(NAMED_MAX).map(|endpoint| endpoint.to_string()).collect();
    let more = match endpoints.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "endpoints take what this source receives by its present name, and would get nothing any \
         more: {}{more}. Add the new name to their sources, rename, and then remove the old one",
        named.join(", ")
    )
}
