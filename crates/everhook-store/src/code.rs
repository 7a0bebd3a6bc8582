//! How closed lists are written: small numbers that never change their meaning.

use everhook_domain::attempt::Trigger;
use everhook_domain::conversation::ConversationStatus;
use everhook_domain::delivery::{CancelReason, DeadReason};
use everhook_domain::event::Origin;
use everhook_domain::receipt::ReceiptStatus;

/// `deliveries.status`. Two numbers mean leased: one that is found by scanning from the lease
/// floor, and one that an index finds.
pub(crate) mod status {
    pub(crate) const DUE: i64 = 0;
    /// Leased in the transaction that made it: the happy path, in no index.
    pub(crate) const LEASED_AT_BIRTH: i64 = 1;
    /// Leased by a claim.
    pub(crate) const LEASED: i64 = 2;
    pub(crate) const DELIVERED: i64 = 3;
    pub(crate) const DEAD: i64 = 4;
    pub(crate) const CANCELLED: i64 = 5;
}

/// A number in the database that this version does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the database holds {1} as {0}, which this version does not know")]
pub(crate) struct UnknownCode(pub(crate) &'static str, pub(crate) i64);

pub(crate) const fn trigger(trigger: Trigger) -> i64 {
    match trigger {
        Trigger::Schedule => 0,
        Trigger::Replay => 1,
        Trigger::Test => 2,
    }
}

pub(crate) const fn read_trigger(code: i64) -> Result<Trigger, UnknownCode> {
    match code {
        0 => Ok(Trigger::Schedule),
        1 => Ok(Trigger::Replay),
        2 => Ok(Trigger::Test),
        _ => Err(UnknownCode("cause", code)),
    }
}

pub(crate) const fn cancel(reason: CancelReason) -> i64 {
    match reason {
        CancelReason::Requested => 0,
        CancelReason::EndpointDisabled => 1,
        CancelReason::EndpointDeleted => 2,
    }
}

pub(crate) const fn read_cancel(code: i64) -> Result<CancelReason, UnknownCode> {
    match code {
        0 => Ok(CancelReason::Requested),
        1 => Ok(CancelReason::EndpointDisabled),
        2 => Ok(CancelReason::EndpointDeleted),
        _ => Err(UnknownCode("cancel reason", code)),
    }
}

pub(crate) const fn dead(reason: DeadReason) -> i64 {
    match reason {
        DeadReason::Exhausted => 0,
        DeadReason::Interrupted => 1,
    }
}

pub(crate) const fn read_dead(code: i64) -> Result<DeadReason, UnknownCode> {
    match code {
        0 => Ok(DeadReason::Exhausted),
        1 => Ok(DeadReason::Interrupted),
        _ => Err(UnknownCode("dead reason", code)),
    }
}

pub(crate) const fn origin(origin: Origin) -> i64 {
    match origin {
        Origin::Published => 0,
        Origin::Received => 1,
        Origin::System => 2,
    }
}

pub(crate) const fn read_origin(code: i64) -> Result<Origin, UnknownCode> {
    match code {
        0 => Ok(Origin::Published),
        1 => Ok(Origin::Received),
        2 => Ok(Origin::System),
        _ => Err(UnknownCode("origin", code)),
    }
}

pub(crate) const fn receipt_status(status: ReceiptStatus) -> i64 {
    match status {
        ReceiptStatus::Accepted => 0,
        ReceiptStatus::Conflict => 1,
        ReceiptStatus::Dead => 2,
    }
}

pub(crate) const fn read_receipt_status(code: i64) -> Result<ReceiptStatus, UnknownCode> {
    match code {
        0 => Ok(ReceiptStatus::Accepted),
        1 => Ok(ReceiptStatus::Conflict),
        2 => Ok(ReceiptStatus::Dead),
        _ => Err(UnknownCode("receipt status", code)),
    }
}

pub(crate) const fn conversation_status(status: ConversationStatus) -> i64 {
    match status {
        ConversationStatus::Open => 0,
        ConversationStatus::Pending => 1,
        ConversationStatus::Closed => 2,
    }
}

pub(crate) const fn read_conversation_status(code: i64) -> Result<ConversationStatus, UnknownCode> {
    match code {
        0 => Ok(ConversationStatus::Open),
        1 => Ok(ConversationStatus::Pending),
        2 => Ok(ConversationStatus::Closed),
        _ => Err(UnknownCode("conversation status", code)),
    }
}
