//! From a delivery to a signed request.
//!
//! What depends on the endpoint alone is made once for each of its versions and kept by its lane;
//! an attempt adds the id, the attempt's number, the timestamp and the signature. The body goes out
//! as it is stored: nothing here parses or writes it.
//!
//! Three layers of headers, of which a later one wins where both have a name: what the event comes
//! with (of one of ours, what kind of body it is and who sends it; of a received one, what its
//! sender said), what the endpoint's owner has set, and what is signed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::endpoint::{Endpoint, EndpointSettings};
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::fault::{self, Plant};
use everhook_domain::header::HeaderPrefix;
use everhook_domain::id::EndpointId;
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::signature;
use everhook_domain::time::Timestamp;
use everhook_store::{Directory, LeasedDelivery};
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::lock::lock;
use crate::sender::OutgoingRequest;
use crate::settings::EngineSettings;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// The endpoints that requests were made for, each prepared once a version.
pub(crate) struct Preparations {
    settings: EngineSettings,
    made: Mutex<HashMap<EndpointId, Arc<Prepared>>>,
}

impl Preparations {
    /// None yet.
    pub(crate) fn new(settings: EngineSettings) -> Self {
        Self { settings, made: Mutex::default() }
    }

    /// The endpoint, prepared.
    pub(crate) fn of(&self, endpoint: &Arc<Endpoint>) -> Arc<Prepared> {
        let mut made = lock(&self.made);
        match made.get(&endpoint.id) {
            Some(prepared) if prepared.is_of(endpoint) => Arc::clone(prepared),
            Some(_) | None => {
                let prepared = Arc::new(Prepared::new(endpoint, &self.settings));
                made.insert(endpoint.id, Arc::clone(&prepared));
                prepared
            }
        }
    }

    /// Forgets the endpoints that take no requests any more.
    pub(crate) fn retain_live(&self, directory: &Directory) {
        let live =
            |id: &EndpointId| directory.endpoint(*id).is_some_and(|ep| ep.state.gone().is_none());
        lock(&self.made).retain(|id, _| live(id));
    }
}

/// One version of an endpoint, ready to make requests.
pub(crate) struct Prepared {
    endpoint: Arc<Endpoint>,
    url: Arc<EndpointUrl>,
    shown: String,
    /// What is set for the endpoint.
    own: HeaderMap,
    /// The same, after what every event of ours comes with.
    headers: HeaderMap,
    prefix: HeaderPrefix,
    timeout: Duration,
}

impl Prepared {
    /// Prepares this version of the endpoint.
    fn new(endpoint: &Arc<Endpoint>, settings: &EngineSettings) -> Self {
        let own = &endpoint.settings;
        // Room for ours and those that each request adds.
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(USER_AGENT, settings.user_agent.clone());
        let set = headers_of(own);
        put_over(&mut headers, &set);
        Self {
            url: Arc::new(own.url.clone()),
            shown: own.url.to_string(),
            own: set,
            headers,
            prefix: settings.header_prefix.clone(),
            timeout: settings.timeout,
            endpoint: Arc::clone(endpoint),
        }
    }

    fn is_of(&self, endpoint: &Endpoint) -> bool {
        self.endpoint.id == endpoint.id && self.endpoint.version == endpoint.version
    }

    /// The URL without credentials.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The request for one attempt, signed for `wall`.
    pub(crate) fn request(&self, delivery: &LeasedDelivery, wall: Timestamp) -> OutgoingRequest {
        let body = body_of(delivery);
        let id = delivery.id.event().to_string();
        let seconds = wall.as_secs();
        let signature = signature::sign(self.endpoint.secrets.live(wall), &id, seconds, &body);
        let mut headers = match &delivery.headers {
            None => self.headers.clone(),
            Some(forwarded) => self.forwarding(forwarded),
        };
        let id = value(&id);
        headers.insert(self.prefix.webhook_id(), id.clone());
        headers.insert(self.prefix.attempt(), HeaderValue::from(delivery.number));
        headers.insert(WEBHOOK_ID, id);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(WEBHOOK_SIGNATURE, value(&signature));
        OutgoingRequest {
            url: Arc::clone(&self.url),
            headers,
            body,
            ca_certificates: self.endpoint.settings.ca_certificates.clone(),
            timeout: self.timeout,
        }
    }

    /// What a received event came with, every value of it, below what is set for the endpoint.
    fn forwarding(&self, forwarded: &ForwardedHeaders) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(forwarded.iter().count() + 16);
        for (name, value) in forwarded.iter() {
            headers.append(name, value.clone());
        }
        put_over(&mut headers, &self.own);
        headers
    }
}

/// The headers that are set for an endpoint, credentials of its URL among them.
fn headers_of(own: &EndpointSettings) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let basic = own.url.basic_auth().and_then(|basic| HeaderValue::from_str(basic).ok());
    if let Some(mut basic) = basic {
        basic.set_sensitive(true);
        headers.insert(AUTHORIZATION, basic);
    }
    for (name, value) in own.headers.iter() {
        headers.insert(name, value.clone());
    }
    headers
}

/// Each of `set`, which has one value a name, in place of all values that the name had.
fn put_over(headers: &mut HeaderMap, set: &HeaderMap) {
    for (name, value) in set {
        headers.insert(name, value.clone());
    }
}

/// A value of ours: ids and signatures are ASCII, so it is always legal.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn body_of(delivery: &LeasedDelivery) -> Bytes {
    if delivery.number > 1 && fault::planted(Plant::BodyReserialised) {
        let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&delivery.body);
        if let Ok(written) = parsed.and_then(|value| serde_json::to_vec(&value)) {
            return Bytes::from(written);
        }
    }
    delivery.body.clone()
}

#[cfg(test)]
mod tests;
