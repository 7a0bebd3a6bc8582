//! `converse`: a conversation's next version, and the event that tells of it. Lists of
//! conversations and messages.

use async_trait::async_trait;
use everhook_domain::conversation::{self, Change, Conversation, Message, Outcome, Stamp, Text};
use everhook_domain::id::{ConversationId, Id};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::command::{Verb, VerbError};
use super::reading::Reader;
use super::row::{bad, signed, unsigned};
use super::tx::Tx;
use super::{SqliteStore, claimed, publish};
use crate::claim::{Claim, Claimed};
use crate::code;
use crate::conversations::{
    ChangedAt, Conversations, Converse, ConverseRequest, page, version_before,
};
use crate::error::{Refusal, StoreError};
use crate::reading::{Page, PageRequest, Position};

/// What [`read`] reads, in its order.
const COLUMNS: &str = "seq, created_at, subject, status, assignee, version, updated_at, deleted_at";

#[async_trait]
impl Conversations for SqliteStore {
    async fn converse(
        &self,
        converse: Converse,
        claim: Option<Claim<Outcome>>,
        now: Timestamp,
    ) -> Result<Claimed<Outcome>, StoreError> {
        self.run(ConverseVerb { converse, claim, now }).await
    }

    async fn conversation(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
    ) -> Result<Option<Conversation>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| Ok(reader.conversation(tenant, conversation)?)).await
    }

    async fn messages(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
        page: PageRequest,
    ) -> Result<Option<Page<Message>>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| Ok(reader.messages(tenant, conversation, page)?)).await
    }

    async fn changed_since(
        &self,
        tenant: TenantId,
        from: Option<Timestamp>,
        page: PageRequest,
    ) -> Result<Page<Conversation>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| Ok(reader.changed_since(tenant, from, page)?)).await
    }
}

/// The verb.
struct ConverseVerb {
    converse: Converse,
    claim: Option<Claim<Outcome>>,
    now: Timestamp,
}

impl Verb for ConverseVerb {
    type Output = Claimed<Outcome>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let tenant = tx.tenant(&self.converse.tenant)?;
        claimed::run(tx, self.claim.as_ref(), self.now, |tx| self.run_once(tx, tenant))
    }
}

impl ConverseVerb {
    fn run_once(&self, tx: &mut Tx<'_>, tenant: i64) -> Result<Outcome, VerbError> {
        // As those of events: in the order of the commits, and the instants never fall.
        let (number, at) = tx.next_event(self.now);
        let outcome = match &self.converse.request {
            ConverseRequest::Create(new) => {
                let id = id_of(number, at, tx.tag());
                Outcome::Changed(conversation::create(id, new.clone(), at))
            }
            ConverseRequest::Change { conversation, command, expected } => {
                let before = find(tx.connection, tenant, *conversation, tx.tag())?;
                let before = before.ok_or(Refusal::NotFound)?;
                let stamp = Stamp { at, message: id_of(number, at, tx.tag()) };
                let decided = conversation::decide(&before, command, *expected, stamp);
                decided.map_err(Refusal::from)?
            }
        };
        if let Outcome::Changed(change) = &outcome {
            write(tx.connection, tenant, change, number)?;
            publish::own(tx, self.converse.tenant.clone(), change.event(), self.now)?;
        }
        Ok(outcome)
    }
}

/// The id of what was made as number so-and-so.
fn id_of<K>(number: i64, at: Timestamp, tag: u16) -> Id<K> {
    Id::from_parts(unsigned(at.as_millis()), unsigned(number), tag, 0)
}

/// Writes a change: the conversation as it is by it, and its message.
fn write(
    connection: &Connection,
    tenant: i64,
    Change { conversation, message }: &Change,
    number: i64,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO conversations (seq, tenant, created_at, subject, status, assignee, \
             version, updated_at, change, deleted_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
             ON CONFLICT (seq) DO UPDATE SET status = excluded.status, \
             assignee = excluded.assignee, version = excluded.version, \
             updated_at = excluded.updated_at, change = excluded.change, \
             deleted_at = excluded.deleted_at",
        )?
        .execute(params![
            signed(conversation.id.sequence()),
            tenant,
            conversation.created_at.as_millis(),
            conversation.subject.as_ref().map(Text::as_str),
            code::conversation_status(conversation.status),
            conversation.assignee.as_ref().map(Text::as_str),
            signed(conversation.version),
            conversation.updated_at.as_millis(),
            number,
            conversation.deleted_at.map(Timestamp::as_millis),
        ])?;
    let Some(message) = message else { return Ok(()) };
    connection
        .prepare_cached(
            "INSERT INTO messages (seq, tenant, conversation, created_at, version, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            signed(message.id.sequence()),
            tenant,
            signed(message.conversation_id.sequence()),
            message.created_at.as_millis(),
            signed(message.conversation_version),
            message.body.as_str(),
        ])?;
    Ok(())
}

