//! `twilio`: <https://www.twilio.com/docs/usage/webhooks/webhooks-security>.
//!
//! Base64 HMAC-SHA1 under the auth token over the URL as Twilio calls it and, of a form, each name
//! and its values after one another, sorted. Any other body is bound to the URL by its parameter
//! `bodySHA256`. The sender is not consistent about the port, so the URL counts with and without.
//! No timestamp is signed.
//!
//! A call (or message, or recording) has many events: its status and sequence number belong to the
//! key. Where they are not sent, the header `I-Twilio-Idempotency-Token` tells events apart, which
//! is the same in each attempt, and is not signed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use url::Url;

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::judgement::Answer;
use crate::inbound::mac::Spelling;
use crate::inbound::{Context, InboundRequest, Rejection, form, mac};

const SIGNATURE: &str = "x-twilio-signature";
const TOKEN: &str = "i-twilio-idempotency-token";

/// What is told of, and the status of it: the first that is sent counts.
const SUBJECTS: [(&str, [&str; 2]); 4] = [
    ("RecordingSid", ["RecordingStatus", ""]),
    ("MessageSid", ["MessageStatus", "SmsStatus"]),
    ("ConferenceSid", ["StatusCallbackEvent", ""]),
    ("CallSid", ["CallStatus", ""]),
];

/// See the module.
#[derive(Debug)]
pub(super) struct Twilio;

impl Provider for Twilio {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "twilio", methods: &["POST", "GET"], window_h: 24, needs_url: true, ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let signature = mac::from_base64(request.required(SIGNATURE)?)
            .ok_or_else(|| Rejection::header(SIGNATURE, "is not base64"))?;
        let url = context.called_url(request)?;
        let parameters = parameters(request)?;
        let urls = spellings(&url);
        let expected = context.text_keys().flat_map(|key| {
            let parameters = parameters.as_bytes();
            urls.iter().map(move |url| mac::sha1(key, &[url.as_bytes(), parameters]))
        });
        mac::verify(&[signature], expected)?;
        Ok(Genuine::default())
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let url = context.source.public_url.as_ref()?.called(draft.target);
        let fields =
            [("Data", draft.data), ("MessageSid", draft.id), ("MessageStatus", draft.event_type)];
        let signed: String = fields.iter().flat_map(|(name, value)| [*name, *value]).collect();
        let mac = mac::sha1(context.signing_key(), &[url.as_bytes(), signed.as_bytes()]);
        Some(Draft::form(&fields).signed(draft, SIGNATURE, |_| Spelling::Base64.write(&mac)))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let text = match form::is_body_of(request) {
            true => request.body,
            false => request.query().unwrap_or_default().as_bytes(),
        };
        let field = |name: &str| form::field(text, name);
        let status = |names: &[&str; 2]| names.iter().find_map(|name| field(name));
        let subject = SUBJECTS.iter().find_map(|(sid, names)| Some((field(sid)?, status(names))));
        let token = request.described(TOKEN).filter(|token| !token.is_empty());
        let status = subject.as_ref().and_then(|(_, status)| status.clone());
        let key = key(subject, field("SequenceNumber"), token.map(Cow::Borrowed));
        vec![Found { key, event_type: status, ..Found::default() }]
    }

    fn answer(&self, _duplicate: bool) -> Option<Answer> {
        // TwiML that asks for nothing: an empty answer would end the call with an error.
        Some(Answer {
            status: 200,
            headers: vec![("content-type", "text/xml".to_owned())],
            body: b"<Response/>".to_vec(),
        })
    }
}

fn key<'a>(
    subject: Option<(Cow<'a, str>, Option<Cow<'a, str>>)>,
    sequence: Option<Cow<'a, str>>,
    token: Option<Cow<'a, str>>,
) -> Vec<Cow<'a, str>> {
    let is_call = subject.as_ref().is_some_and(|(sid, _)| sid.starts_with("CA"));
    match (subject, token) {
        // A message has each status once; what happens in a call is counted, or not told apart.
        (Some((_, status)), Some(token)) if status.is_none() || (is_call && sequence.is_none()) => {
            vec![token]
        }
        (Some((sid, status)), _) => {
            vec![sid, status.unwrap_or_default(), sequence.unwrap_or_default()]
        }
        (None, token) => token.into_iter().collect(),
    }
}

