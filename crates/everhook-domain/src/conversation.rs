//! Conversations, the built-in resource: a small thing with versions that shows how webhooks and
//! retried calls are made safe.
//!
//! Each change raises the version by one and is told by one event, which holds the whole object. So
//! whoever keeps a copy compares versions, and needs no order of arrival. What changes nothing
//! raises no version and tells nothing. A deleted conversation stays as a tombstone with its last
//! version: whoever asks what has changed since then learns of it.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::to_raw_value;

use crate::event::{Envelope, EventType, NewEvent, Origin, SourceEventId};
use crate::id::{ConversationId, MessageId};
use crate::time::Timestamp;

/// Longest subject, in bytes.
pub const SUBJECT_BYTES_MAX: usize = 1_000;
/// Longest assignee, in bytes.
pub const ASSIGNEE_BYTES_MAX: usize = 255;
/// Longest body of a message, in bytes: written as JSON it stays below 1 MiB, whatever is in it.
pub const MESSAGE_BYTES_MAX: usize = 65_536;

/// What a conversation is about.
pub type Subject = Text<SUBJECT_BYTES_MAX>;
/// Who has it.
pub type Assignee = Text<ASSIGNEE_BYTES_MAX>;
/// What a message says.
pub type MessageBody = Text<MESSAGE_BYTES_MAX>;

/// 1 to `BYTES_MAX` bytes of any text without NUL, which PostgreSQL cannot store. Taken as it is.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Text<const BYTES_MAX: usize>(Box<str>);

/// The text is empty, too long, or holds a NUL character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {bytes_max} bytes, and no NUL character")]
pub struct InvalidText {
    bytes_max: usize,
}

impl<const BYTES_MAX: usize> Text<BYTES_MAX> {
    /// A text of this length.
    ///
    /// # Errors
    /// [`InvalidText`] names the rule.
    pub fn parse(text: &str) -> Result<Self, InvalidText> {
        if (1..=BYTES_MAX).contains(&text.len()) && !text.contains('\0') {
            Ok(Self(Box::from(text)))
        } else {
            Err(InvalidText { bytes_max: BYTES_MAX })
        }
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const BYTES_MAX: usize> fmt::Debug for Text<BYTES_MAX> {
    /// The length only: what people write stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.0.len())
    }
}

/// Where a conversation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConversationStatus {
    /// Somebody is to act: where none is named, it begins so.
    #[default]
    Open,
    /// It waits for something.
    Pending,
    /// Nobody is to act.
    Closed,
}

impl ConversationStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Open, Self::Pending, Self::Closed];

    /// The word used in JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Pending => "pending",
            Self::Closed => "closed",
        }
    }

    /// The status with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl Serialize for ConversationStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A conversation, as it is shown and as events tell of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conversation {
    /// Its id.
    pub id: ConversationId,
    /// What it is about.
    pub subject: Option<Subject>,
    /// Where it stands.
    pub status: ConversationStatus,
    /// Who has it.
    pub assignee: Option<Assignee>,
    /// Which of its changes made it so: 1 when it was made, one more with each change.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed; it never falls.
    pub updated_at: Timestamp,
    /// When it was deleted: this is all that is left, and the last version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// A message in a conversation, as it is shown and as its event tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// What it says.
    pub body: MessageBody,
    /// When it was added.
    pub created_at: Timestamp,
    /// The version that the conversation has by it.
    pub conversation_version: u64,
}

/// What a conversation is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewConversation {
    /// What it is about.
    pub subject: Option<Subject>,
    /// Where it stands.
    pub status: ConversationStatus,
    /// Who has it.
    pub assignee: Option<Assignee>,
}

/// What is to be done with a conversation that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sets what is named.
    Patch {
        /// Where it is to stand; `None`: as before.
        status: Option<ConversationStatus>,
        /// Who is to have it, or that nobody is; `None`: as before.
        assignee: Option<Option<Assignee>>,
    },
    /// Gives it to somebody and, in the same change, sets the status.
    Transfer {
        /// Who is to have it.
        assignee: Assignee,
        /// Where it is to stand; `None`: as before.
        status: Option<ConversationStatus>,
    },
    /// Adds a message.
    Message {
        /// What it says.
        body: MessageBody,
    },
    /// Deletes it.
    Delete,
}

