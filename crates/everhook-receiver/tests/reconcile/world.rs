//! A publisher with an API, and a receiver that holds its objects.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use everhook_receiver::Timestamp;
use everhook_receiver::reconcile::{
    Ask, Listed, MemoryProgress, NoPage, Objects, Page, Pages, ProgressStore, Reconciler,
};
use everhook_receiver::version::memory::VersionGate;
use everhook_receiver::version::{Content, ObjectKey, State, Verdict, Version};

/// Rows on a page.
const PAGE: usize = 2;

/// A row of the publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) version: i64,
    pub(crate) text: String,
    changed_at: i64,
    /// Before this instant the list does not show it, as where a transaction commits late.
    shown_at: i64,
}

/// What is done to the publisher before it gives the page of this number, counted from 1.
type Hook = Box<dyn Fn(&mut Rows, u32) + Send>;

/// The publisher's table and clock.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) now: i64,
    rows: BTreeMap<String, Row>,
}

impl Rows {
    /// Makes or changes an object, and lets some time go by.
    pub(crate) fn put(&mut self, id: &str, text: &str) -> Row {
        self.now += 10;
        self.put_now(id, text)
    }

    /// As `put`, in the same instant as what was done before.
    pub(crate) fn put_now(&mut self, id: &str, text: &str) -> Row {
        let version = self.rows.get(id).map_or(1, |row| row.version + 1);
        let (text, now) = (text.to_owned(), self.now);
        let row = Row { version, text, changed_at: now, shown_at: now };
        self.rows.insert(id.to_owned(), row.clone());
        row
    }

    /// As `put`, and the list shows it only after so many milliseconds.
    pub(crate) fn put_late(&mut self, id: &str, text: &str, late: i64) {
        let row = self.put(id, text);
        self.rows.insert(id.to_owned(), Row { shown_at: row.changed_at + late, ..row });
    }

    /// Shows what was put, whatever the clock says.
    pub(crate) fn show_all(&mut self) {
        self.rows.values_mut().for_each(|row| row.shown_at = 0);
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.now += 10;
        self.rows.remove(id).unwrap();
    }

    fn page(&self, ask: &Ask) -> Page<Row> {
        let after = ask.cursor.as_ref().map(|cursor| {
            let (time, id) = cursor.split_once('/').unwrap();
            (time.parse::<i64>().unwrap(), id.to_owned())
        });
        let from = ask.from.map_or(i64::MIN, Timestamp::as_millis);
        let mut listed: Vec<_> = self
            .rows
            .iter()
            .filter(|(_, row)| row.shown_at <= self.now && row.changed_at >= from)
            .map(|(id, row)| ((row.changed_at, id.clone()), row))
            .filter(|(place, _)| after.as_ref().is_none_or(|after| place > after))
            .collect();
        listed.sort_by(|(one, _), (other, _)| one.cmp(other));
        let more = listed.len() > PAGE;
        listed.truncate(PAGE);
        let next = listed.last().filter(|_| more).map(|((time, id), _)| format!("{time}/{id}"));
        let objects = listed.into_iter().map(|((_, id), row)| listing(&id, row)).collect();
        Page { objects, next, now: Timestamp::from_millis(self.now) }
    }
}

fn listing(id: &str, row: &Row) -> Listed<Row> {
    let changed_at = Timestamp::from_millis(row.changed_at);
    Listed { id: id.to_owned(), changed_at, object: row.clone() }
}

/// The publisher's API.
#[derive(Default)]
pub(crate) struct Api {
    pub(crate) rows: Mutex<Rows>,
    hook: Mutex<Option<Hook>>,
    /// Numbers of the pages that fail, and how.
    pub(crate) faults: Mutex<BTreeMap<u32, NoPage<&'static str>>>,
    pub(crate) asked: Mutex<Vec<Ask>>,
}

impl Api {
    pub(crate) fn before_page(&self, hook: impl Fn(&mut Rows, u32) + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    pub(crate) fn put(&self, id: &str, text: &str) -> Row {
        self.rows.lock().unwrap().put(id, text)
    }

    fn all(&self) -> BTreeMap<String, Row> {
        self.rows.lock().unwrap().rows.clone()
    }
}

#[async_trait]
impl Pages for Api {
    type Object = Row;
    type Error = &'static str;

