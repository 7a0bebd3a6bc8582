//! The process that receives: it answers 200 at once, and remembers what came and when.
//!
//! Every so many requests one is kept whole; its signature and bytes are checked after the load,
//! not during it. `/_count` tells how many requests came, `/_times/<path>` writes them to a file
//! (`id arrived_us`), `/_report/<path>` does so and answers with what the checks said. What comes
//! to `/hang` is never answered.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use super::now_us;
use super::payload::{self, Payloads};
use crate::args::Args;
use crate::http::{self, Request};

/// One in so many requests is kept whole.
const SAMPLE_EVERY: usize = 50;

/// A request that was kept whole.
#[derive(Debug)]
struct Sample {
    id: String,
    timestamp: String,
    signature: String,
    body: Vec<u8>,
}

#[derive(Debug)]
struct Book {
    payloads: Payloads,
    secret: String,
    arrivals: Vec<(Box<str>, u64)>,
    samples: Vec<Sample>,
}

/// `xtask bench receiver`: prints its port, then serves until it is ended.
///
/// # Errors
/// The command line is wrong, or no port is free.
pub fn command(mut args: Args) -> Result<bool> {
    let payload = args.value("payload", 1024)?;
    args.finish()?;
    let book = Rc::new(RefCell::new(Book {
        payloads: Payloads::new(payload)?,
        secret: String::new(),
        arrivals: Vec::new(),
        samples: Vec::new(),
    }));
    let runtime = http::runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("port {}", listener.local_addr()?.port());
        let answer: http::Answer = Rc::new(move |request, out| {
            answer(&mut book.borrow_mut(), request, out);
        });
        http::serve(listener, answer).await
    })?;
    Ok(true)
}

fn answer(book: &mut Book, request: &Request<'_>, out: &mut Vec<u8>) {
    if let Some(file) = request.path.strip_prefix("/_report") {
        say(out, book.report(file));
    } else if let Some(file) = request.path.strip_prefix("/_times") {
        say(out, book.write(file).map(|()| String::new()));
    } else if request.path == "/hang" {
        // No answer: the connection stays open, as long as the other side wants.
    } else if request.path == "/_count" {
        http::respond(out, "200 OK", book.arrivals.len().to_string().as_bytes());
    } else if request.path == "/_secret" {
        book.secret = String::from_utf8_lossy(request.body).into_owned();
        http::respond(out, "200 OK", b"");
    } else {
        book.note(request);
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
}

fn say(out: &mut Vec<u8>, said: Result<String>) {
    match said {
        Ok(text) => http::respond(out, "200 OK", text.as_bytes()),
        Err(error) => {
            http::respond(out, "500 Internal Server Error", format!("{error:#}").as_bytes());
        }
    }
}

impl Book {
    fn note(&mut self, request: &Request<'_>) {
        let text = |name: &str| request.header(name).unwrap_or_default();
        if self.arrivals.len().is_multiple_of(SAMPLE_EVERY) {
            self.samples.push(Sample {
                id: text("webhook-id").to_owned(),
                timestamp: text("webhook-timestamp").to_owned(),
                signature: text("webhook-signature").to_owned(),
                body: request.body.to_owned(),
            });
        }
        self.arrivals.push((text("webhook-id").into(), now_us()));
    }

    fn write(&self, file: &str) -> Result<()> {
        let mut lines = String::with_capacity(self.arrivals.len() * 64);
        for (id, arrived_us) in &self.arrivals {
            lines.push_str(&format!("{id} {arrived_us}\n"));
        }
        std::fs::write(file, lines).with_context(|| format!("cannot write {file}"))
    }

    fn report(&self, file: &str) -> Result<String> {
        self.write(file)?;
        let key = self.secret.strip_prefix("whsec_").context("the secret is no `whsec_…`")?;
        let key = STANDARD.decode(key).context("the secret is not base64")?;
        let wrong: Vec<String> = self
            .samples
            .iter()
            .filter_map(|sample| {
                let fault = check(sample, &key, &self.payloads).err()?;
                Some(format!("{}: {fault:#}", sample.id))
            })
            .collect();
        let first: Vec<&String> = wrong.iter().take(5).collect();
        let report =
            json!({"sampled": self.samples.len(), "wrong": wrong.len(), "first_wrong": first});
        Ok(report.to_string())
    }
}

/// Checks one request: its signature by code that is not the server's, and its bytes.
fn check(sample: &Sample, key: &[u8], payloads: &Payloads) -> Result<()> {
    let Sample { id, timestamp, signature, body } = sample;
    let mut mac = Hmac::<Sha256>::new_from_slice(key)?;
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    let right = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    if !signature.split(' ').any(|entry| entry == right) {
        bail!("the signature is not that of id, timestamp and body");
    }
    if payload::number_of(body, payloads).is_none() {
        bail!("the data is not, byte for byte, what was published");
    }
    let begin = format!("{{\"id\":\"{id}\",");
    if !body.starts_with(begin.as_bytes()) {
        bail!("the envelope does not begin with the id of the header");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(key: &[u8]) -> Sample {
        let data = Payloads::new(1024).unwrap().data(5);
        let body = format!("{{\"id\":\"evt_1\",\"data\":{data}}}").into_bytes();
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(b"evt_1.1700000000.");
        mac.update(&body);
        let signature = format!("v1,old v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        Sample { id: "evt_1".into(), timestamp: "1700000000".into(), signature, body }
    }

    #[test]
    fn a_good_request_passes_and_each_change_is_found() {
        let payloads = Payloads::new(1024).unwrap();
        check(&sample(b"key"), b"key", &payloads).unwrap();
        assert!(check(&sample(b"key"), b"other", &payloads).is_err());
        let late = Sample { timestamp: "1700000001".into(), ..sample(b"key") };
        assert!(check(&late, b"key", &payloads).is_err());
        let other = Payloads::new(1025).unwrap();
        assert!(check(&sample(b"key"), b"key", &other).is_err());
    }
}
