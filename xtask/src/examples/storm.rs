//! The receivers in `examples/` that remember in Redis what they have done, in a storm: a network
//! that sends every request twice and loses the first answers, a sender that is killed and started
//! again, and everything replayed at the end. Each event must have been worked on once.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::http::Connection;
use crate::install;
use crate::job::{Job, Service};
use crate::postgres::free_port;
use crate::server::{Server, release_program};
use crate::test::{Outcome, Run};
use crate::workspace;

/// How many events are published between two deaths of the sender.
const EVENTS: usize = 60;
/// How often the sender is killed.
const DEATHS: usize = 3;
/// Answers that are lost before one of each event gets through.
const LOST: u32 = 2;
/// The sender's schedule: every loss is followed by another try soon, and there are enough of them.
const SCHEDULE: &str = "0s,100ms,300ms,600ms,1s,2s,3s,5s,8s,12s,20s,30s";
/// How long everything that is waited for may take.
const LIMIT: Duration = Duration::from_secs(60);
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Puts each receiver through the storm; each is one test.
///
/// # Errors
/// Redis could not be had or started.
pub fn part(run: &mut Run) -> Result<Outcome> {
    let redis = run.redis()?;
    let log = &run.log;
    let mut outcome = Outcome::default();
    for (name, prepare, database) in RECEIVERS {
        let url = format!("{redis}/{database}");
        let tried = prepare(log).and_then(|program| {
            crate::http::runtime()?.block_on(survive(name, program, &url, log))
        });
        outcome = outcome.and(match tried {
            Ok(()) => Outcome::passed(1),
            Err(error) => Outcome::default().with_trouble(format!("{name}: {error:#}")),
        });
    }
    Ok(outcome)
}

/// Installs what a receiver needs, and gives its program, which still wants a port.
type Prepare = fn(&Path) -> Result<Program>;
/// Each has a database that none of the tests has, which count theirs up from 1.
const RECEIVERS: [(&str, Prepare, u32); 2] =
    [("express-receiver", express, 9_998), ("fastapi-receiver", fastapi, 9_999)];

struct Program {
    job: Job,
    /// The option that takes the port, where it is not a variable.
    port_option: Option<&'static str>,
    /// What it prints once it listens.
    ready: &'static str,
}

fn express(log: &Path) -> Result<Program> {
    let files = ["package.json", "package-lock.json", "server.mjs", "handle.mjs"];
    let source = workspace::root().join("examples/express-receiver");
    let folder = install::node_packages("express-receiver", &source, &files, log)?;
    let job = Job::new("node").args(["server.mjs"]).dir(&folder);
    Ok(Program { job, port_option: None, ready: "listening" })
}

fn fastapi(log: &Path) -> Result<Program> {
    let source = workspace::root().join("examples/fastapi-receiver");
    let python = install::python("fastapi-receiver", &source.join("requirements.txt"), log)?;
    let job = Job::new(python.join("bin/uvicorn")).args(["app:app"]).dir(&source);
    let job = job.env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(Program { job, port_option: Some("--port"), ready: "Uvicorn running" })
}

async fn survive(name: &str, program: Program, redis: &str, log: &Path) -> Result<()> {
    let data = workspace::empty_scratch(&format!("examples-{name}"))?;
    let sender = || {
        let schedule = [("EVERHOOK_RETRY_SCHEDULE", SCHEDULE)];
        Server::start_with(&release_program(), &data, &schedule, log)
    };
    let mut server = sender()?;
    let port = free_port()?;
    let network = Network::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let endpoint = json!({"url": format!("http://{}/", network.address)});
    let endpoint = server.api().await?.call("POST", "/endpoints", Some(&endpoint), 201).await?;
    let secret = endpoint["secret"].as_str().context("an endpoint without secret")?;
    let _receiver = start(program, port, secret, redis, log)?;

    let mut published = Vec::new();
    for _ in 0..DEATHS {
        for _ in 0..EVENTS {
            published.push(publish(&server, published.len()).await?);
        }
        // In the middle of it: about half of them have been heard of.
        network.wait_for_attempts(published.len() * 2 - EVENTS / 2).await?;
        server.kill()?;
        server = sender()?;
    }
    all_delivered(&server, published.len()).await?;
    // The same once more, for everything: whoever has done it says so.
    let replay = json!({"status": "delivered", "rate_per_second": 1_000});
    let replay = server.api().await?.call("POST", "/replays", Some(&replay), 202).await?;
    ensure!(replay["matched"] == published.len(), "the replay took {}", replay["matched"]);
    network.wait_for_answers(published.len()).await?;
    all_delivered(&server, published.len()).await?;

    let handled = handled(redis).await?;
    ensure!(handled.len() == published.len(), "{} events were worked on", handled.len());
    for id in &published {
        ensure!(handled.get(id) == Some(&1), "{id} was worked on {:?} times", handled.get(id));
    }
    ensure!(network.duplicates() >= published.len(), "the network made no storm");
    Ok(())
}

fn start(program: Program, port: u16, secret: &str, redis: &str, log: &Path) -> Result<Service> {
    let mut job = program.job;
    if let Some(option) = program.port_option {
        job = job.args([option, &port.to_string()]);
    }
    let mut receiver = job
        .env("PORT", port.to_string())
        .env("EVERHOOK_SECRET", secret)
        .env("REDIS_URL", redis)
        .start(&log.with_extension("receiver.log"))?;
    let ready = program.ready;
    receiver.wait_until(LIMIT, |it| it.output().ok()?.contains(ready).then_some(()))?;
    Ok(receiver)
}

