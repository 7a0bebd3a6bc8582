//! What must become of everything that is received: a small model of the rules, which is told of
//! every request in the order in which the store takes them, whoever learns of the answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::id::{EndpointId, ReceiptId};
use everhook_domain::receipt::Standing;
use everhook_domain::time::Timestamp;
use everhook_store::sqlite::SqliteStore;
use everhook_store::{
    Directory, DirectoryStore, PageRequest, ReceiptQuery, Received, Receiving, StoreError, Verdict,
};

use crate::book::{Accepted, Book};
use crate::client::tenant;
use crate::provider::{Headers, Meaning, Meant};
use crate::world::World;

/// How long a request may wait for room in a lane, while others overtake it.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// What a source remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trait {
    /// A key.
    Key,
    /// A key with the content of a conflict.
    Conflict,
    /// Signed bytes.
    Guard,
}

/// All receipts, and what is remembered of them.
#[derive(Default)]
pub(crate) struct Ledger {
    /// By source: the receipt, and until when it is remembered by this.
    remembered: BTreeMap<(usize, Trait, Vec<u8>), (ReceiptId, Timestamp)>,
    /// The latest time at which a process may have pruned what had expired.
    pruned_at: Timestamp,
    /// Every receipt that there must be.
    pub(crate) receipts: BTreeMap<ReceiptId, ReceiptBook>,
}

/// A receipt as it must be.
#[derive(Clone, Debug)]
pub(crate) struct ReceiptBook {
    /// The place of its source.
    pub(crate) source: usize,
    /// What its event means.
    pub(crate) meant: Meant,
    /// The headers that its event came with.
    pub(crate) headers: Arc<Headers>,
    /// Where it stands.
    pub(crate) standing: Standing,
    /// When it last came.
    pub(crate) last_seen_at: Timestamp,
    /// How often it came after the first time.
    pub(crate) duplicates: u64,
    /// Whether a duplicate came with other content.
    pub(crate) body_changed: bool,
    /// When it was released.
    pub(crate) released_at: Option<Timestamp>,
}

/// What an event is by the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ruling {
    Duplicate { of: ReceiptId, body_changed: bool },
    Conflict,
    Unreadable,
    Accepted,
}

impl Ruling {
    /// Where a new receipt stands.
    const fn standing(self) -> Option<Standing> {
        match self {
            Self::Duplicate { .. } => None,
            Self::Conflict => Some(Standing::Waiting),
            Self::Unreadable => Some(Standing::Unreadable),
            Self::Accepted => Some(Standing::Accepted),
        }
    }
}

/// A request as the store takes it.
struct Taking<'a> {
    world: &'a World,
    meaning: &'a Meaning,
    directory: &'a Directory,
    now: Timestamp,
}

/// Looks at what the store makes of a request, right when it has done so.
pub(crate) async fn look(
    world: &World,
    store: &SqliteStore,
    meaning: &Meaning,
    result: &Result<Vec<Received>, StoreError>,
    now: Timestamp,
) {
    let named = match result {
        Ok(received) => Ok(received.clone()),
        // The commit has happened, and its process is dead: nobody learns of it.
        Err(StoreError::Failed(_)) => Err(newest(world, store, meaning.events.len()).await),
        Err(StoreError::Unavailable(_)) => return,
        Err(StoreError::Refused(refusal)) => {
            return world.violate(format!("a webhook was refused: {refusal}"));
        }
    };
    let Ok(directory) = store.directory() else {
        return world.violate("a store without a directory".to_owned());
    };
    let taking = Taking { world, meaning, directory: &directory, now };
    let taken = match named {
        Ok(received) if received.len() != meaning.events.len() => {
            Err(format!("{} events, {} verdicts", meaning.events.len(), received.len()))
        }
        Ok(received) => {
            let mut received = received.into_iter();
            taking.take(|rulings| check_named(rulings, received.next()))
        }
        Err(mut unheard) => taking.take(|rulings| name_unheard(rulings, &mut unheard)),
    };
    if let Err(violation) = taken {
        world.violate(format!("source {}: {violation}", meaning.source));
    }
}

/// The newest receipts that are not in the book, newest first.
async fn newest(world: &World, store: &SqliteStore, limit: usize) -> Vec<ReceiptId> {
    let page = PageRequest { limit, after: None, scan_limit: 1_000 };
    let page = store.receipts(tenant(), ReceiptQuery::default(), page).await;
    let mut ids: Vec<_> = page.into_iter().flat_map(|page| page.items).map(|one| one.id).collect();
    ids.retain(|id| !world.book().ledger.receipts.contains_key(id));
    ids
}

