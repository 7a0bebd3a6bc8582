//! What an `Idempotency-Key` costs: messages posted to one conversation, without and with a key.
//!
//! Five rows: no key; a new key each; keys that are known, so that every answer is a replay; new
//! keys beside many live ones; and new keys beyond what the account may have, each of which is
//! refused. Nothing is delivered: what that costs is what `send` measures. A row is void unless
//! every answer was the right one, and the conversation has come exactly as many versions further
//! as messages were to be made.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::rig::{self, Load, Rig, commit};
use super::summary::per;
use super::{machine, now_us};
use crate::workspace;

/// How long full load warms the server up before anything is counted.
const WARM_UP_SECONDS: u64 = 2;
/// As many keys as the account may have in the last row.
const QUOTA: &str = "1000";
/// What the account may have in all other rows: more than there will be.
const ROOM: &[(&str, &str)] = &[
    ("EVERHOOK_IDEMPOTENCY_ACCOUNT_KEYS_MAX", "100000000"),
    ("EVERHOOK_IDEMPOTENCY_ACCOUNT_BYTES_MAX", "64GiB"),
];
/// How long bringing in the live keys may take.
const SEED_SECONDS: &str = "900";

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long each row lasts.
    pub seconds: u64,
    /// Keep-alive connections that post at once.
    pub connections: usize,
    /// About how many bytes a message has.
    pub payload: usize,
    /// Keys that are live in the fourth row, besides its own.
    pub keys: u64,
}

/// What the messages of a row carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    None,
    New,
    /// These first keys, again and again.
    Known(u64),
    /// New ones, for which there is no room.
    Refused,
}

/// Runs it, prints the table and writes the report. Whether every row holds.
///
/// # Errors
/// Something could not be built, started, asked or written.
pub fn run(options: Options) -> Result<bool> {
    let folder = workspace::scratch("bench")?;
    let log = folder.join("idempotency.log");
    std::fs::write(&log, "")?;
    rig::build(&log)?;
    let machine = machine::describe(&folder)?;
    let mut rows = with_room(options, &folder, &log)?;
    println!("a flood of keys");
    let settings = [("EVERHOOK_IDEMPOTENCY_ACCOUNT_KEYS_MAX", QUOTA)];
    let mut talk = Talk::start(&settings, options, &folder, &log)?;
    talk.post(Keys::New, &["--count", QUOTA, "--seconds", SEED_SECONDS])?;
    rows.push(talk.row("new keys without room", Keys::Refused)?.0);
    talk.rig.stop()?;
    let holds = rows.iter().all(|row| row["void"].as_array().is_some_and(Vec::is_empty));
    let run = json!({
        "unix_s": now_us() / 1_000_000,
        "commit": commit(),
        "machine": machine,
        "options": {
            "seconds": options.seconds, "connections": options.connections,
            "payload_bytes": options.payload, "keys": options.keys,
        },
        "rows": rows,
    });
    let path = folder.join(format!("idempotency-{}.json", run["unix_s"]));
    std::fs::write(&path, format!("{run:#}\n"))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("\n{}\n{}", table(&rows), path.display());
    Ok(holds)
}

/// The rows for which the account has room.
fn with_room(options: Options, folder: &Path, log: &Path) -> Result<Vec<Value>> {
    let mut talk = Talk::start(ROOM, options, folder, log)?;
    let warm_up = WARM_UP_SECONDS.to_string();
    talk.post(Keys::None, &["--seconds", &warm_up])?;
    println!("no key");
    let mut rows = vec![talk.row("no key", Keys::None)?.0];
    talk.rig.stop()?;

    // A conversation and numbers of its own: its keys begin at 0.
    let mut talk = Talk::start(ROOM, options, folder, log)?;
    println!("new keys");
    let (new, load) = talk.row("new keys", Keys::New)?;
    rows.push(new);
    println!("known keys");
    let known = load.summary["next"].as_u64().context("a summary without `next`")?;
    rows.push(talk.row("known keys: replays", Keys::Known(known))?.0);
    println!("bringing in {} keys", options.keys);
    let count = options.keys.to_string();
    talk.post(Keys::New, &["--count", &count, "--seconds", SEED_SECONDS])?;
    println!("new keys, beside them");
    let name = format!("new keys, beside {} live ones", options.keys);
    rows.push(talk.row(&name, Keys::New)?.0);
    talk.rig.stop()?;
    Ok(rows)
}

