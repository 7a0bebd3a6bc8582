//! Conversations: the built-in resource with versions.

use async_trait::async_trait;
use everhook_domain::conversation::{Command, Conversation, Message, NewConversation, Outcome};
use everhook_domain::id::ConversationId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use crate::claim::{Claim, Claimed};
use crate::error::StoreError;
use crate::reading::{Page, PageRequest, Position};

/// A change of one conversation.
#[derive(Clone, Debug)]
pub struct Converse {
    /// Whose it is.
    pub tenant: TenantId,
    /// What is asked.
    pub request: ConverseRequest,
}

/// What is asked of conversations.
#[derive(Clone, Debug)]
pub enum ConverseRequest {
    /// To make one.
    Create(NewConversation),
    /// To change one that is there.
    Change {
        /// Which one.
        conversation: ConversationId,
        /// How.
        command: Command,
        /// Only if it has this version; `None`: whichever it has.
        expected: Option<u64>,
    },
}

/// Which change of a tenant made a conversation what it is: where a list by change goes on. Changes
/// are numbered in the order of their commits, and an instant never falls with the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangedAt {
    pub(crate) at: Timestamp,
    pub(crate) number: u64,
}

impl ChangedAt {
    /// Before every change at this instant or later.
    pub(crate) const fn before(at: Timestamp) -> Self {
        Self { at, number: 0 }
    }

    /// Where a list by change begins: after the page before it, but not before `from`.
    pub(crate) fn start(from: Option<Timestamp>, after: Option<Position>) -> Self {
        let from = Self::before(from.unwrap_or(Timestamp::from_millis(i64::MIN)));
        after.map_or(from, |after| Self::from(after).max(from))
    }
}

impl From<ChangedAt> for Position {
    fn from(changed: ChangedAt) -> Self {
        // The sign is turned over, so that positions sort as instants do.
        let at = changed.at.as_millis().cast_unsigned() ^ 1 << 63;
        Self(u128::from(at) << 64 | u128::from(changed.number))
    }
}

impl From<Position> for ChangedAt {
    fn from(Position(bits): Position) -> Self {
        let at = ((bits >> 64) as u64 ^ 1 << 63).cast_signed();
        Self { at: Timestamp::from_millis(at), number: bits as u64 }
    }
}

/// What the versions of a page of messages are below: each message has a version of its own.
pub(crate) fn version_before(after: Option<Position>) -> u64 {
    after.map_or(u64::MAX, |Position(version)| u64::try_from(version).unwrap_or(u64::MAX))
}

/// The page in what was found after its beginning: at most one thing more than it may hold.
pub(crate) fn page<T>(mut found: Vec<(Position, T)>, limit: usize) -> Page<T> {
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|(position, _)| *position);
    Page { items: found.into_iter().map(|(_, item)| item).collect(), next }
}

/// Conversations.
#[async_trait]
pub trait Conversations: Send + Sync {
    /// Makes or changes a conversation by the rules of
    /// [`decide`](everhook_domain::conversation::decide): its new version, the message that it
    /// adds, the event that tells of it with its deliveries, and the claim's answer, in one
    /// transaction that has reached the disk when this returns.
    ///
    /// Changes of one conversation come one after the other, each on the version before it. Each
    /// publishes exactly one event, whatever was published under its source event ID before; what
    /// changes nothing publishes none. The instants of a tenant's changes never fall, whatever
    /// `now` is.
    ///
    /// # Errors
    /// `Refused(NotFound)`: no such conversation in this tenant, or it is deleted.
    /// `Refused(Stale { … })`: it has another version than was expected.
    async fn converse(
        &self,
        converse: Converse,
        claim: Option<Claim<Outcome>>,
        now: Timestamp,
    ) -> Result<Claimed<Outcome>, StoreError>;

    /// A conversation of this tenant, unless it is deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn conversation(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
    ) -> Result<Option<Conversation>, StoreError>;

    /// The messages of a conversation, newest first; `None` where there is no such conversation, or
    /// it is deleted.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn messages(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
        page: PageRequest,
    ) -> Result<Option<Page<Message>>, StoreError>;

    /// A tenant's conversations, the one whose last change is oldest first. With `from`: those that
    /// changed at it or later, the deleted ones among them. Without: those that are there.
    ///
    /// Pages go on by the number of the change, so equal instants are told apart, and what changes
    /// while pages are read comes again behind, as its new version: none is left out, and none
    /// comes twice as the same version.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn changed_since(
        &self,
        tenant: TenantId,
        from: Option<Timestamp>,
        page: PageRequest,
    ) -> Result<Page<Conversation>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_sort_as_changes_do_and_come_back() {
        let at = Timestamp::from_millis;
        let sorted = [
            ChangedAt { at: at(i64::MIN), number: 1 },
            ChangedAt { at: at(-1), number: u64::MAX },
            ChangedAt::before(at(0)),
            ChangedAt { at: at(0), number: 1 },
            ChangedAt { at: at(1_750_000_000_000), number: 7 },
            ChangedAt { at: at(1_750_000_000_000), number: 8 },
            ChangedAt { at: at(i64::MAX), number: 2 },
        ];
        let positions = sorted.map(Position::from);
        assert!(positions.is_sorted_by(|a, b| a.0 < b.0), "{positions:?}");
        assert_eq!(positions.map(ChangedAt::from), sorted);
    }

    #[test]
    fn a_page_never_begins_before_from() {
        let at = Timestamp::from_millis;
        let page = ChangedAt { at: at(5), number: 3 };
        for (from, after, expected) in [
            (None, None, ChangedAt::before(at(i64::MIN))),
            (Some(at(5)), None, ChangedAt::before(at(5))),
            (Some(at(5)), Some(page.into()), page),
            (Some(at(6)), Some(page.into()), ChangedAt::before(at(6))),
            (None, Some(page.into()), page),
        ] {
            assert_eq!(ChangedAt::start(from, after), expected);
        }
    }
}
