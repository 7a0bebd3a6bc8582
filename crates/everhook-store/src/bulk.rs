//! Work on many deliveries at once: bulk replays, acknowledging in bulk, catch-up.

use async_trait::async_trait;
use everhook_domain::bulk::{BulkKind, BulkStatus, Tally};
use everhook_domain::event::EventType;
use everhook_domain::id::{DeliveryId, EndpointId, EventId, ReplayId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Claimed};
use crate::code::UnknownCode;
use crate::error::StoreError;
use crate::reading::{
    DeliveryQuery, DeliveryRecord, Page, PageRequest, Position, Reading, StatusFilter,
};

/// Rows that one read looks at while a set is made.
const READ_ROWS: usize = 10_000;
/// Members that are stored in one row.
pub(crate) const CHUNK_MEMBERS: usize = 500;

/// Work to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkRequest {
    /// Whose deliveries.
    pub tenant: TenantId,
    /// What is done to each.
    pub kind: BulkKind,
    /// Which. A catch-up names an endpoint and the instant `from`.
    pub filter: DeliveryQuery,
    /// At most so many are set going in a second.
    pub rate_per_second: u32,
    /// Only counts; nothing is stored.
    pub dry_run: bool,
}

/// Work that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkStarted {
    /// Its id; `None` for a dry run.
    pub id: Option<ReplayId>,
    /// How many deliveries it has; `None` where only doing it tells: a catch-up.
    pub matched: Option<u64>,
}

/// Work and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkRecord {
    /// Its id.
    pub id: ReplayId,
    /// What is done to each delivery.
    pub kind: BulkKind,
    /// Which deliveries.
    pub filter: DeliveryQuery,
    /// At most so many are set going in a second.
    pub rate_per_second: u32,
    /// Where it stands.
    pub status: BulkStatus,
    /// How many deliveries it has; `None` where only doing it tells.
    pub matched: Option<u64>,
    /// What has become of them so far.
    pub tally: Tally,
    /// When it was begun.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// Work on many deliveries at once. It is done by [`Jobs::step`](crate::Jobs::step), paced.
#[async_trait]
pub trait Bulk: Send + Sync {
    /// Begins work. Its deliveries are those that match the filter and the kind now: they are
    /// fixed here, exactly, and none of them is in another unfinished replay or catch-up. Each is
    /// then stepped once, whatever crash comes between. One whose endpoint is disabled or deleted
    /// by then, or whose state forbids it, is skipped and counted.
    ///
    /// A catch-up goes through the events accepted from the filter's `from` up to now: where the
    /// endpoint's subscription matches, a missing delivery is made, one that the disabling
    /// cancelled is replayed, and all others stay as they are. It ends as cancelled when the
    /// endpoint is disabled or deleted.
    ///
    /// # Errors
    /// `Refused(NotFound)`: no such tenant or endpoint in it. `Refused(Step(EndpointGone))`: a
    /// catch-up of a disabled or deleted endpoint. Nothing has changed.
    async fn start_bulk(
        &self,
        request: BulkRequest,
        claim: Option<Claim<BulkStarted>>,
        now: Timestamp,
    ) -> Result<Claimed<BulkStarted>, StoreError>;

    /// Ends work: what is left of it is not done, what was set going stays. Ended work stays as it
    /// is. Returns it as it is then.
    ///
    /// # Errors
    /// `Refused(NotFound)`: no such work in this tenant.
    async fn cancel_bulk(
        &self,
        tenant: TenantId,
        id: ReplayId,
        now: Timestamp,
    ) -> Result<BulkRecord, StoreError>;

    /// Work of this tenant.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn bulk(&self, tenant: TenantId, id: ReplayId) -> Result<Option<BulkRecord>, StoreError>;

    /// A tenant's work, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn bulks(
        &self,
        tenant: TenantId,
        page: PageRequest,
    ) -> Result<Page<BulkRecord>, StoreError>;
}

