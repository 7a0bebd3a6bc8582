//! Single things and lists. A list looks at a bounded number of rows, newest first by id; ids are
//! led by time, so that a span of time is a span of ids.

use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::endpoint::EndpointState;
use everhook_domain::event::{EventType, Origin};
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::{DeliveryId, EndpointId, EventId, ReceiptId, SEQUENCE_MAX, SourceId};
use everhook_domain::receipt::ReceiptStatus;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::failure::VerbError;
use super::number::{Bits, count, signed, size, small};
use super::row::{COLUMNS, DeliveryRow};
use super::tx::{Access, Tx};
use super::{PostgresStore, health, lease, receipt, record, schema};
use crate::code::{self, status};
use crate::error::StoreError;
use crate::reading::{
    DeliveryDetail, DeliveryQuery, DeliveryRecord, EventDetail, EventQuery, EventRecord, Page,
    PageRequest, Position, Reading, StatusFilter, StoreHealth,
};
use crate::receiving::{ReceiptQuery, ReceiptRecord};
use crate::sending::LaneDue;

/// What [`read_event`] reads, in its order.
const EVENT_COLUMNS: &str = "id, type, origin, happened_at, source_event_id, deliveries, \
     CASE origin WHEN 1 THEN (SELECT source FROM receipts \
     WHERE receipts.tenant = events.tenant AND receipts.id = events.id) END AS source";

#[async_trait]
impl Reading for PostgresStore {
    async fn event(
        &self,
        tenant: TenantId,
        event: EventId,
    ) -> Result<Option<EventDetail>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = find_event(&mut tx, &tenant, event).await;
        self.end(tx, done).await
    }

    async fn events(
        &self,
        tenant: TenantId,
        query: EventQuery,
        page: PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = events(&mut tx, &tenant, &query, page).await;
        self.end(tx, done).await
    }

    async fn delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
    ) -> Result<Option<DeliveryDetail>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = find_delivery(&mut tx, &tenant, delivery).await;
        self.end(tx, done).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        query: DeliveryQuery,
        page: PageRequest,
    ) -> Result<Page<DeliveryRecord>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = deliveries(&mut tx, &tenant, &query, page).await;
        self.end(tx, done).await
    }

    async fn endpoint_health(
        &self,
        tenant: TenantId,
        mut endpoints: Vec<EndpointId>,
    ) -> Result<HashMap<EndpointId, EndpointHealth>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        endpoints.retain(|endpoint| tx.directory.endpoint_of(&tenant, *endpoint).is_some());
        let done = health::read(&mut tx.connection, &endpoints).await;
        self.end(tx, done).await
    }

    async fn health(&self) -> Result<StoreHealth, StoreError> {
        let writable = self.probe().await.is_ok();
        let lanes = match self.begin(Access::Read, Timestamp::default()).await {
            Ok(mut tx) => {
                let done = lanes_due(&mut tx).await;
                self.end(tx, done).await?
            }
            // It cannot be reached: that is what `writable` says.
            Err(_) => Vec::new(),
        };
        Ok(StoreHealth::of(writable, &lanes, &*self.handoff))
    }
}

impl PostgresStore {
    /// Writes something, to see whether the database takes writes.
    async fn probe(&self) -> Result<(), StoreError> {
        let mut tx = self.begin(Access::Write, Timestamp::default()).await?;
        let done = schema::set_meta(&mut tx.connection, "probe", 1).await;
        self.end(tx, done).await
    }
}

/// An event of this tenant.
async fn find_event(
    tx: &mut Tx,
    tenant: &TenantId,
    event: EventId,
) -> Result<Option<EventDetail>, VerbError> {
    let statement =
        format!("SELECT {EVENT_COLUMNS}, body FROM events WHERE tenant = $1 AND id = $2");
    let row = tx.connection.first(&statement, &[&tenant.as_str(), &Bits::from(event)]).await?;
    let Some(row) = row else { return Ok(None) };
    let (record, body) = (read_event(&row)?, Bytes::from(row.try_get::<_, Vec<u8>>(7)?));
    let headers = match record.origin {
        Origin::Received => {
            let mut found =
                receipt::headers(&mut tx.connection, (&[tenant.as_str()], &[event])).await?;
            found.remove(&event)
        }
        Origin::Published | Origin::System => None,
    };
    Ok(Some(EventDetail { record, body, headers }))
}

/// A receipt of this tenant.
pub(super) async fn find_receipt(
    tx: &mut Tx,
    tenant: &TenantId,
    receipt: ReceiptId,
) -> Result<Option<ReceiptRecord>, VerbError> {
    let statement =
        format!("SELECT {} FROM receipts WHERE tenant = $1 AND id = $2", receipt::COLUMNS);
    let row = tx.connection.first(&statement, &[&tenant.as_str(), &Bits::from(receipt)]).await?;
    let Some(row) = row else { return Ok(None) };
    let mut records = [receipt::read(&row)?];
    receipt::fill_deliveries(&mut tx.connection, tenant, &mut records).await?;
    let [record] = records;
    Ok(Some(record))
}

