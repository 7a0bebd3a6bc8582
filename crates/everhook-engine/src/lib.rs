//! Everhook's engine: it claims what is due, signs it, sends it and records what came of it.
//!
//! It knows the store by its traits only, and nobody by name who publishes: the two meet in the
//! store, which tells the engine of work through an [`Intake`].
//!
//! | module | what it does |
//! | --- | --- |
//! | `settings` | every limit, with its unit |
//! | `intake`, `room` | where the store hands work over, and how much of it there may be |
//! | `scheduler` | which delivery begins next; decisions only |
//! | `lane`, `slots`, `weights`, `pace`, `suspects` | what it decides by |
//! | `engine` | the loop that joins scheduler, store and attempts |
//! | `attempt`, `request` | one attempt: read the endpoint, sign, send, report |
//! | `recorder`, `jobs` | results and long work on their way into the store |
//! | `sender` | what carries a request out, as a trait |
//! | [`http`] | the one that does: a guarded, pooled HTTP client |
//!
//! Every task belongs to a `JoinSet` of the loop or of the client, and ends with it.

mod attempt;
mod backoff;
mod clock;
mod engine;
pub mod http;
mod intake;
mod jobs;
mod lane;
mod lock;
mod pace;
mod recorder;
mod request;
mod room;
mod scheduler;
mod sender;
mod settings;
mod slots;
mod suspects;
mod weights;

pub use engine::Engine;
pub use intake::Intake;
pub use sender::{OutgoingRequest, Sender};
pub use settings::{EngineSettings, RESPONSE_BYTES_LIMIT};