/// The deliveries that a request means, oldest first: read bit by bit, so that nobody waits for it.
/// `in_other_work` tells those that belong to unfinished work.
pub(crate) async fn members<R: Reading + ?Sized>(
    store: &R,
    request: &BulkRequest,
    in_other_work: impl Fn(&DeliveryRecord) -> bool + Send,
) -> Result<Vec<DeliveryId>, StoreError> {
    let (mut members, mut after) = (Vec::new(), None);
    loop {
        let page = PageRequest { limit: READ_ROWS, after, scan_limit: READ_ROWS };
        let page = store.deliveries(request.tenant.clone(), request.filter.clone(), page).await?;
        let taken = page
            .items
            .iter()
            .filter(|record| request.kind.takes(&record.state) && !in_other_work(record));
        members.extend(taken.map(|record| record.id));
        after = page.next;
        if after.is_none() {
            members.reverse();
            return Ok(members);
        }
    }
}

/// A page of what was read newest first, with one item more than its limit where there is one.
pub(crate) fn page_of(mut items: Vec<BulkRecord>, limit: usize) -> Page<BulkRecord> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|record| Position(record.id.bits()));
    Page { items, next }
}

/// How a filter is stored: JSON.
#[derive(Serialize, Deserialize)]
struct StoredFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    endpoint: Option<EndpointId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<i64>,
}

/// A filter as it is stored.
pub(crate) fn filter_to_stored(filter: &DeliveryQuery) -> String {
    let stored = StoredFilter {
        status: filter.status.map(|status| status.as_str().to_owned()),
        endpoint: filter.endpoint,
        event: filter.event,
        event_type: filter.event_type.as_ref().map(|event_type| event_type.as_str().to_owned()),
        from: filter.from.map(Timestamp::as_millis),
        to: filter.to.map(Timestamp::as_millis),
    };
    serde_json::to_string(&stored).unwrap_or_default()
}

/// A filter as it was stored; `number` names the work where it cannot be read.
pub(crate) fn filter_from_stored(text: &str, number: i64) -> Result<DeliveryQuery, UnknownCode> {
    let unknown = UnknownCode("filter of bulk work", number);
    let stored: StoredFilter = serde_json::from_str(text).map_err(|_| unknown)?;
    let status = |word: String| StatusFilter::from_word(&word).ok_or(unknown);
    Ok(DeliveryQuery {
        status: stored.status.map(status).transpose()?,
        endpoint: stored.endpoint,
        event: stored.event,
        event_type: stored
            .event_type
            .map(|text| EventType::any(&text).map_err(|_| unknown))
            .transpose()?,
        from: stored.from.map(Timestamp::from_millis),
        to: stored.to.map(Timestamp::from_millis),
    })
}

/// The words of kind and status, and the tally, as they were stored.
pub(crate) fn read_words(
    (kind, status, tally): (&str, &str, &str),
    number: i64,
) -> Result<(BulkKind, BulkStatus, Tally), UnknownCode> {
    let unknown = UnknownCode("bulk work", number);
    Ok((
        BulkKind::from_word(kind).ok_or(unknown)?,
        BulkStatus::from_word(status).ok_or(unknown)?,
        serde_json::from_str(tally).map_err(|_| unknown)?,
    ))
}

/// A tally as it is stored.
pub(crate) fn tally_to_stored(tally: &Tally) -> String {
    serde_json::to_string(tally).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_back() {
        let full = DeliveryQuery {
            status: Some(StatusFilter::Dead),
            endpoint: Some(EndpointId::from_parts(1, 2, 3, 0)),
            event: Some(EventId::from_parts(4, 5, 6, 0)),
            event_type: EventType::any("a.b").ok(),
            from: Some(Timestamp::from_millis(7)),
            to: Some(Timestamp::from_millis(8)),
        };
        for filter in [full, DeliveryQuery::default()] {
            assert_eq!(filter_from_stored(&filter_to_stored(&filter), 1), Ok(filter));
        }
        assert!(filter_from_stored(r#"{"status":"x"}"#, 1).is_err());
        assert!(filter_from_stored("", 1).is_err());
    }
}