/// A tenant's receipts, newest first.
pub(super) async fn receipts(
    tx: &mut Tx,
    tenant: &TenantId,
    query: &ReceiptQuery,
    page: PageRequest,
) -> Result<Page<ReceiptRecord>, VerbError> {
    let mut list = List::new("receipts", tenant, page, span(None, None));
    match query.status {
        Some(status @ (ReceiptStatus::Conflict | ReceiptStatus::Dead)) => {
            list.scan(&format!("status = {}", code::receipt_status(status)));
        }
        Some(status @ ReceiptStatus::Accepted) => {
            list.filter("status = ", small(code::receipt_status(status)));
        }
        None => {}
    }
    if let Some(source) = query.source {
        list.filter("source = ", Bits::from(source));
    }
    if let Some(least) = query.duplicates_min {
        list.filter("duplicates >= ", signed(least));
    }
    let (rows, next) = list.read(tx, receipt::COLUMNS, 0).await?;
    let mut items = rows.iter().map(receipt::read).collect::<Result<Vec<_>, _>>()?;
    receipt::fill_deliveries(&mut tx.connection, tenant, &mut items).await?;
    Ok(Page { items, next })
}

/// A delivery of this tenant.
async fn find_delivery(
    tx: &mut Tx,
    tenant: &TenantId,
    delivery: DeliveryId,
) -> Result<Option<DeliveryDetail>, VerbError> {
    let statement = format!("SELECT {COLUMNS} FROM deliveries WHERE tenant = $1 AND id = $2");
    let row = tx.connection.first(&statement, &[&tenant.as_str(), &Bits::from(delivery)]).await?;
    let Some(row) = row else { return Ok(None) };
    let record = DeliveryRow::read(&row, 0)?.record;
    let attempts = record::attempts(&mut tx.connection, delivery).await?;
    Ok(Some(DeliveryDetail { record, attempts }))
}

/// A tenant's events, newest first.
async fn events(
    tx: &mut Tx,
    tenant: &TenantId,
    query: &EventQuery,
    page: PageRequest,
) -> Result<Page<EventRecord>, VerbError> {
    let mut list = List::new("events", tenant, page, span(query.from, query.to));
    if let Some(event_type) = &query.event_type {
        list.filter("type = ", event_type.as_str().to_owned());
    }
    let (rows, next) = list.read(tx, EVENT_COLUMNS, 0).await?;
    let items = rows.iter().map(read_event).collect::<Result<_, _>>()?;
    Ok(Page { items, next })
}

/// A tenant's deliveries, newest first.
async fn deliveries(
    tx: &mut Tx,
    tenant: &TenantId,
    query: &DeliveryQuery,
    page: PageRequest,
) -> Result<Page<DeliveryRecord>, VerbError> {
    let (mut low, mut below) = span(query.from, query.to);
    if let Some(event) = query.event {
        if event.ordinal() != 0 {
            // It names a delivery.
            return Ok(Page { items: Vec::new(), next: None });
        }
        low = low.max(event.bits());
        below = below.min(event.delivery(u16::MAX).bits().saturating_add(1));
    }
    let mut list = List::new("deliveries", tenant, page, (low, below));
    if let Some(status) = query.status {
        let status = match status {
            StatusFilter::Due => status::DUE,
            StatusFilter::Leased => status::LEASED,
            StatusFilter::Delivered => status::DELIVERED,
            StatusFilter::Dead => status::DEAD,
            StatusFilter::Cancelled => status::CANCELLED,
        };
        list.scan(&format!("status = {status}"));
    }
    if let Some(endpoint) = query.endpoint {
        list.filter("endpoint = ", Bits::from(endpoint));
    }
    if let Some(event_type) = &query.event_type {
        list.filter("type = ", event_type.as_str().to_owned());
    }
    let (rows, next) = list.read(tx, COLUMNS, 1).await?;
    let items = DeliveryRow::read_all(&rows)?.into_iter().map(|row| row.record).collect();
    Ok(Page { items, next })
}

/// What is due in the lanes that are not paused.
pub(super) async fn lanes_due(tx: &mut Tx) -> Result<Vec<LaneDue>, VerbError> {
    let lanes = lease::due(&mut tx.connection).await?;
    let enabled = lanes.into_iter().filter(|lane| {
        let endpoint = tx.directory.endpoint(lane.endpoint);
        endpoint.is_some_and(|endpoint| endpoint.state == EndpointState::Enabled)
    });
    Ok(enabled.collect())
}

/// The ids accepted within a span of time: at or after the first, below the second.
fn span(from: Option<Timestamp>, to: Option<Timestamp>) -> (u128, u128) {
    let first_at = |at: Timestamp| {
        let millis = u64::try_from(at.as_millis()).unwrap_or(0).min(SEQUENCE_MAX);
        EventId::from_parts(millis, 0, 0, 0).bits()
    };
    (from.map_or(0, first_at), to.map_or(u128::MAX, first_at))
}