/// Publishes an event, again until it is known to be accepted; its id.
async fn publish(server: &Server, number: usize) -> Result<String> {
    let event = json!({
        "type": "storm.event", "data": {"number": number},
        "source_event_id": format!("storm-{number}"),
    });
    let event = server.api().await?.call("POST", "/events", Some(&event), 202).await?;
    Ok(event["id"].as_str().context("an event without id")?.to_owned())
}

/// Waits until every delivery is delivered.
async fn all_delivered(server: &Server, count: usize) -> Result<()> {
    let mut api = server.api().await?;
    let began = Instant::now();
    loop {
        let mut states: HashMap<String, usize> = HashMap::new();
        api.walk("/deliveries?limit=250", |delivery| {
            let status = delivery["status"].as_str().unwrap_or_default();
            *states.entry(status.to_owned()).or_default() += 1;
        })
        .await?;
        if states.len() == 1 && states.get("delivered") == Some(&count) {
            return Ok(());
        }
        ensure!(began.elapsed() < LIMIT, "the deliveries of {count} events are {states:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// How often each event was worked on, by what the receivers count in Redis.
async fn handled(redis: &str) -> Result<HashMap<String, u32>> {
    let (address, database) =
        redis.trim_start_matches("redis://").split_once('/').context("a URL with a database")?;
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("SELECT {database}\r\nHGETALL handled\r\nQUIT\r\n").as_bytes())
        .await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    // `+OK`, the number of lines, and then each text after its length; `+OK` at the end.
    let texts: Vec<&str> = said.lines().filter(|line| !line.starts_with(['+', '*', '$'])).collect();
    texts.chunks_exact(2).map(|pair| Ok((pair[0].to_owned(), pair[1].parse()?))).collect()
}

/// What lies between sender and receiver: each request arrives twice, at the same time, and the
/// first answers about each event are lost after the receiver has given them.
struct Network {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Requests of the sender, by event.
    attempts: HashMap<String, u32>,
    /// Answers with a 2xx that got through.
    answers: usize,
    /// Requests that the receiver got beyond the first of each event.
    duplicates: usize,
}

impl Network {
    /// In a thread of its own, which ends with the process.
    fn start(receiver: SocketAddr) -> Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let inside = Arc::clone(&seen);
        let runtime = crate::http::runtime()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener)?;
                loop {
                    let (stream, _) = listener.accept().await?;
                    let seen = Arc::clone(&inside);
                    tokio::spawn(async move {
                        // Whoever hung up has been killed, or will come again.
                        let _hung_up = carry(stream, receiver, &seen).await;
                    });
                }
                #[expect(unreachable_code, reason = "it gives the block its type")]
                anyhow::Ok(())
            })
        });
        Ok(Self { address, seen })
    }

    fn read<T>(&self, what: impl Fn(&Seen) -> T) -> T {
        what(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn duplicates(&self) -> usize {
        self.read(|seen| seen.duplicates)
    }

    async fn wait_for_attempts(&self, count: usize) -> Result<()> {
        self.wait_until(|seen| seen.attempts.values().sum::<u32>() as usize >= count).await
    }

    /// Waits for so many more successful answers.
    async fn wait_for_answers(&self, count: usize) -> Result<()> {
        let before = self.read(|seen| seen.answers);
        self.wait_until(|seen| seen.answers >= before + count).await
    }

    async fn wait_until(&self, holds: impl Fn(&Seen) -> bool) -> Result<()> {
        let began = Instant::now();
        while !self.read(&holds) {
            ensure!(began.elapsed() < LIMIT, "the sender did not send what it should");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// Carries the requests of one connection.
async fn carry(mut sender: TcpStream, receiver: SocketAddr, seen: &Mutex<Seen>) -> Result<()> {
    let mut input = Vec::new();
    loop {
        let (id, length) = loop {
            if let Some(whole) = whole_request(&input)? {
                break whole;
            }
            ensure!(sender.read_buf(&mut input).await? > 0, "closed");
        };
        let request: Vec<u8> = input.drain(..length).collect();
        let deliver = async || -> Result<u16> {
            Ok(Connection::open(receiver).await?.exchange(&request).await?.status)
        };
        let (one, other) = tokio::join!(deliver(), deliver());
        let (one, _other) = (one?, other?);
        let attempt = {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.duplicates += 1;
            let attempts = seen.attempts.entry(id).or_default();
            *attempts += 1;
            let attempt = *attempts;
            seen.answers += usize::from(attempt > LOST && (200..300).contains(&one));
            attempt
        };
        if attempt <= LOST {
            return Ok(());
        }
        let answer = format!("HTTP/1.1 {one} as it said\r\ncontent-length: 0\r\n\r\n");
        sender.write_all(answer.as_bytes()).await?;
    }
}

/// The event of the first request in the input and the request's length, once all of it is there.
fn whole_request(input: &[u8]) -> Result<Option<(String, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(input)? else {
        ensure!(input.len() < HEAD_BYTES_MAX, "a head without an end");
        return Ok(None);
    };
    let header = |name: &str| {
        let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok()).context("a header")
    };
    let length = head + header("content-length")?.parse::<usize>()?;
    let id = header("webhook-id")?.to_owned();
    Ok((input.len() >= length).then_some((id, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_with_its_body() {
        let request = b"POST / HTTP/1.1\r\nWebhook-Id: evt_1\r\ncontent-length: 2\r\n\r\n{}";
        let whole = Some(("evt_1".to_owned(), request.len()));
        assert_eq!(whole_request(request).unwrap(), whole);
        assert_eq!(whole_request(&request[..request.len() - 1]).unwrap(), None);
        assert_eq!(whole_request(b"POST / HT").unwrap(), None);
        assert!(whole_request(b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}").is_err());
    }
}
