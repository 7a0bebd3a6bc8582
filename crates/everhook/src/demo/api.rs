//! The calls of the public API that the demo makes.

use serde_json::{Value, json};

use crate::client::{Call, Client, ServerUrl};
use crate::exit::{Exit, Failure};

/// The server's API, as anybody with a token sees it.
pub(crate) struct Api {
    client: Client,
}

/// What became of a published event.
pub(crate) struct Published {
    /// Whether its source event ID had been seen.
    pub(crate) duplicate: bool,
    /// How many deliveries it has.
    pub(crate) deliveries: u64,
}

/// A delivery as the API shows it.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// Its id.
    pub(crate) id: String,
    /// Its event's id.
    pub(crate) event: String,
    /// Its event's type.
    pub(crate) event_type: String,
    /// Where it stands.
    pub(crate) status: String,
    /// Why it is dead.
    pub(crate) reason: String,
    /// The number of its last attempt.
    pub(crate) attempts: u64,
}

impl Api {
    /// The API of this server, with this token.
    ///
    /// # Errors
    /// The token cannot be sent.
    pub(crate) fn new(server: ServerUrl, token: &str) -> Result<Self, Failure> {
        Ok(Self { client: Client::new(server, token)? })
    }

    /// Makes an endpoint and returns the secret that its requests are signed with.
    ///
    /// # Errors
    /// The server is not reached, or refuses.
    pub(crate) async fn endpoint(&self, url: &str, event_type: &str) -> Result<String, Failure> {
        let body = json!({ "url": url, "event_types": [event_type] });
        let endpoint = self.post("/api/v1/endpoints", &body).await?;
        text(&endpoint, "secret")
    }

    /// Publishes an event.
    ///
    /// # Errors
    /// As [`endpoint`](Self::endpoint).
    pub(crate) async fn publish(&self, body: &Value) -> Result<Published, Failure> {
        let event = self.post("/api/v1/events", body).await?;
        Ok(Published {
            duplicate: event["duplicate"].as_bool().unwrap_or(false),
            deliveries: event["deliveries"].as_u64().unwrap_or(0),
        })
    }

    /// The newest deliveries, all that the demo has.
    ///
    /// # Errors
    /// As [`endpoint`](Self::endpoint).
    pub(crate) async fn deliveries(&self) -> Result<Vec<Delivery>, Failure> {
        let list = self.get("/api/v1/deliveries?limit=250").await?;
        let data = list["data"].as_array().ok_or_else(|| unexpected("data", &list))?;
        data.iter().map(delivery).collect()
    }

    /// What the last attempt of a delivery failed with.
    ///
    /// # Errors
    /// As [`endpoint`](Self::endpoint).
    pub(crate) async fn last_error(&self, delivery: &str) -> Result<String, Failure> {
        let delivery = self.get(format!("/api/v1/deliveries/{delivery}")).await?;
        let last = delivery["attempts"].as_array().and_then(|attempts| attempts.last());
        text(last.map_or(&Value::Null, |attempt| &attempt["error"]), "detail")
    }

    /// Replays a delivery.
    ///
    /// # Errors
    /// As [`endpoint`](Self::endpoint).
    pub(crate) async fn replay(&self, delivery: &str) -> Result<(), Failure> {
        let path = format!("/api/v1/deliveries/{delivery}/replay");
        self.call(&Call::post(path, "")).await.map(drop)
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.call(&Call::post(path, body.to_string())).await
    }

    async fn get(&self, path: impl Into<String>) -> Result<Value, Failure> {
        self.call(&Call::get(path)).await
    }

    async fn call(&self, call: &Call) -> Result<Value, Failure> {
        self.client.send(call).await?.accepted()
    }
}

fn delivery(json: &Value) -> Result<Delivery, Failure> {
    Ok(Delivery {
        id: text(json, "id")?,
        event: text(json, "event_id")?,
        event_type: text(json, "type")?,
        status: text(json, "status")?,
        reason: text(json, "reason").unwrap_or_default(),
        attempts: json["attempt_count"].as_u64().unwrap_or(0),
    })
}

fn text(json: &Value, member: &str) -> Result<String, Failure> {
    json[member].as_str().map(str::to_owned).ok_or_else(|| unexpected(member, json))
}

fn unexpected(member: &str, json: &Value) -> Failure {
    let members: Vec<_> = json.as_object().into_iter().flat_map(|object| object.keys()).collect();
    Failure::new(Exit::Refused, format!("the server's answer has no {member}, only {members:?}"))
}
