//! `vonage`: <https://developer.vonage.com/en/getting-started/concepts/webhooks>.
//!
//! `Authorization: Bearer` with a JWT (RFC 7519) under HS256, no other algorithm; `payload_hash` in
//! it is the SHA-256 of the body. The query of a GET is not signed, so the same token with another
//! query is flagged. There is no id of an event: a call or message, its status and the time of that
//! identify one. `jti` is new in every attempt.
//!
//! The option `api` says whose webhooks these are: `voice` (the default), `messages`, or `sms`,
//! which tries for 24 hours and more, so that its keys are remembered for 48.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Facts, Found, Genuine, Provider, USUAL, check_usual};
use crate::digest;
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::json::Object;
use crate::inbound::{Context, InboundRequest, Rejection, form, mac, tolerance};
use crate::source::{InvalidSource, SourceOptions, SourceSettings};
use crate::time::Timestamp;

const AUTHORIZATION: &str = "authorization";
const WINDOW_H: u64 = 24;
const WINDOW_H_OF_SMS: u64 = 48;

/// What a call, or a message, goes by.
const IDS: [&str; 4] = ["message_uuid", "messageId", "uuid", "conversation_uuid"];
/// When something happened. The `message-timestamp` of a receipt is that of its attempt.
const TIMES: [&str; 4] = ["timestamp", "scts", "message-timestamp", "start_time"];

/// See the module.
#[derive(Debug)]
pub(super) struct Vonage;

impl Provider for Vonage {
    fn facts(&self) -> &'static Facts {
        &Facts {
            word: "vonage",
            methods: &["POST", "GET"],
            window_h: WINDOW_H,
            options: &["api"],
            ..USUAL
        }
    }

    fn window(&self, options: &SourceOptions) -> Duration {
        Duration::from_secs(3_600 * hours(options, &mut Vec::new()))
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        hours(&settings.options, faults);
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let header = request.required(AUTHORIZATION)?;
        let token = header.split_once(' ').filter(|(word, _)| word.eq_ignore_ascii_case("bearer"));
        let token = token.map(|(_, token)| token.trim());
        let parts: Vec<_> = token.map(|token| token.split('.').collect()).unwrap_or_default();
        let &[head, claims, signature] = &*parts else {
            return Err(Rejection::header(AUTHORIZATION, "is not Bearer with a JWT"));
        };
        let unreadable = || Rejection::header(AUTHORIZATION, "has a JWT that cannot be read");
        let object = |text| -> Option<Value> {
            let value: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
            value.is_object().then_some(value)
        };
        let algorithm = object(head).ok_or_else(unreadable)?;
        if algorithm["alg"] != "HS256" || !algorithm["crit"].is_null() {
            return Err(Rejection::header(AUTHORIZATION, "has a JWT that is not HS256"));
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| unreadable())?;
        let signed = [head.as_bytes(), b".", claims.as_bytes()];
        mac::verify(&[signature], context.text_keys().map(|key| mac::sha256(key, &signed)))?;
        let claims = object(claims).ok_or_else(unreadable)?;
        check_claims(&claims, request, context)?;
        Ok(Genuine {
            signed_timestamp: Some(claims["iat"].to_string()),
            // Without a body nothing of the event is signed.
            signed: request.body.is_empty().then(|| signed.concat()),
        })
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let made = draft.object(context.now, &[("uuid", draft.id), ("status", draft.event_type)]);
        let key = context.signing_key();
        Some(made.signed(draft, AUTHORIZATION, |made| {
            let claims = serde_json::json!({
                "iat": context.now.as_secs(),
                "jti": draft.id,
                "payload_hash": digest::hex(&Sha256::digest(&made.body)),
            });
            let [head, claims] = [r#"{"alg":"HS256","typ":"JWT"}"#.to_owned(), claims.to_string()]
                .map(|part| URL_SAFE_NO_PAD.encode(part));
            let mac = mac::sha256(key, &[head.as_bytes(), b".", claims.as_bytes()]);
            format!("Bearer {head}.{claims}.{}", URL_SAFE_NO_PAD.encode(mac))
        }))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let is_signed = !request.body.is_empty();
        let query = request.query().unwrap_or_default().as_bytes();
        if !is_signed {
            return vec![found(false, |name| form::field(query, name))];
        }
        if form::is_body_of(request) {
            return vec![found(true, |name| form::field(request.body, name))];
        }
        match Object::parse(request.body) {
            Some(body) => vec![found(true, |name| body.scalar(name))],
            None => vec![Found::unreadable("the body is neither a JSON object nor a form")],
        }
    }
}

/// How long a key is remembered, by whose webhooks these are.
fn hours(options: &SourceOptions, faults: &mut Vec<InvalidSource>) -> u64 {
    let words = [("voice", WINDOW_H), ("messages", WINDOW_H), ("sms", WINDOW_H_OF_SMS)];
    options.own_word("api", &words, WINDOW_H, faults)
}

fn check_claims(
    claims: &Value,
    request: &InboundRequest<'_>,
    context: &Context<'_>,
) -> Result<(), Rejection> {
    let time = |name: &str| {
        let seconds = claims[name].as_i64().and_then(|seconds| seconds.checked_mul(1_000));
        seconds.map(Timestamp::from_millis)
    };
    let issued = time("iat")
        .ok_or_else(|| Rejection::header(AUTHORIZATION, "has a JWT that lacks iat, in seconds"))?;
    let hash = claims["payload_hash"].as_str();
    match hash {
        Some(hash) => {
            let digest = Sha256::digest(request.body);
            if mac::from_hex(hash).as_deref() != Some(&digest[..]) {
                let detail = "the body is not the one that the JWT's payload_hash is of";
                return Err(Rejection::Signature(detail.to_owned()));
            }
        }
        None if request.body.is_empty() => {}
        None => {
            let fault = "has a JWT without payload_hash, so that nothing of the body is signed";
            return Err(Rejection::header(AUTHORIZATION, fault));
        }
    }
    if time("exp").is_some_and(|expires| expires <= context.now) {
        return Err(Rejection::header(AUTHORIZATION, "has a JWT that has expired"));
    }
    tolerance::check(issued, context)
}

fn found<'a>(key_is_signed: bool, field: impl Fn(&str) -> Option<Cow<'a, str>>) -> Found<'a> {
    let status = field("status");
    let id = IDS.iter().find_map(|name| field(name));
    let time = TIMES.iter().find_map(|name| field(name));
    let key = id.map(|id| vec![id, status.clone().unwrap_or_default(), time.unwrap_or_default()]);
    Found { key: key.unwrap_or_default(), key_is_signed, event_type: status, ..Found::default() }
}
