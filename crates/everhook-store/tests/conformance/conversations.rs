//! Conversations: versions, and the events that tell of them.

use std::collections::BTreeSet;

use everhook_domain::conversation::{
    Assignee, Command, Conversation, ConversationStatus, Message, MessageBody, NewConversation,
    Outcome, Subject,
};
use everhook_domain::id::ConversationId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{
    Claim, Claimed, Converse, ConverseRequest, PageRequest, Position, Refusal, StoreError,
};
use serde_json::Value;

use crate::backend::Kind;
use crate::sketch::{claim, keyed, ms, secs};
use crate::world::World;
use crate::{Case, case};
use ConversationStatus::{Closed, Open, Pending};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(each_change_is_a_version_and_an_event),
        case(what_changes_nothing_tells_nothing),
        case(a_stale_version_changes_nothing),
        case(a_racing_status_and_transfer_send_one_event_a_state),
        case(what_is_deleted_is_gone_and_listed_as_deleted),
        case(a_key_converses_once),
        case(a_source_event_id_that_was_used_before_hides_no_change),
        case(conversations_are_their_tenants_own),
        case(messages_are_listed_newest_first),
    ]
}

fn assignee(name: &str) -> Assignee {
    Assignee::parse(name).unwrap()
}

pub(crate) fn status(status: ConversationStatus) -> Command {
    Command::Patch { status: Some(status), assignee: None }
}

pub(crate) fn transfer(to: &str, status: Option<ConversationStatus>) -> Command {
    Command::Transfer { assignee: assignee(to), status }
}

pub(crate) fn message(body: &str) -> Command {
    Command::Message { body: MessageBody::parse(body).unwrap() }
}

fn change(tenant: &TenantId, of: ConversationId, command: Command) -> Converse {
    let request = ConverseRequest::Change { conversation: of, command, expected: None };
    Converse { tenant: tenant.clone(), request }
}

pub(crate) fn page_of(limit: usize, after: Option<Position>) -> PageRequest {
    PageRequest { limit, after, scan_limit: 1_000 }
}

/// Conversations of the default tenant, where none is named.
impl World {
    pub(crate) fn create_in(&self, tenant: &TenantId, new: NewConversation) -> Conversation {
        let request = ConverseRequest::Create(new);
        let converse = Converse { tenant: tenant.clone(), request };
        let outcome = self.wait(self.store.converse(converse, None, self.now)).unwrap();
        outcome.done().unwrap().conversation().clone()
    }

    pub(crate) fn create(&self, status: ConversationStatus) -> Conversation {
        self.create_in(&self.tenant, NewConversation { status, ..NewConversation::default() })
    }

    pub(crate) fn try_converse_in(
        &self,
        tenant: &TenantId,
        of: ConversationId,
        command: Command,
    ) -> Result<Outcome, StoreError> {
        let outcome =
            self.wait(self.store.converse(change(tenant, of, command), None, self.now))?;
        Ok(outcome.done().unwrap())
    }

    pub(crate) fn converse(&self, of: ConversationId, command: Command) -> Outcome {
        self.try_converse_in(&self.tenant, of, command).unwrap()
    }

    fn conversation(&self, id: ConversationId) -> Option<Conversation> {
        self.wait(self.store.conversation(self.tenant.clone(), id)).unwrap()
    }

    fn messages(&self, of: ConversationId, limit: usize) -> Option<Vec<Message>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = page_of(limit, after);
            let page = self.wait(self.store.messages(self.tenant.clone(), of, page)).unwrap()?;
            all.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Some(all),
            }
        }
    }

    /// What events tell of conversations, oldest first: type, source event ID, data.
    fn told(&self) -> Vec<(String, String, Value)> {
        let mut events = self.events();
        events.reverse();
        let ours = events.into_iter().filter(|event| event.source_event_id.is_some());
        ours.map(|event| {
            let body: Value = serde_json::from_slice(&self.event(event.id).body).unwrap();
            assert_eq!(body["timestamp"], event.timestamp.to_string());
            let source_event_id = event.source_event_id.unwrap();
            (event.event_type.to_string(), source_event_id, body["data"].clone())
        })
        .collect()
    }
}

