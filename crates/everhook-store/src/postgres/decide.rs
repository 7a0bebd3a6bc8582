//! `decide`: what somebody decides about a receipt.

use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::{Due, Progress, State};
use everhook_domain::event::Origin;
use everhook_domain::id::ReceiptId;
use everhook_domain::receipt::{Consequence, Decision, ReceiptReason, ReceiptStatus};
use everhook_domain::tenant::TenantId;

use super::failure::VerbError;
use super::number::{Bits, int};
use super::receipt::{COLUMNS, fill_deliveries, read, standing, update};
use super::tx::Tx;
use super::{act, claimed, row};
use crate::claim::{Claim, Claimed};
use crate::error::Refusal;
use crate::reading::DeliveryRecord;
use crate::receiving::ReceiptRecord;
use crate::route::stored_facts;

/// The verb under its claim.
pub(super) async fn decided(
    tx: &mut Tx,
    tenant: &TenantId,
    receipt: ReceiptId,
    decision: Decision,
    claim: Option<&Claim<ReceiptRecord>>,
) -> Result<Claimed<ReceiptRecord>, VerbError> {
    tx.tenant(tenant)?;
    if let Some(answered) = claimed::earlier(tx, claim).await? {
        return Ok(answered);
    }
    let record = decide(tx, tenant, receipt, decision).await?;
    claimed::done(tx, claim, record).await
}

async fn decide(
    tx: &mut Tx,
    tenant: &TenantId,
    receipt: ReceiptId,
    decision: Decision,
) -> Result<ReceiptRecord, VerbError> {
    let statement =
        format!("SELECT {COLUMNS} FROM receipts WHERE tenant = $1 AND id = $2 FOR UPDATE");
    let found = tx.connection.first(&statement, &[&tenant.as_str(), &Bits::from(receipt)]).await?;
    let mut record = read(&found.ok_or(Refusal::NotFound)?)?;
    match standing(&record).decide(decision).map_err(Refusal::Receipt)? {
        Consequence::Unchanged => {}
        Consequence::Release => {
            release(tx, tenant, &record).await?;
            record.status = ReceiptStatus::Accepted;
            record.released_at = Some(tx.now);
            update(&mut tx.connection, tenant, &record).await?;
        }
        Consequence::Discard => {
            record.status = ReceiptStatus::Dead;
            record.reason = Some(ReceiptReason::Discarded);
            update(&mut tx.connection, tenant, &record).await?;
        }
        Consequence::SendAgain => {
            act::send_again(tx, tenant, receipt.event(), None).await?;
            // What was decided about the deliveries shows in the receipt.
            tx.flush().await?;
        }
    }
    let mut records = [record];
    fill_deliveries(&mut tx.connection, tenant, &mut records).await?;
    let [record] = records;
    Ok(record)
}

/// Makes the event's deliveries, to where it is routed now.
async fn release(tx: &mut Tx, tenant: &TenantId, record: &ReceiptRecord) -> Result<(), VerbError> {
    let event = record.event();
    let (event_type, _, body) = act::lock_event(tx, tenant, event).await?;
    let source = tx.directory.source_name(record.source);
    let facts = stored_facts(Origin::Received, &event_type, source, &body);
    let targets = tx.directory.route(tenant, &facts);
    let made: Vec<DeliveryRecord> = (1..=u16::MAX)
        .zip(targets)
        .map(|(ordinal, endpoint)| DeliveryRecord {
            id: event.delivery(ordinal),
            endpoint: endpoint.id,
            event_type: event_type.clone(),
            state: State::Due(Due { at: tx.now, cause: Trigger::Schedule }),
            progress: Progress::NEW,
            created_at: tx.now,
        })
        .collect();
    for delivery in &made {
        tx.hint(delivery);
    }
    row::insert(&mut tx.connection, tenant, &made).await?;
    let statement = "UPDATE events SET deliveries = $3 WHERE tenant = $1 AND id = $2";
    let values = (Bits::from(event), int(u32::try_from(made.len()).unwrap_or(u32::MAX)));
    tx.connection.execute(statement, &[&tenant.as_str(), &values.0, &values.1]).await?;
    Ok(())
}
