//! Single things and lists. A list looks at a bounded number of rows: newest first by key, through
//! a partial index where a status has one.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::endpoint::EndpointState;
use everhook_domain::event::{EventType, Origin};
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::{DeliveryId, EndpointId, EventId, ReceiptId};
use everhook_domain::receipt::ReceiptStatus;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::catalog::Catalog;
use super::meta::meta;
use super::probe::ProbeVerb;
use super::receipt::{self, ReceiptRow};
use super::row::{COLUMNS, DeliveryRow, bad, event_id, first_key, key_of, last_key, signed};
use super::{health, lease, record};
use crate::code::{self, UnknownCode};
use crate::error::StoreError;
use crate::reading::{
    DeliveryDetail, DeliveryQuery, DeliveryRecord, EventDetail, EventQuery, EventRecord, Page,
    PageRequest, Position, Reading, StatusFilter, StoreHealth,
};
use crate::receiving::{ReceiptQuery, ReceiptRecord};
use crate::sending::LaneDue;

/// What [`read_event`] reads, in its order.
const EVENT_COLUMNS: &str = "seq, tenant, created_at, type, origin, happened_at, \
     source_event_id, deliveries, \
     CASE origin WHEN 1 THEN (SELECT source FROM receipts WHERE receipts.seq = events.seq) END";

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

#[async_trait]
impl Reading for SqliteStore {
    async fn event(
        &self,
        tenant: TenantId,
        event: EventId,
    ) -> Result<Option<EventDetail>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| reader.event(tenant, event)).await
    }

    async fn events(
        &self,
        tenant: TenantId,
        query: EventQuery,
        page: PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| reader.events(tenant, &query, page)).await
    }

    async fn delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
    ) -> Result<Option<DeliveryDetail>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| reader.delivery(tenant, delivery)).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        query: DeliveryQuery,
        page: PageRequest,
    ) -> Result<Page<DeliveryRecord>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| reader.deliveries(tenant, &query, page)).await
    }

    async fn endpoint_health(
        &self,
        tenant: TenantId,
        mut endpoints: Vec<EndpointId>,
    ) -> Result<HashMap<EndpointId, EndpointHealth>, StoreError> {
        let directory = Arc::clone(&self.catalog().directory);
        endpoints.retain(|endpoint| directory.endpoint_of(&tenant, *endpoint).is_some());
        self.read(move |reader| Ok(health::of(reader.connection, &endpoints)?)).await
    }

    async fn health(&self) -> Result<StoreHealth, StoreError> {
        let write = async { self.run(ProbeVerb).await.is_ok() };
        let writable = self.probes.writable(write).await;
        let lanes = self.read(|reader| reader.lanes_due()).await?;
        Ok(StoreHealth::of(writable, &lanes, &*self.handoff))
    }
}

/// A connection and the catalog that explains its numbers.
pub(super) struct Reader<'a> {
    pub(super) connection: &'a Connection,
    pub(super) catalog: &'a Catalog,
}

