//! Everhook's decisions, and the types that cannot be wrong.
//!
//! Everything here is pure: no async, no I/O, no locks. Time and randomness are arguments; the one
//! impure line of the crate is [`SystemClock`](time::SystemClock)'s reading of the clock. The shell
//! around it (`everhook-store`, `everhook-engine`, `everhook-web`) executes what is decided here.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`id`] | identifiers: prefixed, time-sortable, 128 bits |
//! | [`time`] | instants in UTC milliseconds, and the clock trait |
//! | [`tenant`] | the isolation unit |
//! | [`event`] | what may be published, and the bytes that are sent for it |
//! | [`subscription`] | which events an endpoint wants |
//! | [`endpoint`] | an endpoint's settings and state |
//! | [`endpoint_url`] | which URLs may be an endpoint, how they are sent and shown |
//! | [`certificate`] | which authorities an endpoint may have of its own |
//! | [`header`] | which custom headers may be set |
//! | [`hop`] | which headers a proxy hands on |
//! | [`access`] | who may do what: scopes, and JWTs |
//! | [`address`] | which IP addresses may be connected to |
//! | [`source`] | where webhooks come in, and with which settings |
//! | [`inbound`] | what a webhook of a provider is: genuine, seen before, which event |
//! | [`secret`] | signing secrets and their rotation |
//! | [`signature`] | the Standard Webhooks signature |
//! | [`schedule`] | when the attempts of a round are due |
//! | [`delivery`] | the state machine of a delivery |
//! | [`budget`] | what deliveries may weigh in memory, all of them and those of one lane |
//! | [`conversation`] | the built-in resource: what a command changes, and its event |
//! | [`bulk`] | work on many deliveries: which, how fast, what becomes of each |
//! | [`attempt`] | the result of one attempt |
//! | [`health`] | what an endpoint's last results say about it |
//! | [`system_event`] | what Everhook tells of itself |
//! | [`key`] | how deduplication keys are hashed |
//! | [`idempotency`] | `Idempotency-Key`: its scope, what a second use means, what is remembered |
//! | [`retry_after`] | the `Retry-After` header |
//! | [`version`] | which of two states of an object is the newer one |

pub mod access;
pub mod address;
pub mod attempt;
pub mod budget;
pub mod bulk;
pub mod certificate;
pub mod conversation;
pub mod delivery;
mod digest;
mod ed25519;
pub mod endpoint;
pub mod endpoint_url;
pub mod event;
pub mod fault;
pub mod header;
pub mod health;
pub mod hop;
pub mod id;
pub mod idempotency;
pub mod inbound;
pub mod key;
pub mod receipt;
pub mod retry_after;
pub mod schedule;
pub mod secret;
pub mod signature;
pub mod source;
pub mod subscription;
pub mod system_event;
pub mod tenant;
pub mod time;
pub mod version;
