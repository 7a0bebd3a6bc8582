//! Everhook's store: traits of domain verbs, and the two stores behind them.
//!
//! Each verb is one transaction. A verb's doc comment is its guarantee, and the conformance suite
//! (`tests/conformance`) is the definition that both stores pass. No SQL, no rows and no
//! transaction handle appear in a signature; what becomes of a delivery is decided by
//! [`everhook_domain::delivery::step`], and SQL only compares and sets.
//!
//! | trait | concept |
//! | --- | --- |
//! | [`Sending`] | events in, deliveries leased, results recorded |
//! | [`DirectoryStore`] | tenants, endpoints and sources |
//! | [`Receiving`] | webhooks in, and what is decided about them |
//! | [`Conversations`] | the built-in resource with versions |
//! | [`Keys`] | idempotency records, and claims that are finished later |
//! | [`Jobs`] | long work in small steps |
//! | [`Bulk`] | work on many deliveries at once |
//! | [`Reading`] | single things, lists and health |
//! | [`Handoff`] | how the store tells the engine of work, the only call upwards |
//!
//! Every method that depends on time takes `now`, which must not go back
//! ([`SteadyTime`](everhook_domain::time::SteadyTime)).

mod bulk;
mod claim;
mod code;
mod conversations;
mod directory;
mod error;
mod handoff;
mod jobs;
mod keys;
#[cfg(feature = "postgres")]
pub mod postgres;
mod reading;
mod receipt;
mod receiving;
mod route;
mod seal;
mod sending;
mod share;
mod source;
pub mod sqlite;

pub use bulk::{Bulk, BulkRecord, BulkRequest, BulkStarted};
pub use claim::{Claim, Claimed, Render};
pub use conversations::{Conversations, Converse, ConverseRequest};
pub use directory::{
    Change, Changed, Directory, DirectoryStore, ENDPOINTS_PER_TENANT_MAX, SOURCES_PER_TENANT_MAX,
};
pub use error::{Refusal, StoreError};
pub use handoff::{Handoff, NoHandoff, Offer, Permit};
pub use jobs::{JobStep, Jobs};
pub use keys::{
    HeldClaim, KeyRecord, Keys, RecordName, RecordOrigin, RecordQuery, RecordState,
    RecordStateWord, StoredClaim, Taking,
};
pub use reading::{
    DeliveryDetail, DeliveryQuery, DeliveryRecord, EventDetail, EventQuery, EventRecord, Page,
    PageRequest, Position, Reading, StatusFilter, StoreHealth,
};
pub use receiving::{
    Decision, NewReceipt, ReceiptQuery, ReceiptReason, ReceiptRecord, ReceiptStatus, Receive,
    Received, Receiving, Verdict,
};
pub use seal::{Entropy, InvalidMasterKey, MasterKey, MissingKey, Sealer};
pub use sending::{
    AcceptedEvent, Act, LaneDue, LeasedDelivery, Publish, Published, Sending, SentAgain, Settled,
    Settlement, SettlementResult, StorePolicy, Targets, Wanted,
};
pub use share::Share;

/// Everything a running server needs of a store.
pub trait Store:
    Sending + Receiving + Conversations + DirectoryStore + Keys + Jobs + Bulk + Reading
{
}

impl<T: Sending + Receiving + Conversations + DirectoryStore + Keys + Jobs + Bulk + Reading> Store
    for T
{
}
