//! `converse`: a conversation's next version, and the event that tells of it. Lists of
//! conversations and messages.

use async_trait::async_trait;
use everhook_domain::conversation::{self, Change, Conversation, Message, Outcome, Stamp, Text};
use everhook_domain::id::{ConversationId, MessageId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;

use super::failure::VerbError;
use super::ids::Ids;
use super::number::{Bits, signed, size, small, unsigned};
use super::tx::{Access, Tx};
use super::{PostgresStore, claimed, publish};
use crate::claim::{Claim, Claimed};
use crate::code;
use crate::conversations::{
    ChangedAt, Conversations, Converse, ConverseRequest, page, version_before,
};
use crate::error::{Refusal, StoreError};
use crate::reading::{Page, PageRequest, Position};

/// What [`read`] reads, in its order.
const COLUMNS: &str = "id, created_at, subject, status, assignee, version, updated_at, deleted_at";

#[async_trait]
impl Conversations for PostgresStore {
    async fn converse(
        &self,
        converse: Converse,
        claim: Option<Claim<Outcome>>,
        now: Timestamp,
    ) -> Result<Claimed<Outcome>, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = self::converse(&mut tx, &self.ids, &converse, claim.as_ref()).await;
        let outcome = self.end(tx, done).await?;
        self.count_keys(1 + usize::from(claim.is_some()));
        Ok(outcome)
    }

    async fn conversation(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
    ) -> Result<Option<Conversation>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = present(&mut tx, &tenant, conversation).await;
        self.end(tx, done).await
    }

    async fn messages(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
        page: PageRequest,
    ) -> Result<Option<Page<Message>>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = messages(&mut tx, &tenant, conversation, page).await;
        self.end(tx, done).await
    }

    async fn changed_since(
        &self,
        tenant: TenantId,
        from: Option<Timestamp>,
        page: PageRequest,
    ) -> Result<Page<Conversation>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = changed_since(&mut tx, &tenant, from, page).await;
        self.end(tx, done).await
    }
}

/// The verb.
async fn converse(
    tx: &mut Tx,
    ids: &Ids,
    converse: &Converse,
    claim: Option<&Claim<Outcome>>,
) -> Result<Claimed<Outcome>, VerbError> {
    tx.tenant(&converse.tenant)?;
    if let Some(answered) = claimed::earlier(tx, claim).await? {
        return Ok(answered);
    }
    let tenant = &converse.tenant;
    let ChangedAt { at, number } = next_change(tx, tenant).await?;
    let outcome = match &converse.request {
        ConverseRequest::Create(new) => {
            Outcome::Changed(conversation::create(ids.conversation(at), new.clone(), at))
        }
        ConverseRequest::Change { conversation, command, expected } => {
            let before = find(tx, tenant, *conversation).await?.ok_or(Refusal::NotFound)?;
            let stamp = Stamp { at, message: ids.message(at) };
            let decided = conversation::decide(&before, command, *expected, stamp);
            decided.map_err(Refusal::from)?
        }
    };
    if let Outcome::Changed(change) = &outcome {
        write(tx, tenant, change, number).await?;
        publish::own(tx, ids, tenant.clone(), change.event()).await?;
    }
    claimed::done(tx, claim, outcome).await
}

/// The tenant's next change. Until this transaction ends, there is no other: so changes are decided
/// one after the other, and numbered in the order of their commits.
async fn next_change(tx: &mut Tx, tenant: &TenantId) -> Result<ChangedAt, VerbError> {
    let statement = "INSERT INTO conversation_changes AS known (tenant, last, last_at) \
                     VALUES ($1, 1, $2) ON CONFLICT (tenant) DO UPDATE \
                     SET last = known.last + 1, last_at = greatest(known.last_at, $2) \
                     RETURNING last, last_at";
    let values = (tenant.as_str(), tx.now.as_millis());
    let row = tx.connection.first(statement, &[&values.0, &values.1]).await?;
    let row = row.ok_or_else(|| VerbError::Unusable("a change was not numbered".into()))?;
    let at = Timestamp::from_millis(row.try_get(1)?);
    Ok(ChangedAt { at, number: unsigned(row.try_get(0)?) })
}

/// Writes a change: the conversation as it is by it, and its message.
async fn write(
    tx: &mut Tx,
    tenant: &TenantId,
    Change { conversation, message }: &Change,
    number: u64,
) -> Result<(), VerbError> {
    tx.connection
        .execute(
            "INSERT INTO conversations (tenant, id, created_at, subject, status, assignee, \
             version, updated_at, change, deleted_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
             ON CONFLICT (tenant, id) DO UPDATE SET status = excluded.status, \
             assignee = excluded.assignee, version = excluded.version, \
             updated_at = excluded.updated_at, change = excluded.change, \
             deleted_at = excluded.deleted_at",
            &[
                &tenant.as_str(),
                &Bits::from(conversation.id),
                &conversation.created_at.as_millis(),
                &conversation.subject.as_ref().map(Text::as_str),
                &small(code::conversation_status(conversation.status)),
                &conversation.assignee.as_ref().map(Text::as_str),
                &signed(conversation.version),
                &conversation.updated_at.as_millis(),
                &signed(number),
                &conversation.deleted_at.map(Timestamp::as_millis),
            ],
        )
        .await?;
    let Some(message) = message else { return Ok(()) };
    tx.connection
        .execute(
            "INSERT INTO messages (tenant, conversation, id, created_at, version, body) \
             VALUES ($1, $2, $3, $4, $5, $6)",
            &[
                &tenant.as_str(),
                &Bits::from(message.conversation_id),
                &Bits::from(message.id),
                &message.created_at.as_millis(),
                &signed(message.conversation_version),
                &message.body.as_str(),
            ],
        )
        .await?;
    Ok(())
}

