//! Short forms of receiving: sources, items and receipts.

use bytes::Bytes;
use everhook_domain::endpoint::EndpointSettings;
use everhook_domain::id::{EndpointId, EventId, ReceiptId, SourceId};
use everhook_domain::inbound::{DedupeKey, ForwardedHeaders, OnChange};
use everhook_domain::source::{SourceInput, SourceSettings};
use everhook_domain::tenant::TenantId;
use everhook_store::{
    Change, Decision, EventRecord, NewReceipt, PageRequest, ReceiptQuery, ReceiptRecord, Receive,
    Received, StoreError, Verdict,
};

use crate::sketch::{event_type, secrets, settings};
use crate::world::World;

/// The window of sources whose window does not matter: 48 h, as the kind has it.
pub(crate) const WINDOW_S: u64 = 48 * 3_600;

/// Settings of a source.
pub(crate) fn source_settings(name: &str, window_s: Option<u64>) -> SourceSettings {
    let input =
        SourceInput { name: name.into(), kind: "none".into(), window_s, ..Default::default() };
    SourceSettings::parse(input).unwrap()
}

/// An item of one key, whose body is its content.
pub(crate) fn item(key: &str, body: &str) -> NewReceipt {
    let mut content = [0; 32];
    content[..body.len().min(32)].copy_from_slice(&body.as_bytes()[..body.len().min(32)]);
    NewReceipt {
        key: DedupeKey::new(&[key]),
        on_change: OnChange::Conflict,
        content,
        guard: None,
        event_type: event_type("shop.order"),
        body: Bytes::copy_from_slice(body.as_bytes()),
        unreadable: None,
    }
}

/// An item whose provider's id decides.
pub(crate) fn marked(key: &str, body: &str) -> NewReceipt {
    NewReceipt { on_change: OnChange::Mark, ..item(key, body) }
}

/// An item with signed bytes.
pub(crate) fn guarded(key: &str, body: &str, guard: u8) -> NewReceipt {
    NewReceipt { guard: Some([guard; 32]), ..marked(key, body) }
}

/// An item that cannot be read.
pub(crate) fn unreadable(key: &str, body: &str) -> NewReceipt {
    NewReceipt { unreadable: Some("not JSON".into()), ..item(key, body) }
}

/// The headers that go on with every request of the tests; one is no text.
pub(crate) fn headers() -> ForwardedHeaders {
    let stored = r#"[["x-signature","sha256=abc"],["x-raw",{"base64":"/w=="}]]"#;
    ForwardedHeaders::from_stored(stored).unwrap()
}

/// What a call to a source brings.
pub(crate) fn request(tenant: &TenantId, source: SourceId, items: Vec<NewReceipt>) -> Receive {
    Receive { tenant: tenant.clone(), source, items, headers: headers() }
}

impl World {
    /// Makes a source of the default tenant.
    pub(crate) fn source(&self, name: &str) -> SourceId {
        self.source_in(&self.tenant, name, None)
    }

    pub(crate) fn source_in(
        &self,
        tenant: &TenantId,
        name: &str,
        window_s: Option<u64>,
    ) -> SourceId {
        let settings = Box::new(source_settings(name, window_s));
        let change = Change::CreateSource { tenant: tenant.clone(), settings };
        self.change(change).unwrap().source().unwrap().id
    }

    /// Makes an endpoint of the default tenant that wants what these sources receive.
    pub(crate) fn inbox(&self, sources: &[&str]) -> EndpointId {
        self.inbox_with(sources, |_| {})
    }

    pub(crate) fn inbox_with(
        &self,
        sources: &[&str],
        change: impl FnOnce(&mut EndpointSettings),
    ) -> EndpointId {
        let mut settings = settings(&[]);
        settings.subscription.sources = sources.iter().map(|name| name.parse().unwrap()).collect();
        change(&mut settings);
        let tenant = self.tenant.clone();
        let change = Change::CreateEndpoint { tenant, settings, secrets: secrets(1) };
        self.change(change).unwrap().endpoint().unwrap().id
    }

    pub(crate) fn try_receive(&self, receive: Receive) -> Result<Vec<Received>, StoreError> {
        self.wait(self.store.receive(receive, self.now))
    }

    /// Receives one request of the default tenant.
    pub(crate) fn receive(&self, source: SourceId, items: Vec<NewReceipt>) -> Vec<Received> {
        self.try_receive(request(&self.tenant, source, items)).unwrap()
    }

    /// Receives a request with one item.
    pub(crate) fn receive_one(&self, source: SourceId, item: NewReceipt) -> Received {
        let mut received = self.receive(source, vec![item]);
        assert_eq!(received.len(), 1);
        received.remove(0)
    }

    /// Receives a request and tells the verdicts only.
    pub(crate) fn verdicts(&self, source: SourceId, items: Vec<NewReceipt>) -> Vec<Verdict> {
        self.receive(source, items).into_iter().map(|received| received.verdict).collect()
    }

    /// Receives a request with one item, and tells the verdict only.
    pub(crate) fn verdict(&self, source: SourceId, item: NewReceipt) -> Verdict {
        self.receive_one(source, item).verdict
    }

    pub(crate) fn receipt(&self, receipt: ReceiptId) -> ReceiptRecord {
        let found = self.wait(self.store.receipt(self.tenant.clone(), receipt));
        found.unwrap().unwrap()
    }

    /// The default tenant's receipts, newest first.
    pub(crate) fn receipts(&self, query: ReceiptQuery) -> Vec<ReceiptRecord> {
        let page = PageRequest { limit: 100_000, after: None, scan_limit: 1_000_000 };
        let page = self.wait(self.store.receipts(self.tenant.clone(), query, page)).unwrap();
        assert_eq!(page.next, None);
        page.items
    }

    pub(crate) fn decide(
        &self,
        receipt: ReceiptId,
        decision: Decision,
    ) -> Result<ReceiptRecord, StoreError> {
        let tenant = self.tenant.clone();
        let verb = self.store.decide(tenant, receipt, decision, None, self.now);
        self.wait(verb).map(|decided| decided.done().unwrap())
    }

    /// The record of an event.
    pub(crate) fn event_record(&self, event: EventId) -> EventRecord {
        self.event(event).record
    }
}
