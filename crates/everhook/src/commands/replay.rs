//! `everhook replay`: has a running server send again what it has, and watches it do so.
//!
//! What many deliveries are replayed by is counted first and begun only after a yes. It is the
//! server's work from then on: it goes on when this command ends, and can be watched or cancelled
//! by its id.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use everhook_domain::id::{DeliveryId, EventId, ReplayId};
use serde_json::{Map, Value, json};

use crate::cli::ReplayArgs;
use crate::client::{self, Call, Client};
use crate::config;
use crate::entropy;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::progress::Progress;
use crate::stop::StopSignals;

const PATH: &str = "/api/v1/replays";
/// The member that limits the pace and filters nothing.
const RATE: &str = "rate_per_second";
/// Between two looks at how far it has come.
const PACE: Duration = Duration::from_millis(500);
/// What the bar says while it moves.
const SENDING: &str = "sending";
/// Random bytes in the key under which something is begun once.
const KEY_BYTES: usize = 16;

/// What is to be replayed.
enum What {
    Delivery(DeliveryId),
    Event(EventId),
    /// One that was begun before.
    Bulk(ReplayId),
    Filter(Map<String, Value>),
}

/// Runs the command.
///
/// # Errors
/// Wrong input, nobody said yes, or the server was not reached or refused.
pub(crate) fn run(args: &ReplayArgs, environment: &Environment) -> Result<(), Failure> {
    config::check_names(&environment.ours).map_err(Failure::usage)?;
    let client = Client::find(&args.server, environment)?;
    let what = what(args)?;
    client::converse(replay(args, &client, what))
}

fn what(args: &ReplayArgs) -> Result<What, Failure> {
    let Some(id) = &args.id else {
        let filter = filter(args);
        // Everything there is has to be asked for.
        return match filter.keys().any(|name| name != RATE) {
            true => Ok(What::Filter(filter)),
            false => Err(Failure::usage(
                "say what is to be sent again: an id (dlv_…, evt_…), or a filter such as --status \
                 dead",
            )),
        };
    };
    let what = if let Ok(delivery) = id.parse() {
        What::Delivery(delivery)
    } else if let Ok(event) = id.parse() {
        What::Event(event)
    } else if let Ok(bulk) = id.parse() {
        What::Bulk(bulk)
    } else {
        return Err(Failure::usage(format!(
            "`{id}` is no id of a delivery (dlv_…), an event (evt_…) or a bulk replay (rpl_…)"
        )));
    };
    match what {
        What::Delivery(_) | What::Bulk(_) if args.endpoint.is_some() => {
            Err(Failure::usage("--endpoint goes with an event or a filter"))
        }
        What::Delivery(_) | What::Event(_) if args.cancel => {
            Err(Failure::usage("--cancel goes with the id of a bulk replay (rpl_…)"))
        }
        what => Ok(what),
    }
}

/// The filter as the API takes it; the server says what is wrong with its values.
fn filter(args: &ReplayArgs) -> Map<String, Value> {
    let texts = [
        ("status", &args.status),
        ("endpoint_id", &args.endpoint),
        ("type", &args.event_type),
        ("from", &args.from),
        ("to", &args.to),
    ];
    let texts = texts.into_iter().filter_map(|(name, value)| Some((name, json!(value.as_ref()?))));
    let rate = args.rate.map(|rate| (RATE, json!(rate)));
    texts.chain(rate).map(|(name, value)| (name.to_owned(), value)).collect()
}

async fn replay(args: &ReplayArgs, client: &Client, what: What) -> Result<(), Failure> {
    match what {
        What::Delivery(id) => {
            let path = format!("/api/v1/deliveries/{id}/replay");
            let delivery = once(client, path, &Value::Null).await?;
            say(args, &delivery, || delivery_in_words(&delivery))
        }
        What::Event(id) => {
            let endpoint = args.endpoint.as_ref();
            let body = endpoint.map_or(Value::Null, |endpoint| json!({ "endpoint_id": endpoint }));
            let again = once(client, format!("/api/v1/events/{id}/replay"), &body).await?;
            let deliveries = again["deliveries"].as_array().map_or(0, Vec::len) as u64;
            say(args, &again, || format!("{id}: {} sent again", deliveries_of(deliveries)))
        }
        What::Bulk(id) if args.cancel => {
            client.send(&Call::delete(format!("{PATH}/{id}"))).await?.bytes()?;
            let record = look(client, &id.to_string()).await?;
            say(args, &record, || bulk_in_words(&record))
        }
        What::Bulk(id) => watch(args, client, &id.to_string()).await,
        What::Filter(filter) => bulk(args, client, filter).await,
    }
}

/// Counts, asks, begins, and watches.
async fn bulk(
    args: &ReplayArgs,
    client: &Client,
    mut filter: Map<String, Value>,
) -> Result<(), Failure> {
    filter.insert("dry_run".to_owned(), true.into());
    let counted = once(client, PATH.to_owned(), &Value::Object(filter.clone())).await?;
    let matched = counted["matched"].as_u64().unwrap_or(0);
    if args.dry_run || matched == 0 {
        return say(args, &counted, || match matched {
            1 => "1 delivery matches".to_owned(),
            _ => format!("{} match", deliveries_of(matched)),
        });
    }
    if !args.yes {
        ask(matched)?;
    }
    filter.remove("dry_run");
    let begun = once(client, PATH.to_owned(), &Value::Object(filter)).await?;
    let id = begun["id"].as_str().unwrap_or_default();
    if args.no_wait {
        let matched = begun["matched"].as_u64().unwrap_or(0);
        return say(args, &begun, || format!("{id}: {} being sent", deliveries_of(matched)));
    }
    watch(args, client, id).await
}

