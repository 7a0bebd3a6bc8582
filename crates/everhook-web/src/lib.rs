//! Everhook's HTTP side: the API under `/api/v1`, its problems, and the server that carries it.
//!
//! Requests become domain types or problems here, and domain types become JSON; nothing else
//! happens in between. This crate knows status codes and nobody else does; it calls the store and
//! never the engine. Nothing depends on what it keeps in memory: after a crash there is nothing to
//! repair.
//!
//! | module | what it is about |
//! | --- | --- |
//! | [`access`] | credentials to caller |
//! | [`api`] | the routes |
//! | [`base_url`] | what URLs that are given out begin with |
//! | [`conversation`] | what is asked of conversations, read |
//! | [`cursor`] | where lists go on |
//! | [`endpoint`] | an endpoint's settings, read and shown |
//! | [`event`] | published events, read |
//! | [`fetch`] | certificates from the network |
//! | [`json`] | reading foreign JSON |
//! | [`layer_keys`] | the tower layer's keys in our own store |
//! | [`problem`] | errors and their status codes |
//! | [`proxy`] | idempotency in front of any service |
//! | [`query`] | query parameters |
//! | [`server`] | connections |
//! | [`settings`] | what the binary hands in |
//! | [`source`] | a source's settings, read and shown |

pub mod access;
mod answer;
pub mod api;
mod app;
pub mod base_url;
mod body;
mod claim;
pub mod conversation;
pub mod cursor;
pub mod endpoint;
mod endpoint_health;
pub mod event;
pub mod fetch;
mod intake;
pub mod json;
pub mod layer_keys;
mod pace;
mod post;
pub mod problem;
pub mod proxy;
pub mod query;
mod received;
mod seal;
pub mod server;
pub mod settings;
pub mod source;

pub use access::Access;
pub use api::router;
pub use layer_keys::LayerKeys;
pub use server::{ServerLimits, serve};
pub use settings::{
    BodyLimits, ClaimLimits, Entropy, Now, ReceiveLimits, ReplayRates, WebSettings,
};
