//! `cloudevents`: <https://github.com/cloudevents/spec>, the HTTP binding 1.0 and the web hook
//! specification 1.0.
//!
//! An event is in the headers (`ce-…`, binary mode), in the body, or one of a batch in the body.
//! Nothing is signed; secrets are tokens, one of which must come as `Authorization: Bearer` or,
//! from senders that cannot do that, as the query's `access_token`. `source` and `id` together
//! identify an event. A sender that asks first, with OPTIONS, is told that it may send as often as
//! it likes; a URL that it would have called back for that is never called.

use std::borrow::Cow;

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::json::Object;
use crate::inbound::judgement::Answer;
use crate::inbound::{Context, InboundRequest, Rejection, array, form, mac};

/// See the module.
#[derive(Debug)]
pub(super) struct CloudEvents;

/// How a request carries its events.
enum Mode {
    Binary,
    Structured,
    Batch,
}

impl Mode {
    fn of(request: &InboundRequest<'_>) -> Self {
        let media_type = request.media_type();
        if media_type.starts_with("application/cloudevents-batch") {
            Self::Batch
        } else if media_type.starts_with("application/cloudevents") {
            Self::Structured
        } else {
            Self::Binary
        }
    }
}

impl Provider for CloudEvents {
    fn facts(&self) -> &'static Facts {
        &Facts {
            word: "cloudevents",
            methods: &["POST", "OPTIONS"],
            needs_secret: false,
            sender_chooses_key: true,
            ..USUAL
        }
    }

    fn greeting(&self, request: &InboundRequest<'_>, _: &Context<'_>) -> Option<Answer> {
        if request.method != http::Method::OPTIONS {
            return None;
        }
        let mut headers = vec![("allow", "POST, OPTIONS".to_owned())];
        if let Some(origin) = request.described("webhook-request-origin") {
            headers.push(("webhook-allowed-origin", origin.to_owned()));
            let rate = request.described("webhook-request-rate").unwrap_or("*");
            headers.push(("webhook-allowed-rate", rate.to_owned()));
        }
        Some(Answer { status: 200, headers, body: Vec::new() })
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        if !context.source.secrets.is_empty() {
            let token = token(request)?;
            mac::verify(&[token.as_bytes().to_vec()], context.text_keys())
                .map_err(|_| Rejection::Signature("the token is wrong".to_owned()))?;
        }
        // Without these a body of any kind is no event at all. Whether bodies are, is seen later.
        if let Mode::Binary = Mode::of(request) {
            request.required("ce-id")?;
            request.required("ce-source")?;
        }
        Ok(Genuine::default())
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, context: &Context<'_>) -> Vec<Found<'a>> {
        match Mode::of(request) {
            Mode::Binary => {
                let attribute = |name: &str| request.described(&format!("ce-{name}")).map(decoded);
                vec![event(attribute)]
            }
            Mode::Structured => match Object::parse(request.body) {
                Some(object) => vec![event(|name| object.scalar(name))],
                None => vec![Found::unreadable("the body is not a JSON object")],
            },
            Mode::Batch => {
                let read = |object: &Object<'a>| event(|name| object.scalar(name));
                array::events(request.body, &context.source.options, read)
                    .unwrap_or_else(|| vec![Found::unreadable("the body is not a JSON array")])
            }
        }
    }
}

/// The token of RFC 6750, in the header or the query.
fn token<'a>(request: &InboundRequest<'a>) -> Result<Cow<'a, str>, Rejection> {
    if let Some(header) = request.optional("authorization")? {
        let bearer = header.split_once(' ').filter(|(it, _)| it.eq_ignore_ascii_case("bearer"));
        let token = bearer.map(|(_, token)| Cow::Borrowed(token.trim()));
        return token.ok_or_else(|| Rejection::header("authorization", "is not Bearer"));
    }
    let query = request.query().unwrap_or_default().as_bytes();
    form::field(query, "access_token").ok_or_else(|| Rejection::missing("authorization"))
}

fn event<'a>(attribute: impl Fn(&str) -> Option<Cow<'a, str>>) -> Found<'a> {
    match (attribute("source"), attribute("id")) {
        (Some(source), Some(id)) => {
            Found { key: vec![source, id], event_type: attribute("type"), ..Found::default() }
        }
        _ => Found::unreadable("it is no CloudEvent: it lacks source or id"),
    }
}

/// An attribute from its header: out of quotes, then out of percent signs, once (HTTP binding,
/// §3.1.3.2). What is broken stays as it is.
fn decoded(value: &str) -> Cow<'_, str> {
    let value = unquoted(value);
    if !value.contains('%') {
        return value;
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let digits = (first == b'%').then(|| after.get(..2)).flatten();
        let byte = digits.and_then(|digits| mac::from_hex(std::str::from_utf8(digits).ok()?));
        rest = if byte.is_some() { &after[2..] } else { after };
        bytes.push(byte.map_or(first, |byte| byte[0]));
    }
    String::from_utf8(bytes).map_or(value, Cow::Owned)
}

fn unquoted(value: &str) -> Cow<'_, str> {
    let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let Some(inner) = inner else { return Cow::Borrowed(value) };
    let (mut text, mut escaped) = (String::with_capacity(inner.len()), false);
    for c in inner.chars() {
        escaped = c == '\\' && !escaped;
        if !escaped {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_decoded_once() {
        for (header, expected) in [
            ("plain", "plain"),
            ("/caf%C3%A9", "/caf\u{e9}"),
            ("%2541", "%41"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%+1", "%+1"),
            ("%FF", "%FF"),
            ("\"a \\\"b\\\\ \\c\"", "a \"b\\ c"),
            ("\"%20\"", " "),
            ("\"", "\""),
        ] {
            assert_eq!(decoded(header), expected, "{header}");
        }
    }
}
