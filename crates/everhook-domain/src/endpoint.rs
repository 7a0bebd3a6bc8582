//! An endpoint: where events go, with its settings, its secrets and its state.

mod stored;

use serde::{Deserialize, Serialize};

pub use stored::{Part, Unusable};

use crate::certificate::CaCertificates;
use crate::delivery::CancelReason;
use crate::endpoint_url::EndpointUrl;
use crate::header::CustomHeaders;
use crate::id::EndpointId;
use crate::secret::SecretSet;
use crate::subscription::{Facts, Subscription};
use crate::tenant::TenantId;
use crate::time::Timestamp;

/// Longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 1_024;

/// What an endpoint does with deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointState {
    /// Deliveries are made and sent.
    Enabled,
    /// Deliveries are made and wait.
    Paused,
    /// New events make no delivery here; pending ones are cancelled.
    Disabled,
    /// As disabled, for ever; only its history is left.
    Deleted,
}

impl EndpointState {
    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
            Self::Deleted => "deleted",
        }
    }

    /// The state with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Enabled, Self::Paused, Self::Disabled, Self::Deleted]
            .into_iter()
            .find(|state| state.as_str() == word)
    }

    /// The state after an owner's verb. A verb that asks for what is so already changes nothing.
    ///
    /// # Errors
    /// [`IllegalVerb`]: pausing and resuming are no way around enabling, and nothing brings a
    /// deleted endpoint back.
    pub const fn after(self, verb: EndpointVerb) -> Result<Self, IllegalVerb> {
        match (self, verb) {
            (Self::Deleted, _) => Err(IllegalVerb::Deleted),
            (Self::Disabled, EndpointVerb::Pause | EndpointVerb::Resume) => {
                Err(IllegalVerb::Disabled)
            }
            (Self::Enabled | Self::Paused, EndpointVerb::Pause) => Ok(Self::Paused),
            (Self::Enabled | Self::Paused, EndpointVerb::Resume)
            | (Self::Enabled | Self::Paused | Self::Disabled, EndpointVerb::Enable) => {
                Ok(Self::Enabled)
            }
            (Self::Enabled | Self::Paused | Self::Disabled, EndpointVerb::Disable) => {
                Ok(Self::Disabled)
            }
            (Self::Enabled | Self::Paused | Self::Disabled, EndpointVerb::Delete) => {
                Ok(Self::Deleted)
            }
        }
    }

    /// Why no delivery may be sent here, if so. A paused endpoint sends later.
    pub const fn gone(self) -> Option<CancelReason> {
        match self {
            Self::Enabled | Self::Paused => None,
            Self::Disabled => Some(CancelReason::EndpointDisabled),
            Self::Deleted => Some(CancelReason::EndpointDeleted),
        }
    }
}

/// What an owner does to an endpoint's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndpointVerb {
    /// Let deliveries wait.
    Pause,
    /// Send what has waited.
    Resume,
    /// Cancel what waits, and make no more deliveries.
    Disable,
    /// Make deliveries again, for events accepted from then on; or resume.
    Enable,
    /// Disable for ever.
    Delete,
}

/// Why a verb does not apply to an endpoint in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IllegalVerb {
    /// It has to be enabled first.
    #[error("the endpoint is disabled; enable it first")]
    Disabled,
    /// Only its history is left.
    #[error("the endpoint is deleted")]
    Deleted,
}

/// Why an endpoint was disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DisabledReason {
    /// Somebody asked for it.
    Requested,
    /// Nothing had succeeded there for as long as the installation allows.
    Automatic,
}

impl DisabledReason {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::Requested, Self::Automatic];

    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Automatic => "automatic",
        }
    }

    /// The reason with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

/// When and why an endpoint was disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disabled {
    /// Why.
    pub reason: DisabledReason,
    /// When.
    pub at: Timestamp,
}

/// What its owner has set.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Where requests go.
    pub url: EndpointUrl,
    /// The owner's note.
    pub description: String,
    /// Headers added to every request.
    pub headers: CustomHeaders,
    /// Which events it wants.
    pub subscription: Subscription,
    /// The most requests begun in a second; `None`: no limit of its own.
    pub requests_per_second: Option<u32>,
    /// The most requests under way at once; `None`: the installation's.
    pub max_in_flight: Option<u32>,
    /// Who must have signed the server's certificate, in place of the public roots.
    pub ca_certificates: Option<CaCertificates>,
    /// What is stored in place of some of these and cannot be used. They then hold something
    /// harmless, and nothing is sent.
    pub unusable: Unusable,
}

impl EndpointSettings {
    /// Whether an event with these facts makes a delivery here: never while a part of the
    /// subscription that decides it cannot be read.
    pub fn wants(&self, facts: &Facts<'_>) -> bool {
        !self.unusable.has(Part::Conditions) && self.subscription.matches(facts)
    }
}

/// An endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it does with deliveries.
    pub state: EndpointState,
    /// When and why it was disabled, while it is; `None` where an older version did it.
    pub disabled: Option<Disabled>,
    /// Counts its changes, from 1.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// What its owner has set.
    pub settings: EndpointSettings,
    /// What signs its requests.
    pub secrets: SecretSet,
}

impl Endpoint {
    /// What of its stored parts cannot be used, each with the reason: a plain sentence without
    /// secrets.
    pub fn unusable(&self) -> impl Iterator<Item = (Part, &str)> {
        let secret = (!self.secrets.are_readable()).then_some((
            Part::Secret,
            "the stored signing secrets cannot be read: rotate the secret to make a new one",
        ));
        self.settings.unusable.iter().chain(secret)
    }

    /// Why no request can be made for it, for a person, if so: something stored cannot be used.
    pub fn obstacle(&self) -> Option<String> {
        let parts: Vec<_> =
            self.unusable().map(|(part, detail)| format!("{} ({detail})", part.as_str())).collect();
        (!parts.is_empty()).then(|| {
            format!("what is stored for this endpoint cannot be used: {}", parts.join("; "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::EndpointState::{Deleted, Disabled, Enabled, Paused};
    use super::*;

    /// What each verb makes of a state, in the order of the verbs.
    fn check(state: EndpointState, expected: [Result<EndpointState, IllegalVerb>; 5]) {
        use EndpointVerb::{Delete, Disable, Enable, Pause, Resume};
        let found = [Pause, Resume, Disable, Enable, Delete].map(|verb| state.after(verb));
        assert_eq!(found, expected, "{state:?}");
    }

    #[test]
    fn states_after_verbs() {
        let (disabled, deleted) = (IllegalVerb::Disabled, IllegalVerb::Deleted);
        let usable = [Ok(Paused), Ok(Enabled), Ok(Disabled), Ok(Enabled), Ok(Deleted)];
        check(Enabled, usable);
        check(Paused, usable);
        check(Disabled, [Err(disabled), Err(disabled), Ok(Disabled), Ok(Enabled), Ok(Deleted)]);
        check(Deleted, [Err(deleted); 5]);
    }
}
