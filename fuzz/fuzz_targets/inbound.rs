//! A request to a source of any kind: `judge` never panics, says the same twice, and takes nothing
//! that was not signed.
//!
//! An input is text: `kind method target`, settings of the source as JSON (with `now`, in seconds),
//! headers, an empty line and the body. With the word `signed` at the end of the first line the
//! request gets a signature that fits, so that what comes after the check is reached.

#![no_main]

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use everhook_domain::header::HeaderPrefix;
use everhook_domain::inbound::{
    Context, ForwardedHeaders, InboundRequest, Judgement, SourceKind, judge,
};
use everhook_domain::source::{SourceInput, SourceSettings};
use everhook_domain::time::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Map, Value, json};
use sha2::Sha256;

/// A secret for every kind is among these; the empty one stands for none.
const SECRETS: [&str; 5] = [
    "dGhpcnR5LXR3byBieXRlcyBub2JvZHkgc2lnbnMgaW4=",
    "user:password of nobody",
    "7468652068657861646563696d616c206b6579206f66206e6f626f6479212121",
    EC_KEY,
    "",
];
/// A public key of P-256, from the vectors.
const EC_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7\
                      dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
const NOW: &str = "1700000000";
const ORIGIN: &str = "https://a.test";

/// A request as the input writes it.
struct Sent<'a> {
    kind: SourceKind,
    method: Method,
    target: &'a str,
    signed: bool,
    settings: Map<String, Value>,
    headers: HeaderMap,
    body: &'a [u8],
}

impl<'a> Sent<'a> {
    fn read(input: &'a [u8]) -> Option<Self> {
        let end = input.windows(2).position(|pair| pair == b"\n\n")?;
        let mut lines = input[..end].split(|byte| *byte == b'\n');
        let mut words = std::str::from_utf8(lines.next()?).ok()?.split(' ');
        let (kind, method, target) = (words.next()?, words.next()?, words.next()?);
        let mut sent = Self {
            kind: SourceKind::from_str(kind).ok()?,
            method: Method::from_str(method).ok()?,
            target,
            signed: words.next() == Some("signed"),
            settings: serde_json::from_slice(lines.next()?).ok()?,
            headers: HeaderMap::new(),
            body: &input[end + 2..],
        };
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = HeaderName::from_bytes(&line[..colon]).ok()?;
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
            sent.headers.append(name, value);
        }
        Some(sent)
    }

    /// The source, with this secret if the input has none of its own.
    fn source(&self, secret: &str) -> Option<SourceSettings> {
        let options = match self.kind.as_str() {
            "aws_sns" => json!({ "topic_arns": ["arn:aws:sns:eu-west-1:123456789012:mail"] }),
            "paypal" => json!({ "webhook_id": "WH-1" }),
            _ => json!({}),
        };
        let secrets: Vec<_> = [secret].into_iter().filter(|text| !text.is_empty()).collect();
        let mut input = json!({ "public_url": ORIGIN, "secrets": secrets, "options": options });
        for (name, value) in self.settings.iter().filter(|(name, _)| *name != "now") {
            input[name] = value.clone();
        }
        input["name"] = "shop".into();
        input["kind"] = self.kind.as_str().into();
        let input: SourceInput = serde_json::from_value(input).ok()?;
        SourceSettings::parse(input).ok()
    }

    /// The headers that sign the request; none for kinds that are only tried unsigned.
    fn signature(&self, secret: &str) -> Vec<(&'static str, String)> {
        let (body, url) = (self.body, format!("{ORIGIN}{}", self.target));
        let method = self.method.to_string();
        let text = |parts: &[&[u8]]| mac(secret.as_bytes(), parts);
        let key = STANDARD.decode(secret).unwrap_or_default();
        let timed = |joint: &[u8]| hex(&text(&[NOW.as_bytes(), joint, body]));
        let milliseconds = format!("{NOW}000");
        match self.kind.as_str() {
            "github" => vec![("x-hub-signature-256", format!("sha256={}", hex(&text(&[body]))))],
            "hmac" => vec![("x-signature", hex(&text(&[body])))],
            "linear" => vec![("linear-signature", hex(&text(&[body])))],
            "shopify" => vec![("x-shopify-hmac-sha256", STANDARD.encode(text(&[body])))],
            "stripe" => vec![("stripe-signature", format!("t={NOW},v1={}", timed(b".")))],
            "paddle" => vec![("paddle-signature", format!("ts={NOW};h1={}", timed(b":")))],
            "square" => vec![(
                "x-square-hmacsha256-signature",
                STANDARD.encode(text(&[url.as_bytes(), body])),
            )],
            "slack" => {
                let signed = [b"v0:", NOW.as_bytes(), b":", body];
                vec![
                    ("x-slack-request-timestamp", NOW.to_owned()),
                    ("x-slack-signature", format!("v0={}", hex(&text(&signed)))),
                ]
            }
            "zendesk" => vec![
                ("x-zendesk-webhook-signature-timestamp", NOW.to_owned()),
                ("x-zendesk-webhook-signature", STANDARD.encode(text(&[NOW.as_bytes(), body]))),
            ],
            "hubspot" => {
                let signed = [method.as_bytes(), url.as_bytes(), body, milliseconds.as_bytes()];
                vec![
                    ("x-hubspot-signature-v3", STANDARD.encode(text(&signed))),
                    ("x-hubspot-request-timestamp", milliseconds.clone()),
                ]
            }
            "message" | "standard_webhooks" | "svix" => {
                let signed = [b"evt_1.", NOW.as_bytes(), b".", body];
                vec![
                    ("webhook-id", "evt_1".to_owned()),
                    ("webhook-timestamp", NOW.to_owned()),
                    ("webhook-signature", format!("v1,{}", STANDARD.encode(mac(&key, &signed)))),
                ]
            }
            _ => Vec::new(),
        }
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some(mut sent) = Sent::read(input) else { return };
    let found = SECRETS.iter().find_map(|secret| Some((*secret, sent.source(secret)?)));
    let Some((secret, source)) = found else {
        // Only its own settings can be to blame.
        assert!(!sent.settings.is_empty(), "no secret for {}", sent.kind);
        return;
    };
    let signature = sent.signature(secret);
    let is_mac = !signature.is_empty();
    if sent.signed {
        for (name, value) in signature {
            sent.headers.insert(name, HeaderValue::from_str(&value).expect("a value"));
        }
    }
    let request = InboundRequest {
        method: &sent.method,
        target: sent.target,
        headers: &sent.headers,
        body: sent.body,
    };
    let seconds = sent.settings.get("now").and_then(Value::as_i64).unwrap_or(1_700_000_000);
    let now = Timestamp::from_millis(seconds.saturating_mul(1_000));
    let context = Context { source: &source, now, certificate: None };
    let judged = judge(&request, &context);
    assert_eq!(judged, judge(&request, &context));
    if let Ok(Judgement::Store(items)) = &judged {
        assert!(items.iter().all(|item| item.event_type.as_str().starts_with("shop.")));
        // Whoever knows the secret can sign.
        let could_sign = sent.signed || sent.settings.contains_key("secrets");
        assert!(could_sign || !is_mac, "{} took what nobody signed", sent.kind);
    }
    let called = source.called(request.target);
    let headers = ForwardedHeaders::of(&request, &called, &HeaderPrefix::default());
    assert_eq!(ForwardedHeaders::from_stored(&headers.to_stored()), Ok(headers));
});