fn each_change_is_a_version_and_an_event(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint_for(&world.tenant.clone(), &["conversation.*", "message.*"]);
    let new = NewConversation {
        subject: Some(Subject::parse("Äpfel 🍏").unwrap()),
        status: Pending,
        assignee: None,
    };
    let made = world.create_in(&world.tenant, new);
    assert_eq!((made.version, made.created_at, made.updated_at), (1, world.now, world.now));
    let mut versions = vec![made.clone()];
    let mut said = None;
    for command in [transfer("a", Some(Open)), message("Hello"), status(Closed), Command::Delete] {
        world.advance(ms(3));
        let Outcome::Changed(change) = world.converse(made.id, command) else {
            panic!("it changes something");
        };
        let now = change.conversation;
        let before = versions.last().unwrap();
        assert_eq!((now.version, now.updated_at), (before.version + 1, world.now));
        assert_eq!((now.id, now.created_at), (made.id, made.created_at));
        said = said.or(change.message);
        world.crash();
        let found = world.conversation(made.id);
        assert_eq!(found, now.deleted_at.is_none().then(|| now.clone()), "as it was answered");
        versions.push(now);
    }
    let told = world.told();
    let types: Vec<_> = told.iter().map(|(event_type, ..)| event_type.as_str()).collect();
    let expected = [
        "conversation.created",
        "conversation.updated",
        "message.created",
        "conversation.updated",
        "conversation.deleted",
    ];
    assert_eq!(types, expected);
    for ((_, source_event_id, data), version) in told.iter().zip(&versions) {
        assert_eq!(*source_event_id, format!("{}:v{}", made.id, version.version));
        let expected = match version.version {
            3 => serde_json::to_value(said.as_ref().unwrap()).unwrap(),
            _ => serde_json::to_value(version).unwrap(),
        };
        assert_eq!(*data, expected, "the whole object");
    }
    let said = said.unwrap();
    assert_eq!((said.conversation_id, said.conversation_version), (made.id, 3));
    assert_eq!((said.body.as_str(), said.created_at), ("Hello", versions[2].updated_at));
    assert_eq!(world.claim_all(endpoint).len(), 5, "each is delivered");
}

fn what_changes_nothing_tells_nothing(kind: Kind) {
    let mut world = World::new(kind);
    let made = world.create(Pending);
    let given = world.converse(made.id, transfer("a", None)).conversation().clone();
    world.advance(secs(1));
    for command in [
        status(Pending),
        transfer("a", None),
        transfer("a", Some(Pending)),
        Command::Patch { status: None, assignee: None },
        Command::Patch { status: Some(Pending), assignee: Some(Some(assignee("a"))) },
    ] {
        assert_eq!(world.converse(made.id, command), Outcome::Unchanged(given.clone()));
    }
    assert_eq!(world.conversation(made.id), Some(given));
    assert_eq!(world.told().len(), 2);
}

fn a_stale_version_changes_nothing(kind: Kind) {
    let world = World::new(kind);
    let made = world.create(Open);
    let given = world.converse(made.id, transfer("a", None)).conversation().clone();
    let expecting = |expected, command| {
        let request = ConverseRequest::Change { conversation: made.id, command, expected };
        let converse = Converse { tenant: world.tenant.clone(), request };
        let claim: Claim<Outcome> = claim("k", "{}");
        world.wait(world.store.converse(converse, Some(claim), world.now))
    };
    for command in [status(Closed), transfer("b", None), message("Hello"), Command::Delete] {
        let refused = expecting(Some(1), command).unwrap_err();
        assert_eq!(refused, StoreError::Refused(Refusal::Stale { current: 2 }));
    }
    assert_eq!(world.conversation(made.id), Some(given));
    assert_eq!(world.told().len(), 2);
    // What was refused has left the key free.
    let done = expecting(Some(2), status(Closed)).unwrap().done().unwrap();
    assert_eq!(done.conversation().version, 3);
    let missing = ConversationId::from_parts(1_750_000_000_000, 12_345, 999, 0);
    let nobody = world.try_converse_in(&world.tenant, missing, status(Closed));
    assert_eq!(nobody, Err(StoreError::Refused(Refusal::NotFound)));
}

/// However they interleave: as many events as versions, as versions that differ, as deliveries.
fn a_racing_status_and_transfer_send_one_event_a_state(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    for _ in 0..5 {
        let before = world.told().len();
        let made = world.create(Pending);
        let outcomes = world.at_once(50, |number, store, now| {
            let command = match number % 2 {
                0 => status(Open),
                _ => transfer("a", Some(Open)),
            };
            let converse = change(&TenantId::default_tenant(), made.id, command);
            async move { store.converse(converse, None, now).await.unwrap().done().unwrap() }
        });
        let end = world.conversation(made.id).unwrap();
        assert_eq!((end.status, end.assignee.clone()), (Open, Some(assignee("a"))));
        let state = |now: &Conversation| (now.status.as_str(), now.assignee.is_some());
        let mut states: BTreeSet<_> =
            outcomes.iter().map(|one| state(one.conversation())).collect();
        states.insert(state(&made));
        let changed = outcomes.iter().filter(|one| matches!(one, Outcome::Changed(_))).count();
        assert_eq!(states.len() as u64, end.version);
        assert_eq!(changed as u64, end.version - 1);
        let told: Vec<_> = world.told().into_iter().skip(before).map(|(_, id, _)| id).collect();
        let all: Vec<_> = (1..=end.version).map(|n| format!("{}:v{n}", made.id)).collect();
        assert_eq!(told, all);
        assert_eq!(world.claim_all(endpoint).len() as u64, end.version);
    }
}

