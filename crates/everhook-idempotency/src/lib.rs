//! A tower layer that makes any POST run once per `Idempotency-Key`.
//!
//! A request goes from `service` (HTTP) to `keys` (what becomes of it), which asks the pure
//! decisions of `everhook_domain::idempotency` about what a [`store`] holds.
#![doc = include_str!("../README.md")]

mod account;
mod body;
mod claim;
mod counts;
mod keys;
mod layer;
mod problem;
mod service;
mod settings;
pub mod store;
mod tasks;

pub use account::{Account, AccountOf};
pub use body::AnswerBody;
pub use claim::{Claim, FinishError, InvalidRecordId, RecordId};
pub use counts::Counts;
pub use everhook_domain::idempotency::answer::Answer;
pub use everhook_domain::idempotency::claim::{Lapse, Policy};
pub use everhook_domain::tenant::TenantId;
pub use layer::{IdempotencyLayer, Settlement, UnknownRecord};
pub use service::IdempotencyService;
pub use settings::{InvalidSettings, Settings};
