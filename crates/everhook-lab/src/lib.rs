//! A receiver that a script drives: it does, attempt by attempt, what real ones do wrong.
//!
//! A [`Lab`] listens on the loopback interface. For every request its [`Behaviour`] gives a
//! [`Reply`], which is a list of steps: send these bytes, drip them, go on for ever, hold, close,
//! reset. Nothing in a reply is checked, so it can be any nonsense that a wire can carry. What
//! arrived is recorded, with times by a clock that is handed in, and can be waited for.
//!
//! It has no part in the product: the tests use it, and the demo, which plays an unreliable
//! receiver. It speaks only as much HTTP/1.1 as is needed to read our own requests.

mod reply;
mod request;
mod script;
mod server;
#[cfg(feature = "tls")]
pub mod tls;

pub use reply::{Reply, Step};
pub use request::{REQUEST_BYTES_MAX, Request};
pub use script::{Behaviour, Script};
pub use server::{Door, Lab, RECORDED_MAX, Record};