impl Reader<'_> {
    /// An event of this tenant.
    pub(super) fn event(
        &self,
        tenant: i64,
        event: EventId,
    ) -> Result<Option<EventDetail>, StoreError> {
        let found = self
            .connection
            .prepare_cached(&format!("SELECT {EVENT_COLUMNS}, body FROM events WHERE seq = ?1"))?
            .query_row([signed(event.sequence())], |row| {
                let (owner, record) = read_event(row, self.catalog)?;
                let body = Bytes::from(row.get::<_, Vec<u8>>(9)?);
                Ok((owner, EventDetail { record, body, headers: None }))
            })
            .optional()?;
        let found = found.filter(|(owner, detail)| *owner == tenant && detail.record.id == event);
        let Some((_, mut detail)) = found else { return Ok(None) };
        if detail.record.origin == Origin::Received {
            detail.headers = receipt::headers(self.connection, signed(event.sequence()))?;
        }
        Ok(Some(detail))
    }

    /// A tenant's events, newest first.
    pub(super) fn events(
        &self,
        tenant: i64,
        query: &EventQuery,
        page: PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        let (low, high) = self.sequences(query.from, query.to)?;
        let below = page
            .after
            .map_or(high, |Position(bits)| signed(EventId::from_bits(bits).sequence()).min(high));
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {EVENT_COLUMNS} FROM events WHERE seq >= ?1 AND seq < ?2 ORDER BY seq DESC"
        ))?;
        let mut rows = statement.query(params![low, below])?;
        let mut list = List::new(page);
        while let Some(row) = rows.next()? {
            let (owner, record) = read_event(row, self.catalog)?;
            let wanted = owner == tenant
                && query.event_type.as_ref().is_none_or(|wanted| *wanted == record.event_type);
            let position = Position(record.id.bits());
            if list.offer(position, wanted.then_some(record)) {
                break;
            }
        }
        Ok(list.finish())
    }

    /// A delivery of this tenant.
    pub(super) fn delivery(
        &self,
        tenant: i64,
        delivery: DeliveryId,
    ) -> Result<Option<DeliveryDetail>, StoreError> {
        let key = key_of(delivery);
        let found = DeliveryRow::find(self.connection, key)?
            .filter(|row| row.tenant == tenant && row.id(self.catalog.tag) == delivery);
        let Some(row) = found else { return Ok(None) };
        let attempts = record::attempts(self.connection, key)?;
        Ok(Some(DeliveryDetail { record: self.shown(&row)?, attempts }))
    }

    /// A tenant's deliveries, newest first.
    pub(super) fn deliveries(
        &self,
        tenant: i64,
        query: &DeliveryQuery,
        page: PageRequest,
    ) -> Result<Page<DeliveryRecord>, StoreError> {
        let (low, high) = self.sequences(query.from, query.to)?;
        let (mut low, mut below) = (first_key(low), first_key(high));
        if let Some(event) = query.event {
            let sequence = signed(event.sequence());
            low = low.max(first_key(sequence));
            // An id from elsewhere may stand for the very last key.
            below = below.min(last_key(sequence).saturating_add(1));
        }
        if let Some(Position(bits)) = page.after {
            below = below.min(key_of(DeliveryId::from_bits(bits)));
        }
        let condition = match query.status {
            Some(StatusFilter::Leased) => return self.leased(tenant, query, page, (low, below)),
            Some(StatusFilter::Due) => "status = 0 AND tenant = ?3 AND",
            Some(StatusFilter::Dead) => "status >= 4 AND status = 4 AND tenant = ?3 AND",
            Some(StatusFilter::Cancelled) => "status >= 4 AND status = 5 AND tenant = ?3 AND",
            Some(StatusFilter::Delivered) | None => "?3 = ?3 AND",
        };
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM deliveries WHERE {condition} id >= ?1 AND id < ?2 \
             ORDER BY id DESC"
        ))?;
        let mut rows = statement.query(params![low, below, tenant])?;
        let mut list = List::new(page);
        while let Some(row) = rows.next()? {
            let row = DeliveryRow::read(row)?;
            if self.offer(&mut list, &row, tenant, query)? {
                break;
            }
        }
        Ok(list.finish())
    }

    /// What is being sent: few rows, but in two places.
    fn leased(
        &self,
        tenant: i64,
        query: &DeliveryQuery,
        page: PageRequest,
        (low, below): (i64, i64),
    ) -> Result<Page<DeliveryRecord>, StoreError> {
        let floor = first_key(meta(self.connection, "lease_floor")?.unwrap_or(0));
        let mut found: Vec<DeliveryRow> = Vec::new();
        for (condition, low) in [("status = 1", low.max(floor)), ("status = 2", low)] {
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM deliveries WHERE {condition} AND id >= ?1 AND id < ?2"
            ))?;
            let rows = statement.query_map([low, below], DeliveryRow::read)?;
            found.extend(rows.collect::<Result<Vec<_>, _>>()?);
        }
        found.sort_by_key(|row| std::cmp::Reverse(row.key));
        let mut list = List::new(page);
        for row in &found {
            if self.offer(&mut list, row, tenant, query)? {
                break;
            }
        }
        Ok(list.finish())
    }

    fn offer(
        &self,
        list: &mut List<DeliveryRecord>,
        row: &DeliveryRow,
        tenant: i64,
        query: &DeliveryQuery,
    ) -> Result<bool, StoreError> {
        let id = row.id(self.catalog.tag);
        let wanted = row.tenant == tenant
            && query.status.is_none_or(|status| status == StatusFilter::of(&row.state))
            && query.endpoint.is_none_or(|wanted| {
                self.catalog.endpoint(row.endpoint).is_some_and(|endpoint| endpoint.id == wanted)
            })
            && query.event.is_none_or(|event| id.event() == event)
            && query.event_type.as_ref().is_none_or(|wanted| wanted.as_str() == row.event_type);
        let record = if wanted { Some(self.shown(row)?) } else { None };
        Ok(list.offer(Position(id.bits()), record))
    }

    fn shown(&self, row: &DeliveryRow) -> Result<DeliveryRecord, StoreError> {
        let endpoint = self
            .catalog
            .endpoint(row.endpoint)
            .ok_or_else(|| bad(UnknownCode("endpoint", row.endpoint)))?;
        Ok(row.record(self.catalog.tag, endpoint.id).map_err(bad)?)
    }

    /// A receipt of this tenant.
    pub(super) fn receipt(
        &self,
        tenant: i64,
        receipt: ReceiptId,
    ) -> Result<Option<ReceiptRecord>, StoreError> {
        let found = ReceiptRow::find(self.connection, tenant, receipt, self.catalog.tag)?;
        found.map(|row| self.shown_receipt(&row)).transpose()
    }

    /// A tenant's receipts, newest first.
    pub(super) fn receipts(
        &self,
        tenant: i64,
        query: &ReceiptQuery,
        page: PageRequest,
    ) -> Result<Page<ReceiptRecord>, StoreError> {
        let below = page
            .after
            .map_or(i64::MAX, |Position(bits)| signed(ReceiptId::from_bits(bits).sequence()));
        let condition = match query.status {
            Some(ReceiptStatus::Conflict) => "status > 0 AND status = 1 AND tenant = ?2 AND",
            Some(ReceiptStatus::Dead) => "status > 0 AND status = 2 AND tenant = ?2 AND",
            Some(ReceiptStatus::Accepted) | None => "?2 = ?2 AND",
        };
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT {} FROM receipts WHERE {condition} seq < ?1 ORDER BY seq DESC",
            receipt::COLUMNS
        ))?;
        let mut rows = statement.query([below, tenant])?;
        let mut list = List::new(page);
        while let Some(row) = rows.next()? {
            let row = ReceiptRow::read(row, self.catalog.tag)?;
            let wanted = row.tenant == tenant
                && query.status.is_none_or(|status| status == row.status)
                && query.duplicates_min.is_none_or(|least| row.duplicates >= least)
                && query.source.is_none_or(|source| {
                    self.catalog.source(row.source).is_some_and(|found| found == source)
                });
            let record = if wanted { Some(self.shown_receipt(&row)?) } else { None };
            if list.offer(Position(row.id.bits()), record) {
                break;
            }
        }
        Ok(list.finish())
    }

    fn shown_receipt(&self, row: &ReceiptRow) -> Result<ReceiptRecord, StoreError> {
        let source = self.catalog.source(row.source);
        let source = source.ok_or_else(|| bad(UnknownCode("source", row.source)))?;
        Ok(row.record(self.connection, source)?)
    }

    /// The event sequences accepted within a span of time: at or after the first, below the second.
    fn sequences(
        &self,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<(i64, i64), StoreError> {
        let low = from.map_or(Ok(0), |from| self.first_since(from))?;
        // Below 2^47, so that it can still be shifted by 16.
        let high = to.map_or(Ok(i64::MAX >> 17), |to| self.first_since(to))?;
        Ok((low, high))
    }

    /// The first event accepted at or after an instant, and the last event there is.
    pub(super) fn events_since(&self, from: Option<Timestamp>) -> rusqlite::Result<(i64, i64)> {
        let last: Option<i64> = self
            .connection
            .prepare_cached("SELECT max(seq) FROM events")?
            .query_row([], |row| row.get(0))?;
        let first = from.map_or(Ok(0), |from| self.first_since(from))?;
        Ok((first, last.unwrap_or(0)))
    }

    /// The first sequence accepted at or after an instant; `created_at` never falls, so a binary
    /// search finds it.
    fn first_since(&self, since: Timestamp) -> rusqlite::Result<i64> {
        let last: Option<i64> = self
            .connection
            .prepare_cached("SELECT max(seq) FROM events")?
            .query_row([], |row| row.get(0))?;
        let (mut low, mut high) = (0, last.map_or(0, |last| last + 1));
        let mut statement = self.connection.prepare_cached(
            "SELECT seq, created_at FROM events WHERE seq >= ?1 ORDER BY seq LIMIT 1",
        )?;
        while low < high {
            let middle = low + (high - low) / 2;
            let (sequence, created_at): (i64, i64) =
                statement.query_row([middle], |row| Ok((row.get(0)?, row.get(1)?)))?;
            if created_at >= since.as_millis() {
                high = middle;
            } else {
                low = sequence + 1;
            }
        }
        Ok(low)
    }

    /// What is due in the lanes that are not paused.
    pub(super) fn lanes_due(&self) -> Result<Vec<LaneDue>, StoreError> {
        let lanes = lease::due(self.connection, |number| {
            let endpoint = self.catalog.endpoint(number)?;
            (endpoint.state == EndpointState::Enabled).then_some(endpoint.id)
        })?;
        Ok(lanes)
    }
}