/// Asks the person at the terminal.
fn ask(matched: u64) -> Result<(), Failure> {
    let matching = deliveries_of(matched);
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage(format!(
            "{matching} would be sent again; nothing was sent: say so with --yes"
        )));
    }
    let failed = |error| Failure::failed(format!("the terminal cannot be used: {error}"));
    let mut terminal = std::io::stderr();
    write!(terminal, "Send {matching} again? [y/N] ").map_err(failed)?;
    terminal.flush().map_err(failed)?;
    let mut said = String::new();
    std::io::stdin().read_line(&mut said).map_err(failed)?;
    match said.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::usage("nothing was sent")),
    }
}

/// Shows how far a bulk replay has come until it ends. A server that is away is waited for.
async fn watch(args: &ReplayArgs, client: &Client, id: &str) -> Result<(), Failure> {
    let mut stop = StopSignals::listen()?;
    let mut record = look(client, id).await?;
    let bar = Progress::start(SENDING, record["matched"].as_u64(), !args.json);
    while record["status"] == "running" && !args.no_wait {
        bar.at(done(&record));
        tokio::select! {
            _ = stop.next() => {
                bar.end();
                return Err(Failure::failed(format!(
                    "{id} goes on at the server; watch it with `everhook replay {id}`, end it with \
                     `everhook replay {id} --cancel`"
                )));
            }
            () = tokio::time::sleep(PACE) => {}
        }
        match look(client, id).await {
            Ok(seen) => {
                bar.say(SENDING);
                record = seen;
            }
            Err(failure) if failure.exit == Exit::Unreachable => {
                bar.say("the server is away, waiting for it;");
            }
            Err(failure) => return Err(failure),
        }
    }
    bar.end();
    say(args, &record, || bulk_in_words(&record))
}

async fn look(client: &Client, id: &str) -> Result<Value, Failure> {
    client.send(&Call::get(format!("{PATH}/{id}"))).await?.accepted()
}

/// Has something done once, however often it must be sent.
async fn once(client: &Client, path: String, body: &Value) -> Result<Value, Failure> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let key = format!("replay-{}", entropy::text::<KEY_BYTES>()?);
    client.send_until_answered(&Call::post(path, body).once(&key)?).await?.accepted()
}

fn say(
    args: &ReplayArgs,
    answer: &Value,
    in_words: impl FnOnce() -> String,
) -> Result<(), Failure> {
    output::line(if args.json { answer.to_string() } else { in_words() })
}

/// How many of those that matched have been seen to.
fn done(record: &Value) -> u64 {
    ["sent", "acknowledged", "skipped"].iter().filter_map(|name| record[name].as_u64()).sum()
}

fn deliveries_of(count: u64) -> String {
    match count {
        1 => "1 delivery".to_owned(),
        _ => format!("{count} deliveries"),
    }
}

fn delivery_in_words(delivery: &Value) -> String {
    let text = |name: &str| delivery[name].as_str().unwrap_or("?");
    let waiting = delivery["waiting_for"].as_str();
    let waiting = waiting.map_or_else(String::new, |what| format!(", waiting for: {what}"));
    format!("{} {}: {}{waiting}", text("id"), text("type"), text("status"))
}

fn bulk_in_words(record: &Value) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or("?");
    let mut words = format!("{}: {}", text("id"), text("status"));
    let number = |name: &str| record[name].as_u64();
    if let Some(sent) = number("sent") {
        words.push_str(&format!(", {} sent again", deliveries_of(sent)));
    }
    if let Some(acknowledged) = number("acknowledged") {
        words.push_str(&format!(", {} acknowledged", deliveries_of(acknowledged)));
    }
    if let Some(skipped) = number("skipped").filter(|skipped| *skipped > 0) {
        let reasons = record["skipped_by_reason"].as_object();
        let reasons = reasons.into_iter().flatten().map(|(why, count)| format!("{why}: {count}"));
        let reasons: Vec<String> = reasons.collect();
        words.push_str(&format!(", {skipped} skipped ({})", reasons.join(", ")));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_it_in_words() {
        let record = json!({
            "id": "rpl_1", "status": "done", "matched": 4, "sent": 1, "skipped": 3,
            "skipped_by_reason": { "endpoint_disabled": 2, "erased": 1 },
        });
        assert_eq!(
            bulk_in_words(&record),
            "rpl_1: done, 1 delivery sent again, 3 skipped (endpoint_disabled: 2, erased: 1)"
        );
        assert_eq!(done(&record), 4);
        let record = json!({ "id": "rpl_2", "status": "cancelled", "sent": 0, "skipped": 0 });
        assert_eq!(bulk_in_words(&record), "rpl_2: cancelled, 0 deliveries sent again");
        let delivery = json!({
            "id": "dlv_1", "type": "a.b", "status": "due", "waiting_for": "paused",
        });
        assert_eq!(delivery_in_words(&delivery), "dlv_1 a.b: due, waiting for: paused");
    }
}
