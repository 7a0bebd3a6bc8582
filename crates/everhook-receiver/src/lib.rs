//! For services that receive webhooks.
#![doc = include_str!("../README.md")]

mod patience;
#[cfg(feature = "once")]
pub mod reconcile;
mod verify;
pub mod version;

pub use everhook_domain::inbound::{
    Answer, CertificateUrl, Handshake, InboundRequest, Rejection, SourceKind,
};
pub use everhook_domain::source::{InvalidSource, SourceInput};
pub use everhook_domain::time::Timestamp;
pub use patience::patience;
pub use verify::{Event, EventKey, InvalidVerifier, KEEP, Verified, Verifier};