/// The receipt that the store names for an event, if its verdict is right.
fn check_named(
    rulings: &[Ruling],
    received: Option<Received>,
) -> Result<(Ruling, ReceiptId), String> {
    let received = received.ok_or("too few verdicts")?;
    let fits = |ruling: &&Ruling| match ruling {
        Ruling::Duplicate { of, .. } => {
            received.verdict == Verdict::Duplicate && received.receipt == *of
        }
        Ruling::Conflict => received.verdict == Verdict::Conflict,
        Ruling::Unreadable => received.verdict == Verdict::Unreadable,
        Ruling::Accepted => received.verdict == Verdict::Accepted,
    };
    match rulings.iter().find(fits) {
        Some(ruling) => Ok((*ruling, received.receipt)),
        None => Err(format!("{received:?}, expected {rulings:?}")),
    }
}

/// The receipt of an event whose answer nobody has heard, by those that are new, newest first.
fn name_unheard(
    rulings: &[Ruling],
    unheard: &mut Vec<ReceiptId>,
) -> Result<(Ruling, ReceiptId), String> {
    let duplicate = rulings.iter().find_map(|ruling| match ruling {
        Ruling::Duplicate { of, .. } => Some((*ruling, *of)),
        Ruling::Conflict | Ruling::Unreadable | Ruling::Accepted => None,
    });
    let new = rulings.iter().find(|ruling| ruling.standing().is_some());
    let new = new.and_then(|ruling| Some((*ruling, unheard.pop()?)));
    new.or(duplicate).ok_or_else(|| "a commit without its receipt".to_owned())
}

