//! One request, judged: what is stored for it, or what is answered instead.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

use super::content::signed_bytes;
use super::provider::{Found, Genuine};
use super::{CertificateUrl, Context, DedupeKey, InboundRequest, Rejection, json};
use crate::digest;
use crate::event::{EventType, TYPE_BYTES_MAX};
use crate::source::{DedupeRule, EmptyBody, ReplayGuard};
use crate::subscription::JsonPointer;

/// An answer that does not depend on what is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers, lower case.
    pub headers: Vec<(&'static str, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// What a genuine request that is no event asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// This answer.
    Answer(Answer),
    /// A GET of this URL, whose host was checked, and then 200.
    Confirm(CertificateUrl),
}

/// What a genuine request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// These are stored in one transaction, then 2xx. An array may have none.
    Store(Vec<ReceivedItem>),
    /// Nothing is stored; it is answered 2xx.
    Ignore,
    /// Nothing is stored.
    Handshake(Handshake),
}

/// What other content under a known key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnChange {
    /// A duplicate whose body has changed: the provider's own id decides.
    Mark,
    /// A conflict: the sender chooses the key, so this may be another event.
    Conflict,
}

/// One event of a request, ready to be stored.
#[derive(Clone, PartialEq, Eq)]
pub struct ReceivedItem {
    /// What identifies it within the source.
    pub key: DedupeKey,
    /// Where the key was found, for a person: `kind`, `header …`, `pointers …` or `fallback`.
    pub key_from: String,
    /// Why the source's own rule found no key, for a person, if it has one.
    pub own_rule_failed: Option<String>,
    /// What other content under this key means.
    pub on_change: OnChange,
    /// What tells its content from another's.
    pub content: [u8; 32],
    /// What no other key may come with in the window: a hash of the signed bytes, where the
    /// signature does not cover the key.
    pub guard: Option<[u8; 32]>,
    /// Its type: `<source>.<provider's type>`.
    pub event_type: EventType,
    /// What is forwarded; `None`: the whole body, as it came.
    pub body: Option<Vec<u8>>,
    /// Why it cannot be read: it is kept as dead.
    pub unreadable: Option<String>,
}

impl fmt::Debug for ReceivedItem {
    /// Without the body: payloads stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ReceivedItem");
        debug.field("key", &self.key).field("event_type", &self.event_type);
        debug.field("unreadable", &self.unreadable).finish_non_exhaustive()
    }
}

/// Judges a request to a source.
///
/// # Errors
/// [`Rejection`]; nothing of the request is stored.
pub fn judge(request: &InboundRequest<'_>, context: &Context<'_>) -> Result<Judgement, Rejection> {
    let source = context.source;
    let provider = source.kind.0;
    if let Some(answer) = provider.greeting(request, context) {
        return Ok(Judgement::Handshake(Handshake::Answer(answer)));
    }
    let allow = source.kind.methods();
    if !allow.contains(&request.method.as_str()) {
        return Err(Rejection::Method { allow });
    }
    if provider.facts().needs_secret && source.secrets.is_empty() {
        return Err(Rejection::no_secret());
    }
    let options = &source.options;
    let signed = signed_bytes(request, options.content_encoding, options.body_max)?;
    let request = InboundRequest { body: &signed, ..*request };
    let genuine = provider.verify(&request, context)?;
    if let Some(handshake) = provider.handshake(&request, context) {
        return Ok(Judgement::Handshake(handshake));
    }
    if request.body.is_empty() {
        match options.empty {
            EmptyBody::Accept => {}
            EmptyBody::Ignore => return Ok(Judgement::Ignore),
            EmptyBody::Reject => return Err(Rejection::Empty),
        }
    }
    Ok(Judgement::Store(items(request, context, genuine)))
}

/// The events of a request as they would be if it were genuine: for the owner of a source to look
/// at, never to be stored. None where the body cannot be decoded.
pub fn look(request: &InboundRequest<'_>, context: &Context<'_>) -> Vec<ReceivedItem> {
    let options = &context.source.options;
    match signed_bytes(request, options.content_encoding, options.body_max) {
        Ok(body) => items(InboundRequest { body: &body, ..*request }, context, Genuine::default()),
        Err(_) => Vec::new(),
    }
}

fn items(
    request: InboundRequest<'_>,
    context: &Context<'_>,
    genuine: Genuine,
) -> Vec<ReceivedItem> {
    let found = context.source.kind.0.events(&request, context);
    let events = Events { request, context, genuine, body: OnceCell::new() };
    found.into_iter().enumerate().map(|(index, found)| events.item(index, found)).collect()
}

/// What the events of one request share.
struct Events<'a> {
    request: InboundRequest<'a>,
    context: &'a Context<'a>,
    genuine: Genuine,
    /// The digest of the whole body: once for all items, or an array would cost its square.
    body: OnceCell<[u8; 32]>,
}

/// A key and where it was found.
struct Identity {
    key: DedupeKey,
    from: String,
    is_signed: bool,
}

