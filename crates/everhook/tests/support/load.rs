//! The load: posts orders from several connections at once and remembers what was answered 2xx.
//!
//! An order without an answer is posted again in the next life, with the same ids and key, until it
//! is answered: whatever happened to the first try, it must make one event.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;

use super::api::{Receipt, TOKEN};
use super::http::{Connection, Message};
use super::intake::{SIGNATURE, Source};
use super::orders::{Order, Orders, Planned, Sort};
use super::pause;

/// Connections that post at once.
const POSTERS: usize = 8;
/// How long a poster waits that was asked to come back later.
const COME_BACK_AFTER: Duration = Duration::from_millis(50);
/// Answers must come within the time of one call.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// What a server said to one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is accepted.
    Accepted,
    /// Not now.
    Later,
}

/// What is said, as it is said.
pub(crate) struct Answers(mpsc::Receiver<Said>);

impl Answers {
    /// Waits until this was said so often; how often it was, if the server fell silent.
    pub(crate) fn wait(&self, said: Said, times: u64) -> Result<(), u64> {
        let mut seen = 0;
        while seen < times {
            match self.0.recv_timeout(ANSWER_LIMIT) {
                Ok(next) => seen += u64::from(next == said),
                Err(_silent) => return Err(seen),
            }
        }
        Ok(())
    }
}

/// An event that was answered 2xx.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    /// What was posted.
    pub(crate) planned: Planned,
    /// The id in the answer; of a webhook, that of its receipt, which is asked for later.
    pub(crate) event: String,
    /// The number of deliveries in the answer.
    pub(crate) deliveries: usize,
    /// Which process answered.
    pub(crate) life: usize,
}

/// Everything that was posted.
#[derive(Debug)]
pub(crate) struct Load {
    orders: Orders,
    unanswered: Vec<Order>,
    accepted: Vec<Accepted>,
    wrong: Vec<String>,
}

#[derive(Deserialize)]
struct Answered {
    id: String,
    r#type: String,
    duplicate: bool,
    #[serde(default)]
    differs: bool,
    deliveries: usize,
}

#[derive(Deserialize)]
struct AnsweredBatch {
    events: Vec<Answered>,
}

impl Load {
    /// A load of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            orders: Orders::new(seed),
            unanswered: Vec::new(),
            accepted: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// What was accepted so far, in the order of the answers.
    pub(crate) fn accepted(&self) -> &[Accepted] {
        &self.accepted
    }

    /// Answers that should not have been given, since the last call.
    pub(crate) fn take_wrong(&mut self) -> Vec<String> {
        std::mem::take(&mut self.wrong)
    }

    /// Puts an order before all others.
    pub(crate) fn order(&mut self, source_id: &str, sort: Sort) {
        let events = vec![Planned { source_id: source_id.to_owned(), sort }];
        self.unanswered.push(Order { events, key: None, tries: 0 });
    }

    /// Posts new orders, after those that had no answer, while `watch` runs and follows what is
    /// said. The posters of a server that dies stop by themselves.
    pub(crate) fn press<T>(
        &mut self,
        address: SocketAddr,
        life: usize,
        watch: impl FnOnce(&Answers) -> T,
    ) -> T {
        let enough = AtomicBool::new(false);
        let shared = Mutex::new(self);
        let (answered, answers) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..POSTERS {
                let poster = Poster { shared: &shared, enough: &enough, life };
                let answered = answered.clone();
                scope.spawn(move || poster.run(address, &answered));
            }
            drop(answered);
            let _posters_stop = Enough(&enough);
            watch(&Answers(answers))
        })
    }

    /// Posts what had no answer until it has one.
    pub(crate) fn press_unanswered(&mut self, address: SocketAddr, life: usize) {
        let enough = AtomicBool::new(true);
        let shared = Mutex::new(self);
        let (answered, _answers) = mpsc::channel();
        Poster { shared: &shared, enough: &enough, life }.run(address, &answered);
    }

    /// Takes over which event each webhook has become. One without a receipt stays without.
    pub(crate) fn name_received(&mut self, receipts: &[Receipt]) {
        let events: HashMap<String, &str> = receipts
            .iter()
            .map(|receipt| {
                (format!("{}/{}", receipt.source, receipt.key), receipt.event_id.as_str())
            })
            .collect();
        for accepted in self.accepted.iter_mut().filter(|accepted| accepted.event.is_empty()) {
            if let Some(event) = events.get(&accepted.planned.source_id) {
                accepted.event = (*event).to_owned();
            }
        }
    }

    fn take_received(&mut self, planned: Planned, tries: u32, body: &[u8], life: usize) {
        match says(body) {
            Some("accepted") => {}
            Some(_duplicate) if tries > 1 => {}
            Some(_) | None => {
                let body = String::from_utf8_lossy(body);
                self.wrong
                    .push(format!("{}: the first try was answered {body}", planned.source_id));
            }
        }
        let deliveries = planned.sort.targets().len();
        self.accepted.push(Accepted { planned, event: String::new(), deliveries, life });
    }

    fn note_wrong(&mut self, what: String) {
        self.wrong.push(what);
    }

    fn take_answer(&mut self, order: Order, status: u16, body: &[u8], life: usize) -> Option<Said> {
        match (status, answers(&order, body)) {
            (200 | 202, Some(answers)) => {
                for (planned, answer) in order.events.into_iter().zip(answers) {
                    if answer.differs
                        || answer.r#type != planned.sort.event_type()
                        || (answer.duplicate && order.tries < 2)
                    {
                        let source_id = &planned.source_id;
                        self.wrong.push(format!("{source_id}: the answer says otherwise"));
                    }
                    let Answered { id: event, deliveries, .. } = answer;
                    self.accepted.push(Accepted { planned, event, deliveries, life });
                }
                Some(Said::Accepted)
            }
            (503 | 429, _) => {
                self.unanswered.push(order);
                Some(Said::Later)
            }
            (status, _) => {
                let body = String::from_utf8_lossy(body);
                self.wrong.push(format!("{order:?} was answered {status}: {body}"));
                None
            }
        }
    }
}