/// A server with one conversation.
struct Talk<'a> {
    rig: Rig<'a>,
    conversation: String,
    options: Options,
}

impl<'a> Talk<'a> {
    fn start(
        settings: &[(&str, &str)],
        options: Options,
        folder: &'a Path,
        log: &'a Path,
    ) -> Result<Self> {
        let rig = Rig::start_with(&rig::data()?, settings, options.payload, folder, log)?;
        let made = rig.call("POST", "/conversations", Some(&json!({})), 201)?;
        let conversation = made["id"].as_str().context("a conversation without id")?.to_owned();
        Ok(Self { rig, conversation, options })
    }

    fn post(&mut self, keys: Keys, args: &[&str]) -> Result<Load> {
        let (keyed, distinct) = match keys {
            Keys::None => ("0", 0),
            Keys::New | Keys::Refused => ("1", 0),
            Keys::Known(count) => ("1", count),
        };
        let (connections, distinct) = (self.options.connections.to_string(), distinct.to_string());
        let conversation = self.conversation.clone();
        let own = ["--conversation", &conversation, "--keyed", keyed, "--distinct", &distinct];
        let load = ["--connections", &connections];
        self.rig.generate(&[&own[..], &load, args].concat())
    }

    fn version(&self) -> Result<u64> {
        let path = format!("/conversations/{}", self.conversation);
        let shown = self.rig.call("GET", &path, None, 200)?;
        shown["version"].as_u64().context("a conversation without version")
    }

    fn row(&mut self, name: &str, keys: Keys) -> Result<(Value, Load)> {
        let server = self.rig.server.pid();
        let (version, memory) = (self.version()?, self.rig.memory("VmRSS")?);
        let cpu = machine::cpu_us(server)?;
        let seconds = self.options.seconds.to_string();
        let load = self.post(keys, &["--seconds", &seconds])?;
        let cpu = machine::cpu_us(server)? - cpu;
        let ended = now_us();
        let made = self.version()? - version;
        let refused = load.summary["refused"].as_u64().unwrap_or(0);
        let answered = load.accepted.len() as u64 + refused;
        let began = load.summary["began_us"].as_u64().context("a summary without `began_us`")?;
        let ended = load.accepted.iter().map(|(_, _, at)| *at).max().unwrap_or(ended);
        let row = json!({
            "name": name,
            "answered": answered,
            "per_s": per(answered * 1_000_000, ended - began),
            "server_cpu_us": per(cpu, answered),
            "generator_cpu_us": per(load.summary["cpu_us"].as_u64().unwrap_or(0), answered),
            "memory_before_kib": memory,
            "memory_kib": self.rig.memory("VmRSS")?,
            "void": reasons(&load, keys, made),
        });
        Ok((row, load))
    }
}