/// The place just before the first event accepted at or after an instant, and the last event.
pub(super) async fn events_since(
    tx: &mut Tx,
    tenant: &TenantId,
    from: Option<Timestamp>,
) -> Result<(Bits, Bits), VerbError> {
    let (first, _) = span(from, None);
    let statement = "SELECT id FROM events WHERE tenant = $1 ORDER BY id DESC LIMIT 1";
    let last = tx.connection.first(statement, &[&tenant.as_str()]).await?;
    let last = last.map(|row| row.try_get(0)).transpose()?.unwrap_or(Bits(0));
    Ok((Bits(first.saturating_sub(1)), last))
}

/// A list in the making.
pub(super) struct List<'a> {
    table: &'static str,
    tenant: &'a str,
    page: PageRequest,
    low: Bits,
    below: Bits,
    /// What limits the rows that are looked at.
    scan: String,
    /// What those must fulfil that are shown.
    filter: String,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl<'a> List<'a> {
    /// A list of rows with `tenant` and `id`.
    pub(super) fn new(
        table: &'static str,
        tenant: &'a TenantId,
        page: PageRequest,
        (low, below): (u128, u128),
    ) -> Self {
        let below = page.after.map_or(below, |Position(after)| below.min(after));
        Self {
            table,
            tenant: tenant.as_str(),
            page,
            low: Bits(low),
            below: Bits(below),
            scan: String::new(),
            filter: String::new(),
            values: Vec::new(),
        }
    }

    /// Looks only at what fulfils a condition; an index has it.
    pub(super) fn scan(&mut self, condition: &str) {
        self.scan = format!(" AND {condition}");
    }

    /// Shows only what fulfils a condition; the value comes at its end.
    pub(super) fn filter(&mut self, condition: &str, value: impl ToSql + Sync + Send + 'static) {
        self.values.push(Box::new(value));
        let joint = if self.filter.is_empty() { "WHERE" } else { " AND" };
        // After tenant, low, below and the two limits.
        let place = self.values.len() + 5;
        self.filter = format!("{}{joint} {condition}${place}", self.filter);
    }

    /// Reads the page's rows and where to go on. `id` is the place of the id in `columns`.
    pub(super) async fn read(
        &self,
        tx: &mut Tx,
        columns: &str,
        id: usize,
    ) -> Result<(Vec<Row>, Option<Position>), VerbError> {
        let looked_at = format!(
            "FROM {} WHERE tenant = $1 AND id >= $2 AND id < $3{} ORDER BY id DESC",
            self.table, self.scan
        );
        let statement = format!(
            "SELECT * FROM (SELECT {columns} {looked_at} LIMIT $4) AS looked_at {} \
             ORDER BY id DESC LIMIT $5",
            self.filter
        );
        let (scan_limit, limit) = (size(self.page.scan_limit), size(self.page.limit));
        let one_more = limit.saturating_add(1);
        let base: [&(dyn ToSql + Sync); 3] = [&self.tenant, &self.low, &self.below];
        let mut params = base.to_vec();
        params.extend::<[&(dyn ToSql + Sync); 2]>([&scan_limit, &one_more]);
        params.extend(self.values.iter().map(|value| {
            let value: &(dyn ToSql + Sync) = &**value;
            value
        }));
        let mut rows = tx.connection.query(&statement, &params).await?;
        if rows.len() > self.page.limit {
            rows.truncate(self.page.limit);
            let last = rows.last().map(|row| row.try_get(id)).transpose()?;
            return Ok((rows, last.map(|Bits(last)| Position(last))));
        }
        // The page is not full: did the rows end, or the patience?
        let edge = format!("SELECT id {looked_at} OFFSET $4 LIMIT 2");
        let before_last = scan_limit.saturating_sub(1);
        let params = [base[0], base[1], base[2], &before_last];
        let edge = tx.connection.query(&edge, &params).await?;
        let next = match &edge[..] {
            [last, _beyond] => Some(last.try_get(0)?),
            _ => None,
        };
        Ok((rows, next.map(|Bits(last)| Position(last))))
    }
}

fn read_event(row: &Row) -> Result<EventRecord, VerbError> {
    let Bits(id) = row.try_get(0)?;
    let id = EventId::from_bits(id);
    let event_type = EventType::any(row.try_get(1)?)
        .map_err(|error| VerbError::Unusable(format!("the type of event {id}: {error}")))?;
    let origin: i16 = row.try_get(2)?;
    let source: Option<Bits> = row.try_get(6)?;
    Ok(EventRecord {
        id,
        event_type,
        origin: code::read_origin(i64::from(origin))?,
        timestamp: Timestamp::from_millis(row.try_get(3)?),
        source_event_id: row.try_get(4)?,
        source: source.map(|Bits(source)| SourceId::from_bits(source)),
        deliveries: count(row.try_get(5)?),
    })
}
