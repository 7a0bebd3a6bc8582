//! Receipts, as far as both stores treat them alike: their keys, and how they are written.

use everhook_domain::fault::{self, Plant};
use everhook_domain::id::{ReceiptId, SourceId};
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::key::{KeyHash, KeySpace};
use everhook_domain::receipt::{Known, ReceiptReason, ReceiptStatus, Ruling, Verdict, rule};
use everhook_domain::tenant::TenantId;

use crate::code::UnknownCode;
use crate::receiving::NewReceipt;

/// What a received event is looked up by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemKeys {
    /// What identifies it.
    pub(crate) key: KeyHash,
    /// The same with its content: what a conflict is remembered by.
    pub(crate) conflict: KeyHash,
    /// Its signed bytes.
    pub(crate) guard: Option<KeyHash>,
}

impl ItemKeys {
    /// Those of an item that came to this source.
    pub(crate) fn of(tenant: &TenantId, source: SourceId, item: &NewReceipt) -> Self {
        let source = if fault::planted(Plant::KeyWithoutSource) { 0 } else { source.bits() };
        let scope = source.to_be_bytes();
        let hash = |space, key: &[u8]| KeyHash::new(space, tenant, &[&scope], key);
        let with_content = [*item.key.hash(), item.content].concat();
        Self {
            key: hash(KeySpace::Receipt, item.key.hash()),
            conflict: hash(KeySpace::ReceiptContent, &with_content),
            guard: item.guard.map(|guard| hash(KeySpace::SignedBytes, &guard)),
        }
    }
}

/// What becomes of an item.
pub(crate) enum Fate {
    /// It is counted in this receipt.
    Counted { of: ReceiptId, body_changed: bool },
    /// It is given a receipt of its own.
    Kept(Beginning),
}

/// What a receipt begins as.
pub(crate) struct Beginning {
    pub(crate) verdict: Verdict,
    pub(crate) status: ReceiptStatus,
    pub(crate) reason: Option<ReceiptReason>,
    /// What it is remembered by.
    pub(crate) key: KeyHash,
}

impl Fate {
    /// Of an item by what is known.
    pub(crate) fn of(item: &NewReceipt, keys: &ItemKeys, known: Known<ReceiptId>) -> Self {
        let (verdict, status, reason, key) = match rule(item.on_change, known) {
            Ruling::Duplicate { of, body_changed } => return Self::Counted { of, body_changed },
            Ruling::OtherContent(of) => {
                let reason = Some(ReceiptReason::OtherContent(of));
                (Verdict::Conflict, ReceiptStatus::Conflict, reason, keys.conflict)
            }
            Ruling::OtherKey(of) => {
                let reason = Some(ReceiptReason::OtherKey(of));
                (Verdict::Conflict, ReceiptStatus::Conflict, reason, keys.conflict)
            }
            Ruling::New => match &item.unreadable {
                Some(why) => {
                    let reason = Some(ReceiptReason::Unreadable(why.clone()));
                    (Verdict::Unreadable, ReceiptStatus::Dead, reason, keys.key)
                }
                None => (Verdict::Accepted, ReceiptStatus::Accepted, None, keys.key),
            },
        };
        Self::Kept(Beginning { verdict, status, reason, key })
    }
}

/// The headers of a received event from what is stored. Damaged ones must not hold up its lane: it
/// goes out without them, and whoever verifies will say so.
pub(crate) fn read_headers(event: impl std::fmt::Display, stored: &str) -> ForwardedHeaders {
    ForwardedHeaders::from_stored(stored).unwrap_or_else(|error| {
        tracing::warn!(%event, "{error}");
        ForwardedHeaders::default()
    })
}

/// A reason in columns: its code, the receipt that it names and its text.
pub(crate) type ReasonColumns<'a> = (Option<i64>, Option<ReceiptId>, Option<&'a str>);

/// A reason as it is written.
pub(crate) fn reason_columns(reason: Option<&ReceiptReason>) -> ReasonColumns<'_> {
    match reason {
        None => (None, None, None),
        Some(ReceiptReason::OtherContent(of)) => (Some(0), Some(*of), None),
        Some(ReceiptReason::OtherKey(of)) => (Some(1), Some(*of), None),
        Some(ReceiptReason::Unreadable(why)) => (Some(2), None, Some(why)),
        Some(ReceiptReason::Discarded) => (Some(3), None, None),
    }
}

/// A reason from what is written.
pub(crate) fn read_reason(
    (code, of, text): ReasonColumns<'_>,
) -> Result<Option<ReceiptReason>, UnknownCode> {
    let Some(code) = code else { return Ok(None) };
    match (code, of) {
        (0, Some(of)) => Ok(Some(ReceiptReason::OtherContent(of))),
        (1, Some(of)) => Ok(Some(ReceiptReason::OtherKey(of))),
        (2, _) => Ok(Some(ReceiptReason::Unreadable(text.unwrap_or_default().to_owned()))),
        (3, _) => Ok(Some(ReceiptReason::Discarded)),
        _ => Err(UnknownCode("receipt reason", code)),
    }
}