/// Why a row does not hold. `made` is how many versions further the conversation has come.
fn reasons(load: &Load, keys: Keys, made: u64) -> Vec<String> {
    let number = |name: &str| load.summary[name].as_u64().unwrap_or(0);
    let accepted = load.accepted.len() as u64;
    let distinct: HashSet<&str> = load.accepted.iter().map(|(id, _, _)| id.as_str()).collect();
    let mut reasons = Vec::new();
    let mut demand = |holds: bool, reason: String| {
        if !holds {
            reasons.push(reason);
        }
    };
    let (refused, errors) = (&load.summary["refused_by_status"], &load.summary["first_errors"]);
    demand(number("errors") == 0, format!("requests failed: {errors}"));
    demand(accepted + number("refused") > 0, "nothing was answered".to_owned());
    if keys == Keys::Refused {
        let only_quota = refused == &json!([format!("429: {}", number("refused"))]);
        demand(accepted == 0 && only_quota, format!("{accepted} were taken, refused: {refused}"));
    } else {
        demand(number("refused") == 0, format!("not all was taken: {refused}"));
    }
    let wanted = match keys {
        Keys::None | Keys::New => accepted,
        Keys::Known(_) | Keys::Refused => 0,
    };
    demand(made == wanted, format!("{made} messages were made, {wanted} are right"));
    let messages = match keys {
        Keys::Known(count) => accepted.min(count),
        Keys::None | Keys::New | Keys::Refused => accepted,
    };
    let answered = distinct.len() as u64;
    demand(answered == messages, format!("{answered} messages were answered, not {messages}"));
    reasons
}

fn table(rows: &[Value]) -> String {
    let mut text = format!(
        "{:<34} {:>9} {:>11} {:>7} {:>14} {:>8} {:>7}\n",
        "messages", "per s", "server, µs", "ratio", "generator, µs", "MiB", "more"
    );
    let first = rows.first().and_then(|row| row["server_cpu_us"].as_f64()).unwrap_or_default();
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_default();
        text.push_str(&format!(
            "{:<34} {:>9.0} {:>11.1} {:>7.2} {:>14.1} {:>8.0} {:>7.0}\n",
            row["name"].as_str().unwrap_or_default(),
            number("per_s"),
            number("server_cpu_us"),
            number("server_cpu_us") / first,
            number("generator_cpu_us"),
            number("memory_kib") / 1_024.0,
            (number("memory_kib") - number("memory_before_kib")) / 1_024.0,
        ));
        for reason in row["void"].as_array().map_or(&[][..], Vec::as_slice) {
            text.push_str(&format!("VOID: {}\n", reason.as_str().unwrap_or_default()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many reasons there are against a row with these messages.
    fn check(ids: &[&str], refused: &[&str], keys: Keys, made: u64, expected: usize) {
        let accepted = ids.iter().map(|id| ((*id).to_owned(), 0, 1)).collect();
        let count = if refused.is_empty() { 0 } else { 3 };
        let summary = json!({"refused": count, "refused_by_status": refused, "errors": 0});
        let found = reasons(&Load { accepted, summary }, keys, made);
        assert_eq!(found.len(), expected, "{found:?}");
    }

    #[test]
    fn a_row_holds_only_if_every_answer_was_right() {
        check(&["a", "b"], &[], Keys::None, 2, 0);
        check(&["a", "b"], &[], Keys::New, 2, 0);
        check(&["a", "b"], &[], Keys::New, 3, 1);
        check(&["a", "a"], &[], Keys::New, 2, 1);
        check(&["a", "b", "a"], &[], Keys::Known(2), 0, 0);
        check(&["a", "b", "c"], &[], Keys::Known(2), 0, 1);
        check(&["a", "b", "a"], &[], Keys::Known(2), 1, 1);
        check(&["a"], &["500: 3"], Keys::New, 1, 1);
        check(&[], &["429: 3"], Keys::Refused, 0, 0);
        check(&[], &["429: 2", "500: 1"], Keys::Refused, 0, 1);
        check(&[], &["429: 3"], Keys::Refused, 1, 1);
        check(&[], &[], Keys::New, 0, 1);
    }

    #[test]
    fn cpu_is_compared_with_that_of_the_first_row() {
        let row = |cpu: f64, void: &[&str]| {
            json!({"name": "x", "server_cpu_us": cpu, "memory_kib": 2_048,
                   "memory_before_kib": 1_024, "void": void})
        };
        let table = table(&[row(40.0, &[]), row(50.0, &["why"])]);
        let cells: Vec<&str> = table.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!((cells[3], cells[6]), ("1.25", "1"), "{table}");
        assert!(table.ends_with("VOID: why\n"), "{table}");
    }
}