/// A conversation of this tenant, deleted or not.
fn find(
    connection: &Connection,
    tenant: i64,
    id: ConversationId,
    tag: u16,
) -> rusqlite::Result<Option<Conversation>> {
    let found = connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM conversations WHERE seq = ?1 AND tenant = ?2"
        ))?
        .query_row([signed(id.sequence()), tenant], |row| read(row, tag))
        .optional()?;
    Ok(found.filter(|conversation| conversation.id == id))
}

/// Reads [`COLUMNS`].
fn read(row: &Row<'_>, tag: u16) -> rusqlite::Result<Conversation> {
    let created_at = Timestamp::from_millis(row.get(1)?);
    Ok(Conversation {
        id: id_of(row.get(0)?, created_at, tag),
        subject: text(row, 2)?,
        status: code::read_conversation_status(row.get(3)?).map_err(bad)?,
        assignee: text(row, 4)?,
        version: unsigned(row.get(5)?),
        created_at,
        updated_at: Timestamp::from_millis(row.get(6)?),
        deleted_at: row.get::<_, Option<i64>>(7)?.map(Timestamp::from_millis),
    })
}

/// A text that may not be there.
fn text<const MAX: usize>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Text<MAX>>> {
    let stored: Option<String> = row.get(column)?;
    stored.map(|stored| parse(&stored, column)).transpose()
}

fn parse<const MAX: usize>(stored: &str, column: usize) -> rusqlite::Result<Text<MAX>> {
    Text::parse(stored).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
    })
}

impl Reader<'_> {
    /// A conversation of this tenant that is not deleted.
    fn conversation(
        &self,
        tenant: i64,
        id: ConversationId,
    ) -> rusqlite::Result<Option<Conversation>> {
        let found = find(self.connection, tenant, id, self.catalog.tag)?;
        Ok(found.filter(|conversation| conversation.deleted_at.is_none()))
    }

    /// The messages of a conversation, newest first.
    fn messages(
        &self,
        tenant: i64,
        of: ConversationId,
        wanted: PageRequest,
    ) -> rusqlite::Result<Option<Page<Message>>> {
        if self.conversation(tenant, of)?.is_none() {
            return Ok(None);
        }
        let below = signed(version_before(wanted.after));
        let found = self
            .connection
            .prepare_cached(
                "SELECT seq, created_at, version, body FROM messages \
                 WHERE conversation = ?1 AND version < ?2 ORDER BY version DESC LIMIT ?3",
            )?
            .query_map(params![signed(of.sequence()), below, one_more(wanted)], |row| {
                let created_at = Timestamp::from_millis(row.get(1)?);
                let message = Message {
                    id: id_of(row.get(0)?, created_at, self.catalog.tag),
                    conversation_id: of,
                    body: parse(&row.get::<_, String>(3)?, 3)?,
                    created_at,
                    conversation_version: unsigned(row.get(2)?),
                };
                Ok((Position(message.conversation_version.into()), message))
            })?
            .collect::<Result<_, _>>()?;
        Ok(Some(page(found, wanted.limit)))
    }

    /// A tenant's conversations by their last change.
    fn changed_since(
        &self,
        tenant: i64,
        from: Option<Timestamp>,
        wanted: PageRequest,
    ) -> rusqlite::Result<Page<Conversation>> {
        let start = ChangedAt::start(from, wanted.after);
        let present = if from.is_some() { "" } else { "AND deleted_at IS NULL" };
        let values = params![tenant, start.at.as_millis(), signed(start.number), one_more(wanted)];
        let found = self
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS}, change FROM conversations \
                 WHERE tenant = ?1 AND (updated_at, change) > (?2, ?3) {present} \
                 ORDER BY updated_at, change LIMIT ?4"
            ))?
            .query_map(values, |row| {
                let conversation = read(row, self.catalog.tag)?;
                let number = unsigned(row.get(8)?);
                Ok((ChangedAt { at: conversation.updated_at, number }.into(), conversation))
            })?
            .collect::<Result<_, _>>()?;
        Ok(page(found, wanted.limit))
    }
}

/// One thing more than the page may hold, which tells whether another page follows.
fn one_more(wanted: PageRequest) -> i64 {
    i64::try_from(wanted.limit.saturating_add(1)).unwrap_or(i64::MAX)
}
