//! What people decide about receipts: release, discard, force.

use everhook_domain::id::{EndpointId, ReceiptId};
use everhook_domain::receipt::Standing;
use everhook_domain::time::Timestamp;
use everhook_store::sqlite::SqliteStore;
use everhook_store::{
    Claimed, Decision, DeliveryQuery, DirectoryStore, PageRequest, Reading, ReceiptRecord,
    ReceiptStatus, Refusal, StoreError,
};

use crate::acts::check_refusal_of_all;
use crate::book::{ActBook, Answered, Deed};
use crate::client::{Client, Told, ask, claim, tenant};
use crate::receipts;
use crate::world::World;

/// Decides about some receipt.
pub(crate) async fn decide(client: &mut Client, decision: Decision, key: Option<String>) {
    let Some(receipt) = some_receipt(client, decision) else { return };
    client.world.note(format_args!("{decision:?} {receipt}"));
    loop {
        let process = client.process().await;
        let claim =
            key.as_deref().map(|key| claim(key, "decide", |_: &ReceiptRecord| String::new()));
        let now = process.now();
        let decided = process.front.decide_on(receipt, decision, claim, now);
        match ask(&process, decided).await {
            // Looked at where it was seen.
            Told::Done(_) | Told::Refused(_) => return,
            // Twice is twice.
            Told::Lost if key.is_none() && decision == Decision::Force => return,
            Told::Lost | Told::Unavailable => {}
        }
        client.rest().await;
    }
}

/// Some receipt; mostly one that waits, if there is one to decide about.
fn some_receipt(client: &mut Client, decision: Decision) -> Option<ReceiptId> {
    let book = client.world.book();
    let receipts = &book.ledger.receipts;
    let fits = |standing| match decision {
        Decision::Release => matches!(standing, Standing::Waiting | Standing::Unreadable),
        Decision::Discard => standing == Standing::Waiting,
        Decision::Force => standing == Standing::Accepted,
    };
    let of_choice = receipts.iter().filter(|(_, receipt)| fits(receipt.standing));
    let of_choice: Vec<ReceiptId> = of_choice.map(|(id, _)| *id).collect();
    let any: Vec<ReceiptId> = receipts.keys().copied().collect();
    let list = if client.rng.percent(80) && !of_choice.is_empty() { of_choice } else { any };
    list.get(client.rng.place(list.len())).copied()
}

/// What a decision comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Unchanged,
    Released,
    Discarded,
    SentAgain,
    Refused,
}

/// By the rules.
fn expect(standing: Standing, decision: Decision) -> Outcome {
    match (decision, standing) {
        (Decision::Release, Standing::Waiting | Standing::Unreadable) => Outcome::Released,
        (Decision::Discard, Standing::Waiting) => Outcome::Discarded,
        (Decision::Force, Standing::Accepted | Standing::Released) => Outcome::SentAgain,
        (Decision::Release, Standing::Released) | (Decision::Discard, Standing::Discarded) => {
            Outcome::Unchanged
        }
        (Decision::Release, Standing::Accepted | Standing::Discarded)
        | (Decision::Discard, Standing::Accepted | Standing::Released | Standing::Unreadable)
        | (Decision::Force, Standing::Waiting | Standing::Unreadable | Standing::Discarded) => {
            Outcome::Refused
        }
    }
}

/// A decision as the store makes it.
pub(crate) struct Decided<'a> {
    pub(crate) world: &'a World,
    pub(crate) store: &'a SqliteStore,
    pub(crate) receipt: ReceiptId,
    pub(crate) decision: Decision,
    /// When it was asked for, in the order of things.
    pub(crate) from: u64,
    pub(crate) now: Timestamp,
}

impl Decided<'_> {
    /// Looks at what the store makes of it, right when it has done so.
    pub(crate) async fn look(&self, result: &Result<Claimed<ReceiptRecord>, StoreError>) {
        let (id, decision) = (self.receipt, self.decision);
        let standing = self.world.book().ledger.receipts.get(&id).map(|found| found.standing);
        let Some(standing) = standing else { return };
        let outcome = expect(standing, decision);
        let wrong = |what: String| {
            self.world.violate(format!("{decision:?} {id}, {standing:?}: {what}, not {outcome:?}"));
        };
        match (result, outcome) {
            (Ok(Claimed::Replayed(_)) | Err(StoreError::Unavailable(_)), _)
            | (Err(StoreError::Refused(Refusal::Receipt(_))), Outcome::Refused) => {}
            (Ok(Claimed::Done(record)), outcome) if outcome != Outcome::Refused => {
                self.apply(outcome, Answered::Done).await;
                let now = self.world.book().ledger.receipts.get(&id).map(|found| found.standing);
                if now.map(status_of) != Some(record.status) {
                    wrong(format!("it is {:?}", record.status));
                }
            }
            // The commit has happened, and its process is dead: nobody learns of it.
            (Err(StoreError::Failed(_)), outcome) => self.apply(outcome, Answered::Lost).await,
            (Err(StoreError::Refused(refusal)), Outcome::SentAgain) => {
                check_refusal_of_all(self.world, id.event(), refusal.clone(), self.from);
            }
            (Ok(Claimed::Done(record)), _) => wrong(format!("{:?}", record.status)),
            (Ok(Claimed::Mismatch | Claimed::OverQuota), _) => {
                wrong("the key's refusal".to_owned())
            }
            (Err(StoreError::Refused(refusal)), _) => wrong(refusal.to_string()),
        }
    }

    async fn apply(&self, outcome: Outcome, answered: Answered) {
        let Ok(directory) = self.store.directory() else { return };
        if outcome == Outcome::SentAgain {
            let named = self.sent_to().await;
            let to = self.world.note(format_args!("{} is sent again", self.receipt));
            let to_ms = self.world.time.now_ms();
            self.world.book().acts.push(ActBook {
                event: self.receipt.event(),
                endpoint: None,
                deed: Deed::Replay,
                from: self.from,
                to,
                to_ms,
                to_steady: self.now,
                answered,
                named,
            });
            return;
        }
        let mut book = self.world.book();
        let Some(receipt) = book.ledger.receipts.get_mut(&self.receipt) else { return };
        match outcome {
            Outcome::Unchanged | Outcome::Refused | Outcome::SentAgain => {}
            Outcome::Discarded => receipt.standing = Standing::Discarded,
            Outcome::Released => {
                receipt.standing = Standing::Released;
                receipt.released_at = Some(self.now);
                receipts::run(self.world, &mut book, &directory, self.receipt);
            }
        }
    }

    /// Everywhere that its event goes to, but for endpoints that are gone.
    async fn sent_to(&self) -> Vec<EndpointId> {
        let event = Some(self.receipt.event());
        let query = DeliveryQuery { event, ..DeliveryQuery::default() };
        let page = PageRequest { limit: 250, after: None, scan_limit: 10_000 };
        let found = self.store.deliveries(tenant(), query, page).await;
        let Ok(directory) = self.store.directory() else { return Vec::new() };
        let takes = |endpoint: &EndpointId| {
            directory.endpoint(*endpoint).is_some_and(|endpoint| endpoint.state.gone().is_none())
        };
        let rows = found.into_iter().flat_map(|page| page.items);
        rows.map(|row| row.endpoint).filter(takes).collect()
    }
}

/// The status of a receipt that stands so.
pub(crate) fn status_of(standing: Standing) -> ReceiptStatus {
    match standing {
        Standing::Accepted | Standing::Released => ReceiptStatus::Accepted,
        Standing::Waiting => ReceiptStatus::Conflict,
        Standing::Unreadable | Standing::Discarded => ReceiptStatus::Dead,
    }
}
