//! `everhook send`: publishes one event to a running server.

use std::io::Read as _;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::SendArgs;
use crate::client::{self, Call, Client};
use crate::config;
use crate::entropy;
use crate::environment::Environment;
use crate::exit::Failure;
use crate::output;

const PATH: &str = "/api/v1/events";
/// Random bytes in a key that was not given.
const KEY_BYTES: usize = 16;

/// The body of `POST /api/v1/events`; `data` goes in byte for byte.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'a str,
    data: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_event_id: Option<&'a str>,
}

/// Runs the command.
///
/// # Errors
/// Wrong input, or the server was not reached or refused.
pub(crate) fn run(args: &SendArgs, environment: &Environment) -> Result<(), Failure> {
    config::check_names(&environment.ours).map_err(Failure::usage)?;
    let client = Client::find(&args.server, environment)?;
    let data = data(&args.data)?;
    let body = Body {
        r#type: &args.event_type,
        data: &data,
        source_event_id: args.source_event_id.as_deref(),
    };
    let body = serde_json::to_vec(&body)
        .map_err(|error| Failure::failed(format!("the event cannot be written: {error}")))?;
    let key = match &args.idempotency_key {
        Some(key) => key.clone(),
        None => format!("send-{}", entropy::text::<KEY_BYTES>()?),
    };
    let call = Call::post(PATH, body).once(&key)?;
    let event = client::converse(client.send_until_answered(&call))?.accepted()?;
    output::line(if args.json { event.to_string() } else { in_words(&event) })
}

/// Reads `JSON`, `@FILE` or `-`. The bytes stay as they are.
fn data(argument: &str) -> Result<Box<RawValue>, Failure> {
    let (from, text) = match argument.strip_prefix('@') {
        None if argument == "-" => {
            let mut text = String::new();
            let read = std::io::stdin().lock().read_to_string(&mut text);
            ("standard input", read.map(|_| text))
        }
        None => ("--data", Ok(argument.to_owned())),
        Some(path) => (path, std::fs::read_to_string(path)),
    };
    let text = text.map_err(|error| Failure::usage(format!("{from} cannot be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| {
        let hint = if from == "--data" { "; text needs quotes: --data '\"text\"'" } else { "" };
        Failure::usage(format!("{from} is not JSON: {error}{hint}"))
    })
}

/// The server's answer in one line.
fn in_words(event: &Value) -> String {
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or("?");
    let flag = |name: &str| event.get(name).and_then(Value::as_bool).unwrap_or(false);
    let (id, event_type) = (text("id"), text("type"));
    if flag("duplicate") {
        let differs = if flag("differs") { "; type or data DIFFER from the first" } else { "" };
        return format!("{id} {event_type}: seen before, nothing new was made{differs}");
    }
    match event.get("deliveries").and_then(Value::as_u64).unwrap_or(0) {
        0 => format!("{id} {event_type}: accepted; no endpoint wants it"),
        1 => format!("{id} {event_type}: accepted, 1 delivery"),
        many => format!("{id} {event_type}: accepted, {many} deliveries"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_keeps_its_spelling() {
        let spelled = "{\"b\":1.0, \"a\":\"\\u00e4\"}";
        assert_eq!(data(spelled).expect("JSON").get(), spelled);
        for (argument, expected) in [
            ("hello", "--data is not JSON: expected value at line 1 column 1; text needs quotes"),
            ("{} {}", "--data is not JSON: trailing characters"),
            ("", "--data is not JSON: EOF"),
            ("@/nowhere/at/all", "/nowhere/at/all cannot be read: No such file"),
        ] {
            let failure = data(argument).expect_err(argument);
            assert!(failure.message.starts_with(expected), "{failure}");
        }
    }

    #[test]
    fn answers_in_words() {
        for (event, expected) in [
            (r#"{"deliveries":0}"#, "e t: accepted; no endpoint wants it"),
            (r#"{"deliveries":1,"duplicate":false}"#, "e t: accepted, 1 delivery"),
            (r#"{"deliveries":2}"#, "e t: accepted, 2 deliveries"),
            (r#"{"duplicate":true}"#, "e t: seen before, nothing new was made"),
            (
                r#"{"duplicate":true,"differs":true}"#,
                "e t: seen before, nothing new was made; type or data DIFFER from the first",
            ),
        ] {
            let mut event: Value = serde_json::from_str(event).expect("JSON");
            event["id"] = "e".into();
            event["type"] = "t".into();
            assert_eq!(in_words(&event), expected);
        }
    }
}