/// A conversation of this tenant, deleted or not.
async fn find(
    tx: &mut Tx,
    tenant: &TenantId,
    id: ConversationId,
) -> Result<Option<Conversation>, VerbError> {
    let statement = format!("SELECT {COLUMNS} FROM conversations WHERE tenant = $1 AND id = $2");
    let found = tx.connection.first(&statement, &[&tenant.as_str(), &Bits::from(id)]).await?;
    found.map(|row| read(&row)).transpose()
}

/// A conversation of this tenant that is not deleted.
async fn present(
    tx: &mut Tx,
    tenant: &TenantId,
    id: ConversationId,
) -> Result<Option<Conversation>, VerbError> {
    let found = find(tx, tenant, id).await?;
    Ok(found.filter(|conversation| conversation.deleted_at.is_none()))
}

/// Reads [`COLUMNS`].
fn read(row: &Row) -> Result<Conversation, VerbError> {
    let Bits(id) = row.try_get(0)?;
    let status: i16 = row.try_get(3)?;
    let deleted_at: Option<i64> = row.try_get(7)?;
    Ok(Conversation {
        id: ConversationId::from_bits(id),
        subject: row.try_get::<_, Option<&str>>(2)?.map(parse).transpose()?,
        status: code::read_conversation_status(i64::from(status))?,
        assignee: row.try_get::<_, Option<&str>>(4)?.map(parse).transpose()?,
        version: unsigned(row.try_get(5)?),
        created_at: Timestamp::from_millis(row.try_get(1)?),
        updated_at: Timestamp::from_millis(row.try_get(6)?),
        deleted_at: deleted_at.map(Timestamp::from_millis),
    })
}

fn parse<const MAX: usize>(stored: &str) -> Result<Text<MAX>, VerbError> {
    let unusable = |error| VerbError::Unusable(format!("a text of a conversation: {error}"));
    Text::parse(stored).map_err(unusable)
}

/// The messages of a conversation, newest first.
async fn messages(
    tx: &mut Tx,
    tenant: &TenantId,
    of: ConversationId,
    wanted: PageRequest,
) -> Result<Option<Page<Message>>, VerbError> {
    if present(tx, tenant, of).await?.is_none() {
        return Ok(None);
    }
    let below = signed(version_before(wanted.after));
    let statement = "SELECT id, created_at, version, body FROM messages \
                     WHERE tenant = $1 AND conversation = $2 AND version < $3 \
                     ORDER BY version DESC LIMIT $4";
    let one_more = size(wanted.limit).saturating_add(1);
    let rows = tx
        .connection
        .query(statement, &[&tenant.as_str(), &Bits::from(of), &below, &one_more])
        .await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let Bits(id) = row.try_get(0)?;
        let message = Message {
            id: MessageId::from_bits(id),
            conversation_id: of,
            body: parse(row.try_get(3)?)?,
            created_at: Timestamp::from_millis(row.try_get(1)?),
            conversation_version: unsigned(row.try_get(2)?),
        };
        found.push((Position(message.conversation_version.into()), message));
    }
    Ok(Some(page(found, wanted.limit)))
}

/// A tenant's conversations by their last change.
async fn changed_since(
    tx: &mut Tx,
    tenant: &TenantId,
    from: Option<Timestamp>,
    wanted: PageRequest,
) -> Result<Page<Conversation>, VerbError> {
    let start = ChangedAt::start(from, wanted.after);
    let present = if from.is_some() { "" } else { "AND deleted_at IS NULL" };
    let statement = format!(
        "SELECT {COLUMNS}, change FROM conversations \
         WHERE tenant = $1 AND (updated_at, change) > ($2, $3) {present} \
         ORDER BY updated_at, change LIMIT $4"
    );
    let (at, number) = (start.at.as_millis(), signed(start.number));
    let one_more = size(wanted.limit).saturating_add(1);
    let mut found = Vec::new();
    for row in tx.connection.query(&statement, &[&tenant.as_str(), &at, &number, &one_more]).await?
    {
        let conversation = read(&row)?;
        let number = unsigned(row.try_get(8)?);
        found.push((ChangedAt { at: conversation.updated_at, number }.into(), conversation));
    }
    Ok(page(found, wanted.limit))
}