impl Taking<'_> {
    /// Takes every event of the request; `name` gives the receipt of each.
    fn take(
        &self,
        mut name: impl FnMut(&[Ruling]) -> Result<(Ruling, ReceiptId), String>,
    ) -> Result<(), String> {
        for meant in &self.meaning.events {
            let mut book = self.world.book();
            let (ruling, id) = name(&self.rulings(&book.ledger, meant))?;
            let source = self.meaning.source;
            self.world.note(format_args!("source {source}: {id} is {ruling:?}"));
            match ruling {
                Ruling::Duplicate { of, body_changed } => {
                    let receipt = book.ledger.receipts.get_mut(&of);
                    let receipt = receipt.ok_or("a duplicate of nothing")?;
                    receipt.duplicates += 1;
                    receipt.body_changed |= body_changed;
                    receipt.last_seen_at = receipt.last_seen_at.max(self.now);
                }
                Ruling::Conflict | Ruling::Unreadable | Ruling::Accepted => {
                    self.keep(&mut book, meant, (id, ruling))?;
                }
            }
            self.remember(&mut book.ledger, meant, (id, ruling));
        }
        Ok(())
    }

    /// What an event is. Where a clock was set back there are several answers: what had expired
    /// before may have been pruned meanwhile, or is live again.
    fn rulings(&self, ledger: &Ledger, meant: &Meant) -> Vec<Ruling> {
        let untils = ledger.remembered.values().map(|(_, until)| *until);
        let expired = untils.filter(|until| self.now < *until && *until <= ledger.pruned_at);
        let mut rulings = Vec::new();
        for pruned in std::iter::once(self.now).chain(expired) {
            let ruling = self.rule(ledger, meant, pruned);
            if !rulings.contains(&ruling) {
                rulings.push(ruling);
            }
        }
        rulings
    }

    /// What an event is if all that expired until then is forgotten.
    fn rule(&self, ledger: &Ledger, meant: &Meant, pruned: Timestamp) -> Ruling {
        let source = self.meaning.source;
        let known = |kind, bytes: &[u8]| ledger.known((source, kind, bytes.to_vec()), pruned);
        let first = known(Trait::Key, &meant.key);
        let same = |id: &ReceiptId| {
            ledger.receipts.get(id).is_some_and(|first| first.meant.content == meant.content)
        };
        let twin = first.filter(same).or_else(|| known(Trait::Conflict, &conflict_key(meant)));
        if let Some(of) = twin {
            return Ruling::Duplicate { of, body_changed: false };
        }
        if let Some(of) = first {
            return match self.world.profile.inbox.sources[source].kind.sender_chooses_key() {
                true => Ruling::Conflict,
                false => Ruling::Duplicate { of, body_changed: true },
            };
        }
        let guarded = meant.guard.as_ref().and_then(|guard| known(Trait::Guard, guard));
        match (guarded, meant.readable) {
            (Some(_), _) => Ruling::Conflict,
            (None, true) => Ruling::Accepted,
            (None, false) => Ruling::Unreadable,
        }
    }

    /// Puts a new receipt into the book, and its event if that runs.
    fn keep(
        &self,
        book: &mut Book,
        meant: &Meant,
        (id, ruling): (ReceiptId, Ruling),
    ) -> Result<(), String> {
        let newest = book.ledger.receipts.last_key_value().map(|(newest, _)| *newest);
        if newest.is_some_and(|newest| newest >= id) {
            return Err(format!("{id} is new, and not after {newest:?}"));
        }
        let ahead = id.created_at().since(self.now);
        if id.created_at() < self.now || ahead > self.world.profile.ahead_max() + ROOM_WAIT {
            return Err(format!("{id} came at {}, and says {}", self.now, id.created_at()));
        }
        let receipt = ReceiptBook {
            source: self.meaning.source,
            meant: meant.clone(),
            headers: Arc::clone(&self.meaning.headers),
            standing: ruling.standing().ok_or("a receipt of a duplicate")?,
            last_seen_at: id.created_at(),
            duplicates: 0,
            body_changed: false,
            released_at: None,
        };
        book.ledger.receipts.insert(id, receipt);
        if ruling == Ruling::Accepted {
            run(self.world, book, self.directory, id);
        }
        Ok(())
    }

    fn remember(&self, ledger: &mut Ledger, meant: &Meant, (id, ruling): (ReceiptId, Ruling)) {
        let source = self.meaning.source;
        let window = self.world.profile.inbox.sources[source].window;
        let until = id.created_at().max(self.now) + window;
        let key = match ruling {
            Ruling::Duplicate { .. } => None,
            Ruling::Conflict => Some((Trait::Conflict, conflict_key(meant))),
            Ruling::Unreadable | Ruling::Accepted => Some((Trait::Key, meant.key.clone())),
        };
        // Signed bytes are known from their first coming, whatever that was.
        let guard = meant.guard.clone().map(|guard| (Trait::Guard, guard));
        let guard = guard.filter(|(kind, bytes)| {
            matches!(ruling, Ruling::Unreadable | Ruling::Accepted)
                || ledger.known((source, *kind, bytes.clone()), self.now).is_none()
        });
        for (kind, bytes) in key.into_iter().chain(guard) {
            ledger.remembered.insert((source, kind, bytes), (id, until));
        }
    }
}

impl Ledger {
    fn known(&self, by: (usize, Trait, Vec<u8>), pruned: Timestamp) -> Option<ReceiptId> {
        let (id, until) = self.remembered.get(&by)?;
        (pruned < *until).then_some(*id)
    }

    /// A process may prune what has expired by now.
    pub(crate) fn may_prune(&mut self, now: Timestamp) {
        self.pruned_at = self.pruned_at.max(now);
    }
}

fn conflict_key(meant: &Meant) -> Vec<u8> {
    [&meant.key[..], b" ", &meant.content[..]].concat()
}

/// The event of a receipt is given its deliveries, to those that subscribe to its source by then.
pub(crate) fn run(world: &World, book: &mut Book, directory: &Directory, id: ReceiptId) {
    let Some(receipt) = book.ledger.receipts.get(&id) else { return };
    let source = receipt.source;
    let subscriptions = world.profile.inbox.subscriptions.iter();
    let takes = |endpoint: &EndpointId| {
        directory.endpoint(*endpoint).is_some_and(|endpoint| endpoint.state.gone().is_none())
    };
    let targets: Vec<EndpointId> = subscriptions
        .zip(&book.endpoints)
        .filter(|(sources, _)| sources.contains(&source))
        .filter_map(|(_, endpoint)| endpoint.id)
        .filter(takes)
        .collect();
    let order = world.note(format_args!("{id} goes to {}", targets.len()));
    let deliveries = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let accepted = Accepted { order, nonce: None, deliveries, targets: Some(targets) };
    book.accepted.insert(id.event(), accepted);
}
