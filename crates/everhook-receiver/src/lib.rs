//! For services that receive webhooks.
#![doc = include_str!("../README.md")]

#[cfg(feature = "tower")]
mod answer;
#[cfg(feature = "tower")]
mod door;
#[cfg(feature = "once")]
pub mod inbox;
#[cfg(feature = "tower")]
mod layer;
#[cfg(feature = "once")]
pub mod once;
mod patience;
#[cfg(feature = "once")]
pub mod reconcile;
#[cfg(feature = "once")]
pub mod store;
#[cfg(feature = "tower")]
mod tasks;
mod verify;
pub mod version;
#[cfg(feature = "tower")]
mod webhook;

#[cfg(feature = "tower")]
pub use door::Fetch;
pub use everhook_domain::inbound::{
    Answer, CertificateUrl, ForwardedHeaders, Handshake, InboundRequest, Rejection, SourceKind,
};
pub use everhook_domain::source::{InvalidSource, SourceInput};
pub use everhook_domain::time::{Clock, SystemClock, Timestamp};
#[cfg(feature = "tower")]
pub use layer::{WebhookLayer, WebhookService};
pub use patience::patience;
pub use verify::{Event, EventKey, InvalidVerifier, KEEP, Verified, Verifier};
#[cfg(feature = "axum")]
pub use webhook::NotVerified;
#[cfg(feature = "tower")]
pub use webhook::Webhook;
