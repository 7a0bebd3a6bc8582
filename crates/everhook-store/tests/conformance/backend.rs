//! The stores that the suite runs on, and what it must be able to do with each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use everhook_domain::id::{DeliveryId, EndpointId, SourceId};
use everhook_domain::time::Timestamp;
use everhook_store::{Handoff, Sealer, Store, StorePolicy};
use tokio::runtime::Runtime;

use crate::Case;

/// Numbers the databases of this process.
static DATABASES: AtomicU64 = AtomicU64::new(0);

/// A kind of store.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// The first part of its cases' names.
    pub(crate) name: &'static str,
    /// How long a lease outlives its owner; zero where the owner's death is known without a clock.
    pub(crate) lease: Duration,
    /// Cases that only this kind has.
    pub(crate) own: fn() -> Vec<Case>,
    /// How many interleavings the model is tried with.
    pub(crate) interleavings: u32,
    /// Makes an empty database with this number.
    pub(crate) create: fn(u64, &Runtime) -> Box<dyn Backend>,
}

impl Kind {
    /// An empty database of this kind.
    pub(crate) fn create(self, runtime: &Runtime) -> Box<dyn Backend> {
        (self.create)(DATABASES.fetch_add(1, Ordering::Relaxed), runtime)
    }
}

/// The row of something that has settings and secrets.
#[derive(Clone, Copy)]
pub(crate) struct RowOf {
    pub(crate) table: &'static str,
    pub(crate) bits: u128,
}

impl From<EndpointId> for RowOf {
    fn from(id: EndpointId) -> Self {
        Self { table: "endpoints", bits: id.bits() }
    }
}

impl From<SourceId> for RowOf {
    fn from(id: SourceId) -> Self {
        Self { table: "sources", bits: id.bits() }
    }
}

/// Every kind that this build has.
pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        crate::sqlite::MEMORY,
        crate::sqlite::FILE,
        #[cfg(feature = "postgres")]
        crate::postgres::KIND,
    ]
}

/// One database, and the store that is open on it.
pub(crate) trait Backend {
    /// Opens a store on it; another node where it has several.
    fn open(
        &mut self,
        policy: StorePolicy,
        handoff: Arc<dyn Handoff>,
        sealer: Sealer,
        now: Timestamp,
    ) -> Result<Arc<dyn Store>, String>;

    /// Throws the open store away. What it had committed is still there.
    fn crash(&mut self);

    /// Copies the only endpoint until there are so many. No store is open.
    fn multiply_endpoint(&self, count: usize);

    /// Overwrites a column of a row, as an older version may have stored it. No store is open.
    fn store_as(&self, row: RowOf, column: &str, text: &str);

    /// How many rows each table holds, but for the numbers in `meta`. No store is open.
    fn rows(&self) -> BTreeMap<String, i64>;

    /// Settings and secrets as they are stored. No store is open.
    fn stored(&self, row: RowOf) -> [String; 2];

    /// What came in for ended leases of a delivery, which no verb shows yet. No store is open.
    fn late_outcomes(&self, delivery: DeliveryId) -> Vec<String>;
}
