//! Fills a new data directory with a source and receipts, for `cargo xtask bench receive`:
//! `receipts DIR SOURCE SECRET COUNT`.
//!
//! It goes through the store's own verbs, many receipts a transaction; their bodies are small,
//! because what is measured is how many keys are remembered.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use everhook_domain::event::EventType;
use everhook_domain::id::SourceId;
use everhook_domain::inbound::{DedupeKey, ForwardedHeaders, OnChange};
use everhook_domain::source::{SourceSecret, SourceSettings};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::{Clock, SystemClock};
use everhook_store::sqlite::{GroupCommit, SqliteOptions, SqliteStore};
use everhook_store::{
    Change, DirectoryStore as _, NewReceipt, NoHandoff, Receive, Receiving as _, Sealer,
    StorePolicy,
};

/// What a server calls its database.
const DATABASE: &str = "everhook.db";
/// Receipts in one transaction.
const BATCH: u64 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let [Some(dir), Some(name), Some(secret), Some(count)] = [(); 4].map(|()| words.next()) else {
        return Err("receipts DIR SOURCE SECRET COUNT".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(fill(Path::new(&dir), &name, &secret, count.parse()?))
}

async fn fill(dir: &Path, name: &str, secret: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let options = SqliteOptions {
        policy: StorePolicy::default(),
        handoff: Arc::new(NoHandoff),
        clock: Arc::clone(&clock),
        new_tag: 1,
        group_commit: GroupCommit::default(),
        sealer: Sealer::default(),
    };
    let store = SqliteStore::open(&dir.join(DATABASE), options)?;
    let tenant = TenantId::default_tenant();
    let settings = SourceSettings {
        name: name.parse()?,
        kind: "stripe".parse()?,
        secrets: vec![SourceSecret::new(secret)],
        window: None,
        tolerance: None,
        public_url: None,
        dedupe: None,
        options: Default::default(),
    };
    let create = Change::CreateSource { tenant: tenant.clone(), settings: Box::new(settings) };
    store.change(create, None, clock.wall()).await?;
    let directory = store.directory()?;
    let source = directory.source_named(&tenant, &name.parse()?).ok_or("no source")?.id;
    let mut made = 0;
    while made < count {
        let items = (made..count.min(made + BATCH)).map(receipt).collect::<Result<Vec<_>, _>>()?;
        made += BATCH;
        store.receive(request(&tenant, source, items), clock.wall()).await?;
    }
    store.close();
    Ok(())
}

fn request(tenant: &TenantId, source: SourceId, items: Vec<NewReceipt>) -> Receive {
    let (tenant, headers) = (tenant.clone(), ForwardedHeaders::default());
    Receive { tenant, source, items, headers }
}

fn receipt(n: u64) -> Result<NewReceipt, Box<dyn Error>> {
    let id = format!("old_{n:012}");
    Ok(NewReceipt {
        key: DedupeKey::new(&[&id]),
        on_change: OnChange::Mark,
        content: [0; 32],
        guard: None,
        event_type: EventType::any("bench.old")?,
        body: Bytes::from(format!("{{\"id\":\"{id}\"}}")),
        unreadable: None,
    })
}