    async fn page(&self, ask: &Ask) -> Result<Page<Row>, NoPage<&'static str>> {
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(ask.clone());
            u32::try_from(asked.len()).unwrap()
        };
        let mut rows = self.rows.lock().unwrap();
        if let Some(hook) = &*self.hook.lock().unwrap() {
            hook(&mut rows, number);
        }
        match self.faults.lock().unwrap().remove(&number) {
            Some(fault) => Err(fault),
            None => Ok(rows.page(ask)),
        }
    }

    async fn one(&self, id: &str) -> Result<Option<Listed<Row>>, &'static str> {
        Ok(self.rows.lock().unwrap().rows.get(id).map(|row| listing(id, row)))
    }
}

/// What the receiver holds, and what it has applied in which order.
#[derive(Default)]
pub(crate) struct Contacts {
    gate: VersionGate,
    held: Mutex<BTreeMap<String, (State, String)>>,
    pub(crate) applied: Mutex<Vec<(String, i64)>>,
}

impl Contacts {
    /// The one way in, of webhooks and of what is read.
    pub(crate) fn receive(&self, id: &str, row: &Row) -> Verdict {
        let state =
            State { version: Version(row.version), content: Content::of(row.text.as_bytes()) };
        let write = || -> Result<(), Infallible> {
            self.held.lock().unwrap().insert(id.to_owned(), (state, row.text.clone()));
            self.applied.lock().unwrap().push((id.to_owned(), row.version));
            Ok(())
        };
        self.gate.advance(&ObjectKey::new(&[id]), &state, write).unwrap()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.held.lock().unwrap().keys().cloned().collect()
    }
}

#[async_trait]
impl Objects<Row> for Contacts {
    type Error = &'static str;

    async fn apply(&self, listed: Listed<Row>) -> Result<Verdict, &'static str> {
        Ok(self.receive(&listed.id, &listed.object))
    }

    async fn held(&self) -> Result<Vec<String>, &'static str> {
        Ok(self.ids())
    }

    async fn missing(&self, id: &str) -> Result<(), &'static str> {
        let Some((held, _)) = self.held.lock().unwrap().get(id).cloned() else { return Ok(()) };
        let gone = State { content: Content::Deleted, ..held };
        let write = || -> Result<(), Infallible> {
            self.held.lock().unwrap().remove(id);
            Ok(())
        };
        let _ = self.gate.settle(&ObjectKey::new(&[id]), &held, &gone, write);
        Ok(())
    }
}

/// Both, and what is between them.
pub(crate) struct World {
    pub(crate) api: Arc<Api>,
    pub(crate) contacts: Arc<Contacts>,
    pub(crate) reconciler: Reconciler<Arc<Api>, Arc<Contacts>, Arc<dyn ProgressStore>>,
}

impl World {
    /// An API with so many objects, of which nothing is held yet.
    pub(crate) fn new(objects: u32) -> Self {
        Self::with(objects, Arc::new(MemoryProgress::default()))
    }

    pub(crate) fn with(objects: u32, progress: Arc<dyn ProgressStore>) -> Self {
        let (api, contacts) = (Arc::<Api>::default(), Arc::<Contacts>::default());
        // Neither the time of this machine nor near it.
        api.rows.lock().unwrap().now = 1_000_000_000;
        for number in 1..=objects {
            api.put(&format!("c{number}"), "made");
        }
        let mut reconciler =
            Reconciler::new("crm", Arc::clone(&api), Arc::clone(&contacts), progress);
        reconciler.overlap = std::time::Duration::from_millis(50);
        Self { api, contacts, reconciler }
    }

    /// The same receiver in a new process, with progress from where it was kept.
    pub(crate) fn restart(&mut self, progress: Arc<dyn ProgressStore>) {
        let (api, contacts) = (Arc::clone(&self.api), Arc::clone(&self.contacts));
        let overlap = self.reconciler.overlap;
        self.reconciler = Reconciler { overlap, ..Reconciler::new("crm", api, contacts, progress) };
    }

    /// What is held is what the publisher has, and nothing was applied twice or backwards.
    pub(crate) fn converged(&self) {
        let held = self.contacts.held.lock().unwrap().clone();
        let held: BTreeMap<_, _> =
            held.into_iter().map(|(id, (state, text))| (id, (state.version.0, text))).collect();
        let rows = self.api.all().into_iter();
        let there: BTreeMap<_, _> = rows.map(|(id, row)| (id, (row.version, row.text))).collect();
        assert_eq!(held, there);
        let mut last = BTreeMap::new();
        for (id, version) in self.contacts.applied.lock().unwrap().iter() {
            let before = last.insert(id.clone(), *version);
            assert!(before < Some(*version), "{id}: {version} after {before:?}");
        }
    }
}