fn answers(order: &Order, body: &[u8]) -> Option<Vec<Answered>> {
    let answers = if order.is_batch() {
        serde_json::from_slice::<AnsweredBatch>(body).ok()?.events
    } else {
        vec![serde_json::from_slice(body).ok()?]
    };
    (answers.len() == order.events.len()).then_some(answers)
}

/// Stops the posters when it goes, also when a watching test panics.
struct Enough<'a>(&'a AtomicBool);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Poster<'a, 'l> {
    shared: &'a Mutex<&'l mut Load>,
    /// No new orders any more.
    enough: &'a AtomicBool,
    life: usize,
}

impl<'l> Poster<'_, 'l> {
    fn load(&self) -> MutexGuard<'_, &'l mut Load> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Order> {
        let mut load = self.load();
        let order = load.unanswered.pop();
        let mut order = match order {
            None if self.enough.load(Ordering::Relaxed) => return None,
            None => load.orders.next(),
            Some(order) => order,
        };
        order.tries += 1;
        Some(order)
    }

    /// Posts until the server is gone or there was enough.
    fn run(&self, address: SocketAddr, answered: &mpsc::Sender<Said>) {
        let Ok(mut connection) = Connection::open(address) else { return };
        let bearer = format!("Bearer {TOKEN}");
        while let Some(order) = self.next() {
            if let Some(source) = order.source() {
                if self.bring(&mut connection, order, source, answered).is_err() {
                    return;
                }
                continue;
            }
            let mut headers =
                vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
            headers.extend(order.key.as_deref().map(|key| ("idempotency-key", key)));
            match connection.call(&order.call(), &headers, order.body().as_bytes()) {
                Ok((status, answer)) => {
                    let count = order.events.len();
                    let said = self.load().take_answer(order, status, &answer.body, self.life);
                    for said in said.into_iter().cycle().take(count) {
                        let _nobody_counts = answered.send(said);
                    }
                    if said == Some(Said::Later) {
                        pause(COME_BACK_AFTER);
                    }
                }
                Err(_gone) => {
                    self.load().unanswered.push(order);
                    return;
                }
            }
        }
    }

    /// Brings a webhook to its source: before the first try comes somebody who cannot sign it, and
    /// after the last one the provider itself again.
    ///
    /// # Errors
    /// The server is gone. What has no answer is brought again in the next life.
    fn bring(
        &self,
        connection: &mut Connection,
        order: Order,
        source: &Source,
        answered: &mpsc::Sender<Said>,
    ) -> io::Result<()> {
        let brought = self.try_to_bring(connection, &order, source);
        match brought {
            Ok((200, answer)) => {
                let planned = order.events[0].clone();
                self.load().take_received(planned, order.tries, &answer.body, self.life);
                let _nobody_counts = answered.send(Said::Accepted);
                let (status, again) = call(connection, source, &order.body(), None)?;
                if status == 200 && says(&again.body) != Some("duplicate") {
                    let what = format!("{order:?} came again and was not a duplicate");
                    self.load().note_wrong(what);
                }
                Ok(())
            }
            Ok((429 | 503, _)) => {
                self.load().unanswered.push(order);
                let _nobody_counts = answered.send(Said::Later);
                pause(COME_BACK_AFTER);
                Ok(())
            }
            Ok((status, answer)) => {
                let body = String::from_utf8_lossy(&answer.body);
                self.load().note_wrong(format!("{order:?} was answered {status}: {body}"));
                Ok(())
            }
            Err(gone) => {
                self.load().unanswered.push(order);
                Err(gone)
            }
        }
    }

    fn try_to_bring(
        &self,
        connection: &mut Connection,
        order: &Order,
        source: &Source,
    ) -> io::Result<(u16, Message)> {
        let body = order.body();
        if order.tries == 1 {
            let forged = body.replace("1.50E+2", "9.99E+9");
            let (status, _) = call(connection, source, &forged, Some(&source.sign(&body)))?;
            if !matches!(status, 401 | 503) {
                self.load().note_wrong(format!("{order:?} was forged and answered {status}"));
            }
        }
        call(connection, source, &body, None)
    }
}

/// Brings a body to a source, with the signature of it, or with another.
fn call(
    connection: &mut Connection,
    source: &Source,
    body: &str,
    signature: Option<&str>,
) -> io::Result<(u16, Message)> {
    let own = source.sign(body);
    let headers = [(SIGNATURE, signature.unwrap_or(&own)), ("content-type", "application/json")];
    connection.call(&source.call(), &headers, body.as_bytes())
}

/// What a source answers.
fn says(body: &[u8]) -> Option<&'static str> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    ["accepted", "duplicate"].into_iter().find(|word| answer["status"] == *word)
}
