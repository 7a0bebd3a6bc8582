use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::id::EventId;

const MADE: Timestamp = Timestamp::from_millis(1_750_000_000_000);
const LATER: Stamp = Stamp {
    at: Timestamp::from_millis(1_750_000_000_005),
    message: MessageId::from_parts(1_750_000_000_005, 9, 7, 0),
};

fn id() -> ConversationId {
    ConversationId::from_parts(1_750_000_000_000, 3, 7, 0)
}

fn assignee(text: &str) -> Assignee {
    Assignee::parse(text).expect("legal")
}

fn patch(status: Option<ConversationStatus>, to: Option<Option<&str>>) -> Command {
    Command::Patch { status, assignee: to.map(|to| to.map(assignee)) }
}

fn transfer(to: &str, status: Option<ConversationStatus>) -> Command {
    Command::Transfer { assignee: assignee(to), status }
}

fn message(body: &str) -> Command {
    Command::Message { body: MessageBody::parse(body).expect("legal") }
}

/// A pending conversation of version 2, that `a` has.
fn pending() -> Conversation {
    let new = NewConversation {
        subject: Some(Subject::parse("A bill").expect("legal")),
        status: ConversationStatus::Pending,
        assignee: Some(assignee("a")),
    };
    let made = create(id(), new, MADE).conversation;
    Conversation { version: 2, ..made }
}

/// What a command makes of the pending conversation: status, assignee and version, or that it is
/// not done.
fn check(command: Command, expected: Option<u64>, result: Result<(&str, Option<&str>, u64), &str>) {
    let before = pending();
    let outcome = decide(&before, &command, expected, LATER);
    let found = match &outcome {
        Ok(outcome) => {
            let now = outcome.conversation();
            let changed = matches!(outcome, Outcome::Changed(_));
            assert_eq!(changed, now.version == before.version + 1, "{command:?}");
            assert_eq!(now.updated_at, if changed { LATER.at } else { MADE }, "{command:?}");
            assert_eq!(now.created_at, MADE);
            Ok((now.status.as_str(), now.assignee.as_ref().map(Text::as_str), now.version))
        }
        Err(not_done) => Err(not_done.to_string()),
    };
    assert_eq!(found, result.map_err(ToOwned::to_owned), "{command:?}");
}

#[test]
fn commands() {
    use ConversationStatus::{Open, Pending};
    let same = Ok(("pending", Some("a"), 2));
    check(patch(None, None), None, same);
    check(patch(Some(Pending), None), None, same);
    check(patch(Some(Pending), Some(Some("a"))), Some(2), same);
    check(patch(Some(Open), None), None, Ok(("open", Some("a"), 3)));
    check(patch(None, Some(Some("b"))), None, Ok(("pending", Some("b"), 3)));
    check(patch(None, Some(None)), None, Ok(("pending", None, 3)));
    check(patch(Some(Open), Some(None)), Some(2), Ok(("open", None, 3)));
    check(transfer("a", None), None, same);
    check(transfer("a", Some(Pending)), None, same);
    check(transfer("b", None), None, Ok(("pending", Some("b"), 3)));
    check(transfer("b", Some(Open)), None, Ok(("open", Some("b"), 3)));
    check(message("Hello"), None, Ok(("pending", Some("a"), 3)));
    check(Command::Delete, Some(2), Ok(("pending", Some("a"), 3)));
    for stale in [0, 1, 3] {
        let expected = Err("it has version 2 now; read it again");
        check(patch(None, None), Some(stale), expected);
        check(message("Hello"), Some(stale), expected);
        check(Command::Delete, Some(stale), expected);
    }
}

#[test]
fn what_is_deleted_is_not_changed() {
    let Ok(Outcome::Changed(Change { conversation, .. })) =
        decide(&pending(), &Command::Delete, None, LATER)
    else {
        panic!("it is deleted");
    };
    assert_eq!(conversation.deleted_at, Some(LATER.at));
    for command in [patch(None, None), message("Hello"), Command::Delete] {
        let outcome = decide(&conversation, &command, Some(3), LATER);
        assert_eq!(outcome, Err(NotDone::Deleted), "{command:?}");
    }
}

/// Type, source event ID and data of the event that tells of a change.
fn told(change: &Change) -> (String, String, Value) {
    let event = change.event();
    assert_eq!(event.origin, Origin::Published);
    assert_eq!(event.timestamp, change.conversation.updated_at);
    let source_event_id = event.source_event_id.expect("it has one");
    let sealed = event.envelope.seal(EventId::from_parts(1, 2, 3, 0));
    let envelope: Value = serde_json::from_slice(&sealed).expect("JSON");
    assert_eq!(envelope["type"], event.event_type.as_str());
    let data = envelope["data"].clone();
    (event.event_type.to_string(), source_event_id.as_str().to_owned(), data)
}

