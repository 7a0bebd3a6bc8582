//! Judges Everhook's signatures with the official Rust library.
//!
//! Prints `port N`, then answers: `POST /_secret` adds a secret, `POST /_report` lists what was
//! judged so far, anything else is a webhook.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use standardwebhooks::{Webhook, WebhookError};

/// The form of a signature, of nothing.
const FORGED_SIGNATURE: &str = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

#[derive(Default)]
struct Book {
    secrets: Vec<String>,
    judged: Vec<Value>,
}

fn main() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("port {}", listener.local_addr()?.port());
    let book = Arc::new(Mutex::new(Book::default()));
    for stream in listener.incoming() {
        let (stream, book) = (stream?, Arc::clone(&book));
        std::thread::spawn(move || {
            if let Err(error) = serve(stream, &book) {
                eprintln!("receiver: {error:#}");
            }
        });
    }
    Ok(())
}

/// Answers the requests of one connection until it ends.
fn serve(mut stream: TcpStream, book: &Mutex<Book>) -> Result<()> {
    let mut buffer = Vec::new();
    loop {
        while let Some((path, headers, body, end)) = request(&buffer)? {
            let mut book = book.lock().map_err(|_| anyhow!("another thread died"))?;
            let answer = answer(&mut book, &path, &headers, &buffer[body..end])?;
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len())?;
            buffer.drain(..end);
        }
        let mut chunk = [0; 8192];
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        buffer.extend_from_slice(&chunk[..read]);
    }
}

/// The first request, once it is whole: its path, its headers, where its body begins and ends.
fn request(buffer: &[u8]) -> Result<Option<(String, HeaderMap, usize, usize)>> {
    let mut lines = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut lines);
    let httparse::Status::Complete(body) = request.parse(buffer)? else { return Ok(None) };
    let mut headers = HeaderMap::new();
    for line in request.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes())?;
        headers.append(name, HeaderValue::from_bytes(line.value)?);
    }
    let length = headers.get("content-length").context("no content-length")?.to_str()?;
    let end = body + length.parse::<usize>()?;
    let path = request.path.unwrap_or_default().to_owned();
    Ok((buffer.len() >= end).then_some((path, headers, body, end)))
}

fn answer(book: &mut Book, path: &str, headers: &HeaderMap, body: &[u8]) -> Result<String> {
    match path {
        "/_secret" => book.secrets.push(std::str::from_utf8(body)?.to_owned()),
        "/_report" => return Ok(Value::from(book.judged.clone()).to_string()),
        _ => {
            let judged = judge(&book.secrets, headers, body)?;
            book.judged.push(judged);
        }
    }
    Ok(String::new())
}

fn judge(secrets: &[String], headers: &HeaderMap, body: &[u8]) -> Result<Value> {
    let text = |name: &str| Ok::<_, anyhow::Error>(headers.get(name).context("no id")?.to_str()?);
    let (id, timestamp) = (text("webhook-id")?, text("webhook-timestamp")?);
    let later = timestamp.parse::<i64>()? + 1;
    let changed = |name: &'static str, value: &str| {
        let mut headers = headers.clone();
        headers.insert(name, HeaderValue::from_str(value)?);
        Ok::<_, anyhow::Error>(headers)
    };
    let forgeries = [
        ([body, b" "].concat(), headers.clone()),
        (body.to_vec(), changed("webhook-id", &format!("{id}0"))?),
        (body.to_vec(), changed("webhook-timestamp", &later.to_string())?),
        (body.to_vec(), changed("webhook-signature", FORGED_SIGNATURE)?),
    ];
    let mut verified = Vec::new();
    let mut forgeries_verified = 0;
    for secret in secrets {
        verified.push(verifies(secret, body, headers)?);
        for (body, headers) in &forgeries {
            forgeries_verified += u32::from(verifies(secret, body, headers)?);
        }
    }
    Ok(json!({
        "id": id,
        "body": std::str::from_utf8(body)?,
        "verified": verified,
        "forgeries_verified": forgeries_verified,
    }))
}

fn verifies(secret: &str, body: &[u8], headers: &HeaderMap) -> Result<bool> {
    match Webhook::new(secret)?.verify(body, headers) {
        Ok(()) => Ok(true),
        Err(WebhookError::InvalidSignature) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
