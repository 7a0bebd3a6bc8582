//! `standard_webhooks`: the Standard Webhooks specification 1.0.0,
//! <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>.
//!
//! Signed is `id.timestamp.body`; `webhook-signature` has entries `version,base64`, separated by
//! spaces: `v1` is HMAC-SHA256 under the bytes of a secret (`whsec_` and base64), `v1a` Ed25519,
//! verified with a public key (`whpk_` and base64). One entry that fits is enough; other versions
//! are passed over. The id is the same in every attempt.

use super::{Facts, Found, Genuine, Provider, USUAL, check_usual};
use crate::ed25519;
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::json::Object;
use crate::inbound::mac::Spelling;
use crate::inbound::{Context, InboundRequest, Rejection, mac, tolerance};
use crate::source::{InvalidSource, SourceSettings};

/// The headers of the scheme, which has them under more than one name.
#[derive(Debug)]
pub(super) struct Names {
    /// What identifies the event.
    pub(super) id: &'static str,
    /// Whole seconds.
    pub(super) timestamp: &'static str,
    /// The signatures.
    pub(super) signature: &'static str,
}

/// The names in the specification.
pub(super) const NAMES: Names =
    Names { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };

impl Names {
    /// Whether all of them are there.
    pub(super) fn are_in(&self, request: &InboundRequest<'_>) -> bool {
        [self.id, self.timestamp, self.signature]
            .iter()
            .all(|name| request.headers.contains_key(*name))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct StandardWebhooks;

impl Provider for StandardWebhooks {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "standard_webhooks", ..USUAL }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        check_secrets(settings, faults);
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        verify(&NAMES, request, context)
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        imitate(&NAMES, draft, context)
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        events(&NAMES, request)
    }
}

/// What a secret of the scheme is.
enum Key {
    Shared(Vec<u8>),
    Public(Vec<u8>),
}

impl Key {
    fn read(text: &str) -> Result<Self, &'static str> {
        if text.trim() != text {
            return Err("has white space or a line break at its ends: remove it");
        }
        if text.starts_with("v1,") || text.starts_with("v1a,") {
            return Err("begins with the version of a signature: leave that out");
        }
        if text.starts_with("whsk_") {
            return Err(
                "is the sender's private key: its public one, which begins with whpk_, is \
                        needed here",
            );
        }
        let shown = text.strip_prefix("whpk_");
        let digits = shown.or_else(|| text.strip_prefix("whsec_")).unwrap_or(text);
        match (mac::from_base64(digits), shown) {
            (Some(bytes), None) if !bytes.is_empty() => Ok(Self::Shared(bytes)),
            (Some(bytes), Some(_)) if bytes.len() == ed25519::KEY_BYTES => Ok(Self::Public(bytes)),
            (_, None) => Err("is not whsec_ and standard base64, as the sender shows it"),
            (_, Some(_)) => Err("is not whpk_ and the standard base64 of 32 bytes"),
        }
    }
}

/// Notes which secrets have not the form of the scheme.
pub(super) fn check_secrets(settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
    super::check_secrets(settings, faults, |text| Key::read(text).err());
}

/// Verifies a request.
///
/// # Errors
/// [`Rejection::Signature`] or [`Rejection::Stale`].
pub(super) fn verify(
    names: &Names,
    request: &InboundRequest<'_>,
    context: &Context<'_>,
) -> Result<Genuine, Rejection> {
    let id = request.required(names.id)?;
    let timestamp = request.required(names.timestamp)?;
    let header = request.required(names.signature)?;
    // A full stop could move between the id and the timestamp.
    if id.is_empty() || id.contains('.') {
        return Err(Rejection::header(names.id, "is empty or has a '.' in it"));
    }
    let at = tolerance::seconds(timestamp)
        .ok_or_else(|| Rejection::header(names.timestamp, "is not a number of whole seconds"))?;
    let (mut macs, mut signatures) = (Vec::new(), Vec::new());
    for (version, text) in mac::entries(header, &[' ']).filter_map(|entry| entry.split_once(',')) {
        match version {
            "v1" => macs.extend(mac::from_base64(text)),
            "v1a" => signatures.extend(mac::from_base64(text)),
            _ => {}
        }
    }
    if macs.is_empty() && signatures.is_empty() {
        let fault = "has no readable signature of the versions v1 and v1a";
        return Err(Rejection::header(names.signature, fault));
    }
    let parts = [id.as_bytes(), b".", timestamp.as_bytes(), b".", request.body];
    let (mut shared, mut public) = (Vec::new(), Vec::new());
    for secret in &context.source.secrets {
        match Key::read(secret.expose()) {
            Ok(Key::Shared(key)) => shared.push(key),
            Ok(Key::Public(key)) => public.push(key),
            Err(_) => {}
        }
    }
    let expected = shared.iter().map(|key| mac::sha256(key, &parts));
    mac::verify(&macs, expected).or_else(|mismatch| {
        let any = !public.is_empty() && !signatures.is_empty();
        let signed = if any { parts.concat() } else { Vec::new() };
        let fits = |key: &Vec<u8>| {
            signatures.iter().any(|signature| ed25519::fits(key, &signed, signature))
        };
        if public.iter().any(fits) { Ok(()) } else { Err(mismatch) }
    })?;
    tolerance::check(at, context)?;
    Ok(Genuine { signed_timestamp: Some(timestamp.to_owned()), signed: None })
}

/// A webhook of the scheme; none for a public key.
pub(super) fn imitate(
    names: &Names,
    draft: &Draft<'_>,
    context: &Context<'_>,
) -> Option<Imitation> {
    let Ok(Key::Shared(key)) = Key::read(context.source.secrets.first()?.expose()) else {
        return None;
    };
    let timestamp = context.now.as_secs().to_string();
    let made = draft.object(context.now, &[]).with(names.id, draft.id);
    Some(made.with(names.timestamp, &timestamp).signed(draft, names.signature, |made| {
        let parts = [draft.id.as_bytes(), b".", timestamp.as_bytes(), b".", &made.body];
        format!("v1,{}", Spelling::Base64.write(&mac::sha256(&key, &parts)))
    }))
}

/// The event: its type is in the body if that is as the specification recommends.
pub(super) fn events<'a>(names: &Names, request: &InboundRequest<'a>) -> Vec<Found<'a>> {
    let body = Object::parse(request.body);
    vec![Found {
        key: request.described(names.id).into_iter().map(Into::into).collect(),
        key_is_signed: true,
        event_type: body.and_then(|body| body.scalar("type")),
        ..Found::default()
    }]
}
