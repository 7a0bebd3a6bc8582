//! Calls of the server's API.

use std::net::SocketAddr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::json;

use super::http::Connection;

/// The admin token of servers that we start. It guards nothing but a server on loopback.
pub(crate) const TOKEN: &str = "admin-token-of-the-kill-suites-for-loopback-only";

/// A delivery as the API shows it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Delivery {
    /// Its id.
    pub(crate) id: String,
    /// The event.
    pub(crate) event_id: String,
    /// The endpoint.
    pub(crate) endpoint_id: String,
    /// Where it stands.
    pub(crate) status: String,
    /// Why it is dead or cancelled.
    pub(crate) reason: Option<String>,
    /// The run of the schedule.
    pub(crate) round: u32,
    /// The highest attempt number.
    pub(crate) attempt_count: u32,
    /// Leases that ended without a result.
    pub(crate) interruptions: u32,
    /// When its event was accepted.
    pub(crate) created_at: String,
    /// Oldest first; empty in lists.
    #[serde(default)]
    pub(crate) attempts: Vec<Attempt>,
}

impl Delivery {
    /// Whether it is neither due nor leased.
    pub(crate) fn has_ended(&self) -> bool {
        !["due", "leased"].contains(&self.status.as_str())
    }
}

/// An attempt as the API shows it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attempt {
    /// From 1 through all rounds.
    pub(crate) number: u32,
    /// When it started.
    pub(crate) started_at: String,
    /// What was answered.
    pub(crate) status_code: Option<u16>,
}

/// A receipt as the API shows it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Receipt {
    /// The name of the source.
    pub(crate) source: String,
    /// The provider's id.
    pub(crate) key: String,
    /// The event.
    pub(crate) event_id: String,
}

#[derive(Deserialize)]
struct Page<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

/// A connection to the API of a server that is alive.
#[derive(Debug)]
pub(crate) struct Api(Connection);

impl Api {
    /// Connects.
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self(Connection::open(address).expect("a server that is ready takes connections"))
    }

    fn call(&mut self, call: &str, body: &str) -> (u16, Vec<u8>) {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let answer = self.0.call(call, &headers, body.as_bytes());
        let (status, answer) = answer.unwrap_or_else(|error| panic!("{call}: {error}"));
        (status, answer.body)
    }

    fn read<T: DeserializeOwned>(&mut self, path: &str) -> Option<T> {
        let (status, body) = self.call(&format!("GET /api/v1{path}"), "");
        if status == 404 {
            return None;
        }
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        let read = serde_json::from_slice(&body);
        Some(read.unwrap_or_else(|error| panic!("{path}: {error}")))
    }

    /// Makes an endpoint for these types, or for what comes to these sources; returns its id.
    pub(crate) fn make_endpoint(&mut self, url: &str, types: &[&str], sources: &[&str]) -> String {
        let settings = json!({ "url": url, "event_types": types, "sources": sources });
        self.make("POST /api/v1/endpoints", &settings)
    }

    /// Makes a source.
    pub(crate) fn make_source(&mut self, settings: &Value) {
        self.make("POST /api/v1/sources", settings);
    }

    fn make(&mut self, call: &str, settings: &Value) -> String {
        let (status, body) = self.call(call, &settings.to_string());
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&body));
        let made: Value = serde_json::from_slice(&body).expect("JSON");
        made["id"].as_str().expect("an id").to_owned()
    }

    /// Whether there is such an event.
    pub(crate) fn has_event(&mut self, id: &str) -> bool {
        self.read::<Value>(&format!("/events/{id}")).is_some()
    }

    /// A delivery with its attempts.
    pub(crate) fn delivery(&mut self, id: &str) -> Option<Delivery> {
        self.read(&format!("/deliveries/{id}"))
    }

    /// The deliveries that fit the query, newest first, without their attempts.
    pub(crate) fn deliveries(&mut self, query: &str) -> Vec<Delivery> {
        self.list(&format!("/deliveries?limit=250{query}"))
    }

    /// Every receipt, newest first.
    pub(crate) fn receipts(&mut self) -> Vec<Receipt> {
        self.list("/receipts?limit=250")
    }

    fn list<T: DeserializeOwned>(&mut self, list: &str) -> Vec<T> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let page: Page<T> =
                self.read(&format!("{list}{cursor}")).expect("the list is always there");
            found.extend(page.data);
            match page.next_cursor {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return found,
            }
        }
    }
}