/// What is signed after the URL: the parameters of a form, each name with its different values in
/// order. Of any other body nothing, but its digest must be in the URL.
fn parameters(request: &InboundRequest<'_>) -> Result<String, Rejection> {
    if form::is_body_of(request) {
        let fields = form::all_fields(request.body)
            .ok_or_else(|| Rejection::Signature(form::NO_FORM.to_owned()))?;
        let mut sorted: BTreeMap<Cow<'_, str>, BTreeSet<Cow<'_, str>>> = BTreeMap::new();
        for (name, value) in fields {
            sorted.entry(name).or_default().insert(value);
        }
        let pairs = sorted.iter().flat_map(|(name, values)| values.iter().map(move |v| [name, v]));
        return Ok(pairs.flatten().map(|text| &**text).collect());
    }
    let query = request.query().unwrap_or_default().as_bytes();
    match form::field(query, "bodySHA256") {
        Some(digest) => {
            if mac::from_hex(&digest).as_deref() != Some(&Sha256::digest(request.body)[..]) {
                let detail = "the body is not the one that the URL's bodySHA256 is of";
                return Err(Rejection::Signature(detail.to_owned()));
            }
        }
        None if request.body.is_empty() => {}
        None => {
            let detail = "the body is no form, and the URL has no bodySHA256 that binds it";
            return Err(Rejection::Signature(detail.to_owned()));
        }
    }
    Ok(String::new())
}

/// The URL as it is, and with its port left out or, if it has none, put in.
fn spellings(url: &str) -> Vec<String> {
    let mut spellings = vec![url.to_owned()];
    let Some((scheme, rest)) = url.split_once("://") else { return spellings };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let parsed = Url::parse(url).ok();
    let Some(default) = parsed.and_then(|url| url.port_or_known_default()) else {
        return spellings;
    };
    let host_at = authority.rfind('@').map_or(0, |at| at + 1);
    let (user, host) = authority.split_at(host_at);
    let other = match host.rfind(':').filter(|&at| !host[at..].contains(']')) {
        Some(at) => host[..at].to_owned(),
        None => format!("{host}:{default}"),
    };
    spellings.push(format!("{scheme}://{user}{other}{path}"));
    spellings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_left_out_or_put_in() {
        for (url, other) in [
            ("https://a.test/x?b=c:1", "https://a.test:443/x?b=c:1"),
            ("http://a.test?b=/", "http://a.test:80?b=/"),
            ("https://a.test:8443/x", "https://a.test/x"),
            ("https://u:p@a.test/x", "https://u:p@a.test:443/x"),
            ("https://u:p@a.test:443", "https://u:p@a.test"),
            ("https://[2001:db8::1]/x", "https://[2001:db8::1]:443/x"),
            ("https://[2001:db8::1]:1/x", "https://[2001:db8::1]/x"),
        ] {
            assert_eq!(spellings(url), [url, other]);
        }
    }

    #[test]
    fn what_tells_events_apart() {
        let check = |subject: Option<(&'static str, Option<&'static str>)>,
                     sequence: Option<&'static str>,
                     token: Option<&'static str>,
                     expected: &[&str]| {
            let subject = subject.map(|(sid, status)| (sid.into(), status.map(Cow::Borrowed)));
            assert_eq!(
                key(subject, sequence.map(Cow::Borrowed), token.map(Cow::Borrowed)),
                expected
            );
        };
        let call = Some(("CA1", Some("in-progress")));
        check(call, Some("3"), None, &["CA1", "in-progress", "3"]);
        check(call, Some("3"), Some("token"), &["CA1", "in-progress", "3"]);
        check(call, None, Some("token"), &["token"]);
        check(call, None, None, &["CA1", "in-progress", ""]);
        check(Some(("CA1", None)), None, None, &["CA1", "", ""]);
        check(Some(("SM1", Some("sent"))), None, Some("token"), &["SM1", "sent", ""]);
        check(Some(("SM1", None)), None, Some("token"), &["token"]);
        check(None, None, Some("token"), &["token"]);
        check(None, None, None, &[]);
    }
}