#[test]
fn events_hold_the_whole_object() {
    let made = create(id(), NewConversation::default(), MADE);
    let shown = json!({
        "id": id().to_string(),
        "subject": null,
        "status": "open",
        "assignee": null,
        "version": 1,
        "created_at": "2025-06-15T15:06:40.000Z",
        "updated_at": "2025-06-15T15:06:40.000Z",
    });
    assert_eq!(told(&made), ("conversation.created".to_owned(), format!("{}:v1", id()), shown));
    for (command, event_type, data) in [
        (
            transfer("b", None),
            "conversation.updated",
            json!({
                "id": id().to_string(),
                "subject": "A bill",
                "status": "pending",
                "assignee": "b",
                "version": 3,
                "created_at": "2025-06-15T15:06:40.000Z",
                "updated_at": "2025-06-15T15:06:40.005Z",
            }),
        ),
        (
            message("ä\n"),
            "message.created",
            json!({
                "id": LATER.message.to_string(),
                "conversation_id": id().to_string(),
                "body": "ä\n",
                "created_at": "2025-06-15T15:06:40.005Z",
                "conversation_version": 3,
            }),
        ),
        (
            Command::Delete,
            "conversation.deleted",
            json!({
                "id": id().to_string(),
                "subject": "A bill",
                "status": "pending",
                "assignee": "a",
                "version": 3,
                "created_at": "2025-06-15T15:06:40.000Z",
                "updated_at": "2025-06-15T15:06:40.005Z",
                "deleted_at": "2025-06-15T15:06:40.005Z",
            }),
        ),
    ] {
        let Ok(Outcome::Changed(change)) = decide(&pending(), &command, None, LATER) else {
            panic!("{command:?} changes it");
        };
        assert_eq!(told(&change), (event_type.to_owned(), format!("{}:v3", id()), data));
    }
}

#[test]
fn texts() {
    for good in ["a", " ", "Ä", &"x".repeat(ASSIGNEE_BYTES_MAX)] {
        assert_eq!(Assignee::parse(good).as_ref().map(Text::as_str), Ok(good));
    }
    for bad in ["", "a\0b", &"x".repeat(ASSIGNEE_BYTES_MAX + 1), &"ä".repeat(128)] {
        let error = Assignee::parse(bad).expect_err(bad);
        assert_eq!(error.to_string(), "must have 1 to 255 bytes, and no NUL character");
    }
    assert_eq!(format!("{:?}", assignee("secret")), "Text(6 bytes)");
}

#[test]
fn statuses() {
    for status in ConversationStatus::ALL {
        assert_eq!(ConversationStatus::from_word(status.as_str()), Some(status));
    }
    assert_eq!(ConversationStatus::from_word("Open"), None);
}

fn any_command() -> impl Strategy<Value = Command> {
    let status = || prop::option::of(prop::sample::select(&ConversationStatus::ALL[..]));
    let to = || prop::sample::select(&["a", "b"][..]);
    prop_oneof![
        4 => (status(), prop::option::of(prop::option::of(to()))).prop_map(|(s, a)| patch(s, a)),
        4 => (to(), status()).prop_map(|(to, status)| transfer(to, status)),
        2 => Just(message("Hello")),
        1 => Just(Command::Delete),
    ]
}

proptest! {
    /// Versions count the changes, each is told once, and what is not told has changed nothing.
    #[test]
    fn versions_count_the_changes(
        commands in prop::collection::vec((any_command(), prop::option::of(1..20_u64)), 0..20),
    ) {
        let mut now = create(id(), NewConversation::default(), MADE).conversation;
        let mut told = vec![format!("{}:v1", now.id)];
        for (place, (command, expected)) in (1_i64..).zip(commands) {
            let stamp = Stamp { at: Timestamp::from_millis(MADE.as_millis() + place), ..LATER };
            match decide(&now, &command, expected, stamp) {
                Ok(Outcome::Changed(change)) => {
                    let after = change.conversation.clone();
                    prop_assert!(expected.is_none_or(|expected| expected == now.version));
                    prop_assert_eq!(after.version, now.version + 1);
                    prop_assert_eq!(after.updated_at, stamp.at);
                    let source_event_id = change.event().source_event_id;
                    told.extend(source_event_id.map(|id| id.as_str().to_owned()));
                    // Done again, it would change nothing, but for a message.
                    if after.deleted_at.is_none() && change.message.is_none() {
                        let again = decide(&after, &command, None, stamp);
                        prop_assert_eq!(again, Ok(Outcome::Unchanged(after.clone())));
                    }
                    now = after;
                }
                Ok(Outcome::Unchanged(same)) => prop_assert_eq!(&same, &now),
                Err(NotDone::Deleted) => prop_assert!(now.deleted_at.is_some()),
                Err(NotDone::Stale { current }) => {
                    prop_assert_eq!(current, now.version);
                    prop_assert_ne!(expected, Some(current));
                }
            }
        }
        let all = (1..=now.version).map(|version| format!("{}:v{version}", now.id));
        let all: Vec<_> = all.collect();
        prop_assert_eq!(told, all);
    }
}