fn what_is_deleted_is_gone_and_listed_as_deleted(kind: Kind) {
    let mut world = World::new(kind);
    let (made, other) = (world.create(Open), world.create(Open));
    world.converse(made.id, message("Hello"));
    world.advance(ms(5));
    let deleted = world.converse(made.id, Command::Delete).conversation().clone();
    assert_eq!((deleted.version, deleted.deleted_at), (3, Some(world.now)));
    world.advance(ms(5));
    for command in [status(Closed), message("Too late"), Command::Delete] {
        let refused = world.try_converse_in(&world.tenant, made.id, command);
        assert_eq!(refused, Err(StoreError::Refused(Refusal::NotFound)));
    }
    assert_eq!((world.conversation(made.id), world.messages(made.id, 5)), (None, None));
    assert_eq!(world.all_changed_since(None, 1), std::slice::from_ref(&other));
    let from = Some(made.created_at);
    assert_eq!(world.all_changed_since(from, 1), [other, deleted], "with its last version");
}

fn a_key_converses_once(kind: Kind) {
    let mut world = World::new(kind);
    let made = world.create(Open);
    let say = |world: &World, body: &str, under: &str| {
        let claim: Claim<Outcome> = claim(under, body);
        let converse = change(&world.tenant, made.id, message(body));
        world.wait(world.store.converse(converse, Some(claim), world.now)).unwrap()
    };
    let Claimed::Done(outcome) = say(&world, "Hello", "k") else { panic!("a new key") };
    let answered = crate::sketch::answer(&format!("{outcome:?}"));
    world.crash();
    assert_eq!(say(&world, "Hello", "k"), Claimed::Replayed(answered));
    assert_eq!(say(&world, "Other", "k"), Claimed::Mismatch);
    assert_eq!(world.messages(made.id, 5).unwrap().len(), 1);
    assert_eq!(world.told().len(), 2);
    let Claimed::Done(again) = say(&world, "Hello", "l") else { panic!("a new key") };
    assert_eq!(again.conversation().version, 3, "under another key it is another message");
}

fn a_source_event_id_that_was_used_before_hides_no_change(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let made = world.create(Open);
    let second = format!("{}:v2", made.id);
    let somebodys = world.publish_one(keyed(&second, "1"));
    assert!(!somebodys.duplicate);
    world.converse(made.id, status(Closed));
    let told = world.told();
    assert_eq!(told.len(), 3);
    assert_eq!((told[2].0.as_str(), &told[2].1), ("conversation.updated", &second));
    assert_eq!(world.claim_all(endpoint).len(), 3);
    // From then on the ID is the conversation's.
    let late = world.publish_one(keyed(&second, "1"));
    assert!(late.duplicate && late.differs && late.id != somebodys.id, "{late:?}");
}

fn conversations_are_their_tenants_own(kind: Kind) {
    let world = World::new(kind);
    let shop = world.add_tenant("shop");
    let made = world.create_in(&shop, NewConversation::default());
    world.try_converse_in(&shop, made.id, message("Hello")).unwrap();
    let endpoint = world.endpoint();
    let refused = world.try_converse_in(&world.tenant, made.id, status(Closed));
    assert_eq!(refused, Err(StoreError::Refused(Refusal::NotFound)));
    assert_eq!((world.conversation(made.id), world.messages(made.id, 5)), (None, None));
    assert_eq!(world.all_changed_since(Some(Timestamp::default()), 5), []);
    assert_eq!((world.told(), world.claim_all(endpoint)), (vec![], vec![]));
}

fn messages_are_listed_newest_first(kind: Kind) {
    let world = World::new(kind);
    let (made, other) = (world.create(Open), world.create(Open));
    world.converse(other.id, message("Not this one"));
    for number in 0..5 {
        world.converse(made.id, message(&number.to_string()));
        world.converse(made.id, transfer(&format!("a{number}"), None));
    }
    for limit in [1, 2, 5, 100] {
        let messages = world.messages(made.id, limit).unwrap();
        let shown: Vec<_> =
            messages.iter().map(|one| (one.body.as_str(), one.conversation_version)).collect();
        assert_eq!(shown, [("4", 10), ("3", 8), ("2", 6), ("1", 4), ("0", 2)]);
    }
    assert_eq!(world.messages(other.id, 2).unwrap().len(), 1);
}
