//! `everhook listen`: brings what a source receives to a program on this machine, while developing.
//!
//! It reads the newest receipts once a second and goes back to the last one that it knows. Ids rise
//! in the order of commits, so nothing ever appears below that one. A server that is away for a
//! while is waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use everhook_domain::time::{Clock, SystemClock};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::json;

use crate::cli::ListenArgs;
use crate::client::{self, Call, Client, ServerUrl};
use crate::config;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::stop::StopSignals;

/// Between two looks at what has come in.
const PACE: Duration = Duration::from_secs(1);
/// The value in place of what may be a credential.
const MASKED: &str = "***";

/// A receipt, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Receipt {
    id: String,
    source_id: String,
    key: String,
    r#type: String,
    event_id: String,
    first_seen_at: String,
    status: String,
}

/// A source, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Source {
    id: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Page<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Runs the command until Ctrl-C.
///
/// # Errors
/// Wrong input, or the server refused, or was never reached.
pub(crate) fn run(args: &ListenArgs, environment: &Environment) -> Result<(), Failure> {
    config::check_names(&environment.ours).map_err(Failure::usage)?;
    let client = Client::find(&args.server, environment)?;
    let to = args.to.parse().map_err(|error| Failure::usage(format!("--to: {error}")))?;
    client::converse(async {
        let mut stop = StopSignals::listen()?;
        let clock = SystemClock::start();
        let listener = Listener { args, client, to, clock };
        tokio::select! {
            _ = stop.next() => Ok(()),
            listened = listener.listen() => listened,
        }
    })
}

struct Listener<'a> {
    args: &'a ListenArgs,
    client: Client,
    to: ServerUrl,
    clock: SystemClock,
}

impl Listener<'_> {
    async fn listen(&self) -> Result<(), Failure> {
        // By its id from now on: the name may change meanwhile.
        let source = self.source().await?;
        let newest: Page<Receipt> = self.read("/api/v1/receipts?limit=1").await?;
        let mut last = newest.data.into_iter().next().map_or(String::new(), |first| first.id);
        if !self.args.json {
            let (name, to) = (&source.name, &self.to);
            output::line(format!("{name} -> {to}: waiting; Ctrl-C ends it"))?;
        }
        let mut is_away = false;
        loop {
            tokio::time::sleep(PACE).await;
            match self.since(&last).await {
                Ok(receipts) => {
                    is_away = false;
                    for receipt in receipts {
                        if receipt.source_id == source.id {
                            self.take(&receipt).await?;
                        }
                        last = receipt.id;
                    }
                }
                Err(failure) if failure.exit == Exit::Unreachable => {
                    if !is_away && !self.args.json {
                        output::line(format!("{failure}; waiting for it"))?;
                    }
                    is_away = true;
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The source that was asked for.
    async fn source(&self) -> Result<Source, Failure> {
        let wanted = &self.args.source;
        let mut query = "limit=250".to_owned();
        loop {
            let Page { data, next_cursor } = self.read(&format!("/api/v1/sources?{query}")).await?;
            let is_it = |source: &Source| source.name == *wanted || source.id == *wanted;
            match (data.into_iter().find(is_it), next_cursor) {
                (Some(source), _) => return Ok(source),
                (None, Some(next)) => query = format!("limit=250&cursor={next}"),
                (None, None) => {
                    return Err(Failure::new(
                        Exit::Refused,
                        format!("there is no source with the name or id `{wanted}`"),
                    ));
                }
            }
        }
    }

    async fn read<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let answer = self.client.send(&Call::get(path)).await?.accepted()?;
        serde_json::from_value(answer).map_err(|error| {
            Failure::new(Exit::Refused, format!("the server's answer has another form: {error}"))
        })
    }

    /// The receipts after this one, oldest first.
    async fn since(&self, last: &str) -> Result<Vec<Receipt>, Failure> {
        let mut found = Vec::new();
        let mut query = "limit=50".to_owned();
        loop {
            let path = format!("/api/v1/receipts?{query}");
            let Page { data, next_cursor }: Page<Receipt> = self.read(&path).await?;
            let all = data.len();
            let new = data.into_iter().take_while(|receipt| receipt.id.as_str() > last);
            let known = found.len();
            found.extend(new);
            match next_cursor {
                Some(next) if found.len() - known == all => {
                    query = format!("limit=50&cursor={next}");
                }
                Some(_) | None => break,
            }
        }
        found.reverse();
        Ok(found)
    }

    /// Brings the event of a receipt to the program, and says what came of it.
    async fn take(&self, receipt: &Receipt) -> Result<(), Failure> {
        if receipt.status != "accepted" {
            return self.say(receipt, &format!("not sent: {}", receipt.status), None);
        }
        let path = format!("/api/v1/events/{}", receipt.event_id);
        let event: Event = self.read(&path).await?;
        let body = self.client.send(&Call::get(format!("{path}/body"))).await?.bytes()?;
        let began = self.clock.monotonic();
        let brought = client::bring(&self.to, headers(&event, &receipt.event_id), body).await;
        let took = self.clock.monotonic().saturating_sub(began);
        match brought {
            Ok(status) => self.say(receipt, status.as_str(), Some(took)),
            Err(error) => self.say(receipt, &error.to_string(), Some(took)),
        }
    }

    fn say(&self, receipt: &Receipt, what: &str, took: Option<Duration>) -> Result<(), Failure> {
        let Receipt { first_seen_at, r#type, key, event_id, .. } = receipt;
        let ms = took.map(|took| took.as_millis());
        if self.args.json {
            return output::line(json!({
                "at": first_seen_at, "type": r#type, "key": key, "event_id": event_id,
                "answer": what, "ms": ms,
            }));
        }
        let ms = ms.map_or_else(String::new, |ms| format!(" in {ms} ms"));
        output::line(format!("{first_seen_at} {type} {key}: {what}{ms}"))
    }
}

/// What came with the event, as far as it is told, and our id.
fn headers(event: &Event, id: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let told = event.headers.iter().filter(|(_, value)| !value.contains(MASKED));
    let ours = [("webhook-id", id), ("x-message-webhook-id", id)];
    let told = told.map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in told.chain(ours) {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value))
        {
            headers.insert(name, value);
        }
    }
    headers
}