/// What the store gives to a change. `at` must not be before any earlier change's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When it happens.
    pub at: Timestamp,
    /// The id of the message that it may add.
    pub message: MessageId,
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is a new version.
    Changed(Change),
    /// It was so already: same version, and nothing to tell.
    Unchanged(Conversation),
}

/// A change: to be stored, and told by [`Change::event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The conversation after it.
    pub conversation: Conversation,
    /// The message that was added.
    pub message: Option<Message>,
}

/// Why a command is not done. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDone {
    /// The conversation is deleted.
    #[error("it is deleted")]
    Deleted,
    /// It has another version than was expected.
    #[error("it has version {current} now; read it again")]
    Stale {
        /// The version that it has.
        current: u64,
    },
}

/// The change that makes a conversation.
pub fn create(id: ConversationId, new: NewConversation, at: Timestamp) -> Change {
    let NewConversation { subject, status, assignee } = new;
    let conversation = Conversation {
        id,
        subject,
        status,
        assignee,
        version: 1,
        created_at: at,
        updated_at: at,
        deleted_at: None,
    };
    Change { conversation, message: None }
}

/// What becomes of a conversation by a command: the same, one version more, or nothing because it
/// has another version than `expected`.
///
/// # Errors
/// [`NotDone`].
pub fn decide(
    before: &Conversation,
    command: &Command,
    expected: Option<u64>,
    stamp: Stamp,
) -> Result<Outcome, NotDone> {
    if before.deleted_at.is_some() {
        return Err(NotDone::Deleted);
    }
    if expected.is_some_and(|expected| expected != before.version) {
        return Err(NotDone::Stale { current: before.version });
    }
    let mut after = before.clone();
    let mut message = None;
    match command {
        Command::Patch { status, assignee } => {
            after.status = status.unwrap_or(before.status);
            after.assignee = assignee.clone().unwrap_or_else(|| before.assignee.clone());
        }
        Command::Transfer { assignee, status } => {
            after.assignee = Some(assignee.clone());
            after.status = status.unwrap_or(before.status);
        }
        Command::Message { body } => {
            message = Some(Message {
                id: stamp.message,
                conversation_id: before.id,
                body: body.clone(),
                created_at: stamp.at,
                conversation_version: before.version + 1,
            });
        }
        Command::Delete => after.deleted_at = Some(stamp.at),
    }
    if message.is_none() && after == *before {
        return Ok(Outcome::Unchanged(after));
    }
    after.version = before.version + 1;
    after.updated_at = stamp.at;
    Ok(Outcome::Changed(Change { conversation: after, message }))
}

impl Outcome {
    /// The conversation as it is now.
    pub const fn conversation(&self) -> &Conversation {
        match self {
            Self::Changed(change) => &change.conversation,
            Self::Unchanged(conversation) => conversation,
        }
    }

    /// The message that was added.
    pub const fn message(&self) -> Option<&Message> {
        match self {
            Self::Changed(change) => change.message.as_ref(),
            Self::Unchanged(_) => None,
        }
    }
}

impl Change {
    /// The event that tells of it: the whole conversation, or of a message the message. Its source
    /// event ID names conversation and version, so no two changes have the same.
    pub fn event(&self) -> NewEvent {
        let Conversation { id, version, updated_at: timestamp, .. } = self.conversation;
        let event_type = EventType::own(self.event_type());
        let data = match &self.message {
            Some(message) => to_raw_value(message),
            None => to_raw_value(&self.conversation),
        };
        // Text, numbers and times: nothing in them cannot be written.
        let data = data.unwrap_or_default();
        NewEvent {
            envelope: Envelope::compose(&event_type, timestamp, &data),
            event_type,
            origin: Origin::Published,
            source_event_id: Some(SourceEventId::of_version(&id, version)),
            timestamp,
        }
    }

    const fn event_type(&self) -> &'static str {
        match self {
            Self { message: Some(_), .. } => "message.created",
            Self { conversation: Conversation { deleted_at: Some(_), .. }, .. } => {
                "conversation.deleted"
            }
            Self { conversation: Conversation { version: 1, .. }, .. } => "conversation.created",
            Self { .. } => "conversation.updated",
        }
    }
}
