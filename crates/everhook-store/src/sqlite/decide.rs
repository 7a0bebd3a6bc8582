//! `decide`: what somebody decides about a receipt.

use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::{Due, Progress, State};
use everhook_domain::event::Origin;
use everhook_domain::id::ReceiptId;
use everhook_domain::receipt::{Consequence, Decision, ReceiptReason, ReceiptStatus};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::params;

use super::act::SendAgainVerb;
use super::claimed;
use super::command::{Verb, VerbError};
use super::receipt::ReceiptRow;
use super::row::{DeliveryRow, first_key, last_key, signed};
use super::tx::{Tx, endpoint_no};
use crate::claim::{Claim, Claimed};
use crate::code;
use crate::error::Refusal;
use crate::receiving::ReceiptRecord;
use crate::route::stored_facts;

/// The verb.
pub(super) struct DecideVerb {
    pub(super) tenant: TenantId,
    pub(super) receipt: ReceiptId,
    pub(super) decision: Decision,
    pub(super) claim: Option<Claim<ReceiptRecord>>,
    pub(super) now: Timestamp,
}

impl Verb for DecideVerb {
    type Output = Claimed<ReceiptRecord>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let tenant = tx.tenant(&self.tenant)?;
        claimed::run(tx, self.claim.as_ref(), self.now, |tx| self.decide(tx, tenant))
    }
}

impl DecideVerb {
    fn decide(&self, tx: &mut Tx<'_>, tenant: i64) -> Result<ReceiptRecord, VerbError> {
        let found = ReceiptRow::find(tx.connection, tenant, self.receipt, tx.tag())?;
        let mut row = found.ok_or(Refusal::NotFound)?;
        match row.standing().decide(self.decision).map_err(Refusal::Receipt)? {
            Consequence::Unchanged => {}
            Consequence::Release => {
                self.release(tx, &row)?;
                row.status = ReceiptStatus::Accepted;
                row.released_at = Some(self.now);
                row.update(tx.connection)?;
            }
            Consequence::Discard => {
                row.status = ReceiptStatus::Dead;
                row.reason = Some(ReceiptReason::Discarded);
                row.update(tx.connection)?;
            }
            Consequence::SendAgain => {
                let again = SendAgainVerb {
                    tenant: self.tenant.clone(),
                    event: self.receipt.event(),
                    endpoint: None,
                    claim: None,
                    now: self.now,
                };
                again.send(tx, tenant)?;
            }
        }
        let source = tx.catalog().source(row.source);
        let source = source.ok_or(code::UnknownCode("source", row.source))?;
        Ok(row.record(tx.connection, source)?)
    }

    /// Makes the event's deliveries, to where it is routed now.
    fn release(&self, tx: &mut Tx<'_>, row: &ReceiptRow) -> Result<(), VerbError> {
        let sequence = signed(row.id.sequence());
        let body: Vec<u8> = tx
            .connection
            .prepare_cached("SELECT body FROM events WHERE seq = ?1")?
            .query_row([sequence], |row| row.get(0))?;
        let catalog = tx.catalog();
        let source = catalog.source(row.source);
        let name = source.and_then(|source| catalog.directory.source_name(source));
        let facts = stored_facts(Origin::Received, &row.event_type, name, &body);
        let targets: Vec<_> = catalog.directory.route(&self.tenant, &facts).cloned().collect();
        for (key, endpoint) in (first_key(sequence) + 1..=last_key(sequence)).zip(&targets) {
            let delivery = DeliveryRow {
                key,
                tenant: row.tenant,
                endpoint: endpoint_no(endpoint.id),
                event_type: row.event_type.as_str().to_owned(),
                event_at: row.id.created_at().as_millis(),
                created_at: Some(self.now.as_millis()),
                leased_at_birth: false,
                state: State::Due(Due { at: self.now, cause: Trigger::Schedule }),
                progress: Progress::NEW,
            };
            delivery.insert(tx.connection)?;
            tx.hint(&delivery);
        }
        tx.connection
            .prepare_cached("UPDATE events SET deliveries = ?2 WHERE seq = ?1")?
            .execute(params![sequence, i64::try_from(targets.len()).unwrap_or(i64::MAX)])?;
        Ok(())
    }
}
