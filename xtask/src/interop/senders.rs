//! Requests that the official packages of Stripe, Shopify, GitHub and Twilio sign, received by the
//! real program.
//!
//! Each body comes four times: altered and with a foreign signature, which must be refused, then
//! genuine and once more, which must be accepted and known as a duplicate.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::node;
use crate::server::{Api, Server};
use crate::test::Outcome;

/// Kind, secret, and the URL that is signed where one is.
const SOURCES: [(&str, &str, Option<&str>); 4] = [
    ("stripe", "whsec_interop_0123456789abcdef", None),
    ("shopify", "hush-interop", None),
    ("github", "It's a Secret to Everybody", None),
    ("twilio", "12345678901234567890123456789012", Some("https://calls.example.test/hook?a=1&b=2")),
];
/// Bodies of each provider.
const BODIES: usize = 2;
/// What happens to each, the status, and the word in the answer; Twilio's answer has no word.
const CASES: [(&str, u64, &str); 4] = [
    ("altered", 401, ""),
    ("foreign", 401, ""),
    ("genuine", 200, "accepted"),
    ("repeated", 200, "duplicate"),
];

/// Sends all of them; each provider is one test.
///
/// # Errors
/// The packages could not be had, or the sources not be made.
pub(super) async fn judge_all(server: &Server, api: &mut Api, log: &Path) -> Result<Outcome> {
    let mut sources = Map::new();
    for (kind, secret, public_url) in SOURCES {
        let mut source = json!({"name": format!("interop-{kind}"), "kind": kind,
            "secrets": [secret]});
        if let Some(url) = public_url {
            source["public_url"] = url.into();
        }
        let made = api.call("POST", "/sources", Some(&source), 201).await?;
        let id = made["id"].as_str().context("a source without id")?;
        let url = format!("http://{}/in/{id}", server.address());
        let public = json!({"id": id, "url": url, "secret": secret, "public_url": public_url});
        sources.insert(kind.to_owned(), public);
    }
    let output = node("senders", "sender.mjs", log)?
        .env("SOURCES", Value::from(sources.clone()).to_string())
        .demand(log)?;
    let sent: Vec<Value> =
        output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut outcome = Outcome::default();
    for (kind, _, _) in SOURCES {
        let id = sources[kind]["id"].as_str().unwrap_or_default();
        let mut receipts = Vec::new();
        api.walk(&format!("/receipts?source={id}"), |receipt| receipts.push(receipt.clone()))
            .await?;
        let judged = judge(kind, &sent).and_then(|()| judge_receipts(&receipts));
        outcome = outcome.and(match judged {
            Ok(()) => Outcome::passed(1),
            Err(fault) => Outcome::default().with_trouble(format!("{kind}: {fault}")),
        });
    }
    Ok(outcome)
}

/// Whether every request of a kind was answered as it should be.
fn judge(kind: &str, sent: &[Value]) -> Result<(), String> {
    let of_kind: Vec<&Value> = sent.iter().filter(|line| line["kind"] == kind).collect();
    if of_kind.len() != BODIES * CASES.len() {
        return Err(format!("{} requests were sent", of_kind.len()));
    }
    for (line, (case, status, word)) in of_kind.into_iter().zip(CASES.iter().cycle()) {
        let answer = line["answer"].as_str().unwrap_or_default();
        let word = if kind == "twilio" { "" } else { word };
        if line["case"] != *case || line["status"] != *status || !answer.contains(word) {
            return Err(format!("expected {case} to be answered {status} {word}: {line}"));
        }
    }
    Ok(())
}

/// Whether each body is there once, accepted, with one duplicate.
fn judge_receipts(receipts: &[Value]) -> Result<(), String> {
    let whole = |receipt: &Value| receipt["status"] == "accepted" && receipt["duplicates"] == 1;
    if receipts.len() == BODIES && receipts.iter().all(whole) {
        return Ok(());
    }
    Err(format!("the receipts are {}", Value::from(receipts.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<Value> {
        let answered = |(case, status, word): &(&str, u64, &str)| {
            let kind = "stripe";
            json!({"kind": kind, "case": case, "status": status, "answer": word})
        };
        CASES.iter().chain(&CASES).map(answered).collect()
    }

    #[test]
    fn each_fault_of_an_answer_is_found() {
        judge("stripe", &lines()).unwrap();
        assert!(judge("stripe", &lines()[..7]).is_err());
        for (index, member, value) in [
            (0, "status", json!(200)),
            (1, "status", json!(500)),
            (2, "answer", json!("duplicate")),
            (3, "answer", json!("accepted")),
            (3, "case", json!("genuine")),
        ] {
            let mut bad = lines();
            bad[index][member] = value;
            assert!(judge("stripe", &bad).is_err(), "{index} {member}");
        }
    }

    #[test]
    fn each_fault_of_a_receipt_is_found() {
        let good = json!({"status": "accepted", "duplicates": 1});
        judge_receipts(&[good.clone(), good.clone()]).unwrap();
        assert!(judge_receipts(std::slice::from_ref(&good)).is_err());
        for (member, value) in [("status", json!("conflict")), ("duplicates", json!(0))] {
            let mut bad = good.clone();
            bad[member] = value;
            assert!(judge_receipts(&[good.clone(), bad]).is_err(), "{member}");
        }
    }
}
