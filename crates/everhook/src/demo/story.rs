//! What happens in the demo, step by step, and the proof that it did.
//!
//! The story knows only the public API and what its own receiver saw. Nothing is told that was not
//! seen.

use std::time::Duration;

use everhook_domain::secret::Secret;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time;

use super::api::{Api, Delivery};
use super::receiver::{Arrival, Receiver, Temper};
use super::screen::{Screen, Tone};
use super::summary::{Seen, Summary};
use crate::exit::Failure;

/// The offsets of the demo's schedule: short, so that a delivery is dead within seconds.
pub(crate) const SCHEDULE: &str = "0s,1s,2s";
/// Attempts of a round by that schedule.
pub(crate) const ATTEMPTS: u32 = 3;
/// How long each thing that is waited for may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the API is asked whether it has happened.
const POLL: Duration = Duration::from_millis(100);
/// Between two events.
const GAP: Duration = Duration::from_millis(150);

/// Which endpoint wants which events.
const WANTED: [(Temper, &str); 3] =
    [(Temper::Steady, "order.*"), (Temper::Flaky, "invoice.*"), (Temper::Broken, "refund.*")];

/// The type of an event, its data, and its source event ID.
const EVENTS: [(&str, &str, &str); 7] = [
    ("refund.created", r#"{"refund": 1, "amount": "12.50"}"#, "refund-1"),
    ("order.created", r#"{"order": 1, "total": "99.00"}"#, "order-1"),
    ("order.created", r#"{"order": 2, "total": "20.00"}"#, "order-2"),
    ("invoice.created", r#"{"invoice": 1, "order": 1}"#, "invoice-1"),
    ("order.shipped", r#"{"order": 1, "by": "bicycle"}"#, "order-1-shipped"),
    ("invoice.created", r#"{"invoice": 2, "order": 2}"#, "invoice-2"),
    // The same as an earlier one, as a publisher that retries would send it.
    ("order.created", r#"{"order": 2, "total": "20.00"}"#, "order-2"),
];

/// The story and its means.
pub(crate) struct Story<'a> {
    api: &'a Api,
    receiver: &'a Receiver,
    arrivals: &'a mut UnboundedReceiver<Arrival>,
    screen: &'a Screen,
    seen: Seen,
}

impl<'a> Story<'a> {
    /// A story that has not begun: on this server, with this receiver, of which `arrivals` tells.
    pub(crate) fn new(
        api: &'a Api,
        receiver: &'a Receiver,
        arrivals: &'a mut UnboundedReceiver<Arrival>,
        screen: &'a Screen,
    ) -> Self {
        Self { api, receiver, arrivals, screen, seen: Seen::default() }
    }

    /// Plays it to its end.
    ///
    /// # Errors
    /// The server refused something or did not answer. That something did not happen is not an
    /// error here: the summary tells.
    pub(crate) async fn play(mut self) -> Result<Summary, Failure> {
        self.make_endpoints().await?;
        self.publish_events().await?;
        if let Some(dead) = self.wait_for(|delivery| delivery.status == "dead").await? {
            self.tell_dead(&dead).await?;
            self.receiver.repair();
            let repaired = "broken answers 200 from now on; nothing is sent again by itself";
            self.screen.tell(Tone::Action, "repaired", repaired)?;
            self.api.replay(&dead.id).await?;
            let what = format!("{:<16} to broken, the same id and bytes", dead.event_type);
            self.screen.tell(Tone::Action, "replay", what)?;
            self.seen.replays += 1;
        }
        self.wait_until_all_delivered().await?;
        let deliveries = self.api.deliveries().await?;
        Ok(Summary::new(self.seen, &deliveries))
    }

    /// Goes on telling what comes in.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(crate) async fn watch_for_ever(mut self) -> Result<(), Failure> {
        while let Some(arrival) = self.arrivals.recv().await {
            self.tell_arrival(arrival)?;
        }
        Ok(())
    }

    async fn make_endpoints(&mut self) -> Result<(), Failure> {
        for (temper, event_type) in WANTED {
            let secret = self.api.endpoint(&self.receiver.url(temper), event_type).await?;
            let secret = Secret::parse(&secret)
                .map_err(|error| Failure::failed(format!("the endpoint's secret: {error}")))?;
            self.receiver.trust(temper, secret);
            let what = format!("{:<8} wants {event_type}", temper.name());
            self.screen.tell(Tone::Plain, "endpoint", what)?;
        }
        Ok(())
    }

    async fn publish_events(&mut self) -> Result<(), Failure> {
        for (event_type, data, source_event_id) in EVENTS {
            let data: Value = serde_json::from_str(data)
                .map_err(|error| Failure::failed(format!("the demo's event: {error}")))?;
            let body =
                json!({ "type": event_type, "data": data, "source_event_id": source_event_id });
            let published = self.api.publish(&body).await?;
            if published.duplicate {
                self.seen.duplicates += 1;
                let what =
                    format!("{event_type:<16} {source_event_id} was seen before: no new event");
                self.screen.tell(Tone::Plain, "duplicate", what)?;
            } else {
                self.seen.accepted += 1;
                let what = format!("{event_type:<16} {} delivery", published.deliveries);
                self.screen.tell(Tone::Plain, "accepted", what)?;
            }
            self.watch(GAP).await?;
        }
        Ok(())
    }

    /// Tells what comes in for a while.
    async fn watch(&mut self, how_long: Duration) -> Result<(), Failure> {
        let end = time::sleep(how_long);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return Ok(()),
                Some(arrival) = self.arrivals.recv() => self.tell_arrival(arrival)?,
            }
        }
    }

    /// Waits until there is such a delivery, and returns it; `None` if there never is.
    async fn wait_for(
        &mut self,
        wanted: impl Fn(&Delivery) -> bool,
    ) -> Result<Option<Delivery>, Failure> {
        for _ in 0..PATIENCE.div_duration_f64(POLL) as u32 {
            self.watch(POLL).await?;
            if let Some(found) = self.api.deliveries().await?.into_iter().find(&wanted) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn wait_until_all_delivered(&mut self) -> Result<(), Failure> {
        for _ in 0..PATIENCE.div_duration_f64(POLL) as u32 {
            self.watch(POLL).await?;
            let deliveries = self.api.deliveries().await?;
            if deliveries.iter().all(|delivery| delivery.status == "delivered") {
                break;
            }
        }
        Ok(())
    }

    fn tell_arrival(&mut self, arrival: Arrival) -> Result<(), Failure> {
        let Arrival { temper, event_type, attempt, status, fault, .. } = &arrival;
        let (tone, comment) = match fault {
            Some(fault) => (Tone::Bad, fault.as_str()),
            None if status.is_success() => (Tone::Good, "signature verified"),
            None if *attempt < ATTEMPTS => (Tone::Waiting, "will be tried again in a second"),
            None => (Tone::Waiting, "that was the last attempt of the schedule"),
        };
        let what = format!("attempt {attempt}");
        let status = status.as_u16();
        let line = format!("{event_type:<16} to {:<7} {status}  {comment}", temper.name());
        self.screen.tell(tone, &what, line)?;
        self.seen.arrivals.push(arrival);
        Ok(())
    }

    async fn tell_dead(&mut self, dead: &Delivery) -> Result<(), Failure> {
        let error = self.api.last_error(&dead.id).await?;
        let Delivery { event_type, reason, attempts, .. } = dead;
        self.seen.dead.push(dead.clone());
        let line =
            format!("{event_type:<16} to broken: {reason} after {attempts} attempts; {error}");
        self.screen.tell(Tone::Bad, "dead", line)
    }
}