impl Events<'_> {
    fn item(&self, index: usize, found: Found<'_>) -> ReceivedItem {
        let source = self.context.source;
        let bytes = found.item.as_deref().or(found.body.as_deref()).unwrap_or(self.request.body);
        // What is not known to be the provider's word must not take the key of what is.
        let anonymous = found.unreadable.is_some() && found.key.is_empty();
        let (own, own_rule_failed) = match source.dedupe.as_ref().filter(|_| !anonymous) {
            Some(rule) => match self.own_rule(rule, bytes) {
                Ok(identity) => (Some(identity), None),
                Err(why) => (None, Some(why)),
            },
            None => (None, None),
        };
        let identity = own
            .or_else(|| kind_rule(&found).filter(|_| !anonymous))
            .unwrap_or_else(|| self.fallback(bytes));
        let content = match &found.content {
            Some(parts) => digest::of_parts(parts),
            None => digest::of_parts(&[bytes]),
        };
        let on_change = match source.kind.0.facts().sender_chooses_key {
            true => OnChange::Conflict,
            false => OnChange::Mark,
        };
        ReceivedItem {
            on_change,
            content,
            guard: self.guard(index, identity.is_signed),
            key: identity.key,
            key_from: identity.from,
            own_rule_failed,
            event_type: event_type(source.name.as_str(), found.event_type.as_deref()),
            body: found.body.map(Cow::into_owned),
            // What becomes of no body is for `options.empty` to say.
            unreadable: found.unreadable.filter(|_| !self.request.body.is_empty()),
        }
    }

    /// By the source's own rule, which needs all that it names: what lacks a part of its key would
    /// be one event with all else that lacks it. Else why it finds nothing.
    fn own_rule(&self, rule: &DedupeRule, bytes: &[u8]) -> Result<Identity, String> {
        match rule {
            DedupeRule::Header(name) => {
                let mut values = self.request.headers.get_all(name).iter();
                let value = values.next().map(|value| value.as_bytes().trim_ascii());
                let value = value.filter(|value| !value.is_empty());
                let value =
                    value.ok_or_else(|| format!("the header {name} is missing or empty"))?;
                // Of several values none is trusted to identify the event.
                if values.any(|other| other.as_bytes().trim_ascii() != value) {
                    return Err(format!("the header {name} has more than one value"));
                }
                let (key, from) =
                    (DedupeKey::by_own_rule(&[("header", value)]), format!("header {name}"));
                Ok(Identity { key, from, is_signed: false })
            }
            DedupeRule::Pointers(pointers) => {
                let value = |pointer: &JsonPointer| {
                    let found = json::find(bytes, pointer);
                    let value = found.and_then(|found| {
                        // `1` is not `"1"`, nor an object the text of one.
                        let word = if found.get().starts_with('"') { "text" } else { "value" };
                        Some((word, json::written(found)?.into_owned()))
                    });
                    value.ok_or_else(|| {
                        let pointer = pointer.as_str();
                        format!("at '{pointer}' there is nothing, null or an empty text")
                    })
                };
                let values: Vec<_> = pointers.iter().map(value).collect::<Result<_, _>>()?;
                let shown: Vec<_> = pointers.iter().map(JsonPointer::as_str).collect();
                let from = format!("pointers {}", shown.join(" "));
                let is_signed = self.genuine.signed.is_none();
                Ok(Identity { key: DedupeKey::by_own_rule(&values), from, is_signed })
            }
        }
    }

    /// Where nothing else identifies the event: the signed timestamp, if there is one, and the
    /// bytes. Never the time of arrival, which a retry does not repeat.
    fn fallback(&self, bytes: &[u8]) -> Identity {
        let named = self.context.source.options.own_text("timestamp_header");
        let timestamp = self
            .genuine
            .signed_timestamp
            .as_deref()
            .or_else(|| named.and_then(|name| self.request.described(name)))
            .unwrap_or_default();
        let text = digest::hex(&digest::of_parts(&[timestamp.as_bytes(), bytes]));
        let key = DedupeKey::new(&[format!("sha256={text}")]);
        Identity { key, from: "fallback".to_owned(), is_signed: false }
    }

    fn guard(&self, index: usize, key_is_signed: bool) -> Option<[u8; 32]> {
        let place = index.to_be_bytes();
        if self.context.source.options.replay_guard == ReplayGuard::Body {
            return Some(digest::of_parts(&[b"body".as_slice(), &place, self.body()]));
        }
        if key_is_signed {
            return None;
        }
        if let Some(signed) = &self.genuine.signed {
            return Some(digest::of_parts(&[b"signed".as_slice(), &place, signed]));
        }
        let timestamp = self.genuine.signed_timestamp.as_deref()?.as_bytes();
        Some(digest::of_parts(&[b"timestamp".as_slice(), &place, timestamp, self.body()]))
    }

    fn body(&self) -> &[u8] {
        self.body.get_or_init(|| digest::of_parts(&[self.request.body]))
    }
}

fn kind_rule(found: &Found<'_>) -> Option<Identity> {
    let key = (!found.key.is_empty()).then(|| {
        let parts: Vec<&str> = found.key.iter().map(|part| &**part).collect();
        DedupeKey::new(&parts)
    })?;
    Some(Identity { key, from: "kind".to_owned(), is_signed: found.key_is_signed })
}

/// `<source>.<provider's type>`, else `<source>.received`. What a type cannot hold becomes `_`; a
/// very long one is cut.
fn event_type(source: &str, providers: Option<&str>) -> EventType {
    let legal = |c: char| match c {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '.' | '-' => c,
        _ => '_',
    };
    let word: String = match providers {
        Some(word) if !word.is_empty() => word.chars().map(legal).collect(),
        Some(_) | None => "received".to_owned(),
    };
    let mut text = format!("{source}.{word}");
    text.truncate(TYPE_BYTES_MAX);
    EventType::any(&text).unwrap_or_else(|_| EventType::own("received"))
}