/// A page in the making.
pub(super) struct List<T> {
    page: PageRequest,
    items: Vec<T>,
    scanned: usize,
    last_item: Option<Position>,
    last_scanned: Option<Position>,
    next: Option<Position>,
}

impl<T> List<T> {
    pub(super) fn new(page: PageRequest) -> Self {
        Self {
            page,
            items: Vec::new(),
            scanned: 0,
            last_item: None,
            last_scanned: None,
            next: None,
        }
    }

    /// Offers the next row, with the thing if it is wanted; true when the page is complete.
    pub(super) fn offer(&mut self, position: Position, wanted: Option<T>) -> bool {
        if self.scanned == self.page.scan_limit {
            self.next = self.last_scanned;
            return true;
        }
        self.scanned += 1;
        if let Some(item) = wanted {
            if self.items.len() == self.page.limit {
                self.next = self.last_item;
                return true;
            }
            self.items.push(item);
            self.last_item = Some(position);
        }
        self.last_scanned = Some(position);
        false
    }

    pub(super) fn finish(self) -> Page<T> {
        Page { items: self.items, next: self.next }
    }
}

fn read_event(row: &Row<'_>, catalog: &Catalog) -> rusqlite::Result<(i64, EventRecord)> {
    let sequence: i64 = row.get(0)?;
    let event_type: String = row.get(3)?;
    let record = EventRecord {
        id: event_id(first_key(sequence), row.get(2)?, catalog.tag),
        event_type: EventType::any(&event_type)
            .map_err(|_| bad(UnknownCode("event type", sequence)))?,
        origin: code::read_origin(row.get(4)?).map_err(bad)?,
        timestamp: Timestamp::from_millis(row.get(5)?),
        source_event_id: row.get(6)?,
        source: row.get::<_, Option<i64>>(8)?.and_then(|number| catalog.source(number)),
        deliveries: row.get(7)?,
    };
    Ok((row.get(1)?, record))
}
