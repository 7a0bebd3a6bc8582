//! `hmac`: anybody else who signs with a shared secret.
//!
//! | option | default | what |
//! | --- | --- | --- |
//! | `header` | `X-Signature` | where it is; several stand between `,`, `;` or spaces |
//! | `algorithm` | `sha256` | the hash: `sha1`, `sha256` or `sha512` |
//! | `encoding` | `hex` | how the signature is written: `hex` or `base64` |
//! | `prefix` | `<algorithm>=`, which may lack | what stands before a signature |
//! | `secret_encoding` | `text` | how the secret is written: `text`, `hex` or `base64` |
//! | `signed` | `body` | `body`, or `timestamp_body`: timestamp, separator and body |
//! | `separator` | `.` | what stands between them |
//! | `timestamp_header` | none | where the timestamp is |
//! | `timestamp_unit` | `s` | what it counts: `s` or `ms` |
//!
//! The key is the sender's `Idempotency-Key`. A timestamp that is not signed is not checked: it
//! only tells equal bodies apart.

use std::borrow::Cow;

use super::{Facts, Found, Genuine, Provider, USUAL, check_secrets, check_usual, none};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::mac::{self, Spelling};
use crate::inbound::{Context, InboundRequest, Rejection, tolerance};
use crate::source::{InvalidSource, SourceOptions, SourceSettings};
use crate::time::Timestamp;
use Algorithm::{Sha1, Sha256, Sha512};
use Spelling::{Base64, Hex};

#[derive(Clone, Copy, Debug)]
enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

#[derive(Clone, Copy, Debug)]
enum Signed {
    Body,
    TimestampAndBody,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Seconds,
    Milliseconds,
}

/// What may stand between signatures.
const BETWEEN: &[char] = &[',', ';', ' '];

/// The options, read.
struct Recipe<'a> {
    header: &'a str,
    algorithm: Algorithm,
    spelling: Spelling,
    prefix: Option<&'a str>,
    /// `None`: the text itself is the key.
    secret_spelling: Option<Spelling>,
    signed: Signed,
    separator: &'a str,
    timestamp_header: Option<&'a str>,
    unit: Unit,
}

impl<'a> Recipe<'a> {
    /// What is wrong is noted.
    fn read(options: &'a SourceOptions, faults: &mut Vec<InvalidSource>) -> Self {
        let hashes = [("sha1", Sha1), ("sha256", Sha256), ("sha512", Sha512)];
        let spellings = [("hex", Hex), ("base64", Base64)];
        let secrets = [("text", None), ("hex", Some(Hex)), ("base64", Some(Base64))];
        let signed = [("body", Signed::Body), ("timestamp_body", Signed::TimestampAndBody)];
        let units = [("s", Unit::Seconds), ("ms", Unit::Milliseconds)];
        let recipe = Self {
            header: options.own_header("header", faults).unwrap_or("x-signature"),
            algorithm: options.own_word("algorithm", &hashes, Sha256, faults),
            spelling: options.own_word("encoding", &spellings, Hex, faults),
            prefix: options.own_short("prefix", faults),
            secret_spelling: options.own_word("secret_encoding", &secrets, None, faults),
            signed: options.own_word("signed", &signed, Signed::Body, faults),
            separator: options.own_short("separator", faults).unwrap_or("."),
            timestamp_header: options.own_header("timestamp_header", faults),
            unit: options.own_word("timestamp_unit", &units, Unit::Seconds, faults),
        };
        if recipe.prefix.is_some_and(|prefix| prefix.contains(BETWEEN)) {
            let detail = "must not hold ',', ';' or a space, which stand between signatures";
            faults.push(InvalidSource::new("/options/prefix", detail));
        }
        if let Signed::TimestampAndBody = recipe.signed
            && options.own("timestamp_header").is_none()
        {
            let detail = "must name the header of the timestamp that is signed";
            faults.push(InvalidSource::new("/options/timestamp_header", detail));
        }
        recipe
    }

    /// The bytes of a signature; `None` for one that is not in this form.
    fn signature(&self, entry: &str) -> Option<Vec<u8>> {
        let digits = match (self.prefix, self.algorithm) {
            (Some(prefix), _) => entry.strip_prefix(prefix)?,
            (None, Sha1) => entry.strip_prefix("sha1=").unwrap_or(entry),
            (None, Sha256) => entry.strip_prefix("sha256=").unwrap_or(entry),
            (None, Sha512) => entry.strip_prefix("sha512=").unwrap_or(entry),
        };
        self.spelling.read(digits)
    }

    /// The key that a secret stands for.
    fn key(&self, secret: &'a str) -> Option<Cow<'a, [u8]>> {
        match self.secret_spelling {
            None => Some(Cow::Borrowed(secret.as_bytes())),
            Some(spelling) => spelling.read(secret).map(Cow::Owned),
        }
    }

    fn mac(&self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self.algorithm {
            Sha1 => mac::sha1(key, parts).to_vec(),
            Sha256 => mac::sha256(key, parts).to_vec(),
            Sha512 => mac::sha512(key, parts).to_vec(),
        }
    }

    /// The timestamp that is signed: its text and what it says; `None` if none is.
    fn timestamp<'r>(
        &self,
        request: &InboundRequest<'r>,
    ) -> Result<Option<(&'r str, Timestamp)>, Rejection> {
        let (Signed::TimestampAndBody, Some(header)) = (self.signed, self.timestamp_header) else {
            return Ok(None);
        };
        let text = request.required(header)?;
        let at = match self.unit {
            Unit::Seconds => tolerance::seconds(text),
            Unit::Milliseconds => tolerance::milliseconds(text),
        };
        let fault = "is not a number of whole seconds, or milliseconds if the source is set so";
        Ok(Some((text, at.ok_or_else(|| Rejection::header(header, fault))?)))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Hmac;

impl Provider for Hmac {
    fn facts(&self) -> &'static Facts {
        &Facts {
            word: "hmac",
            sender_chooses_key: true,
            options: &[
                "header",
                "algorithm",
                "encoding",
                "prefix",
                "secret_encoding",
                "signed",
                "separator",
                "timestamp_header",
                "timestamp_unit",
            ],
            ..USUAL
        }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        let recipe = Recipe::read(&settings.options, faults);
        check_secrets(settings, faults, |text| match recipe.key(text) {
            Some(_) => None,
            None => Some("is not in the form that options.secret_encoding says"),
        });
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let mut faults = Vec::new();
        let recipe = Recipe::read(&context.source.options, &mut faults);
        if let Some(fault) = faults.first() {
            return Err(Rejection::Misconfigured(fault.to_string()));
        }
        let entries = mac::entries(request.required(recipe.header)?, BETWEEN);
        let signatures: Vec<_> = entries.filter_map(|entry| recipe.signature(entry)).collect();
        if signatures.is_empty() {
            let fault = format!("has no MAC in {} as the source is set", recipe.spelling.name());
            return Err(Rejection::header(recipe.header, &fault));
        }
        let timestamp = recipe.timestamp(request)?;
        let (text, separator) = match timestamp {
            Some((text, _)) => (text, recipe.separator),
            None => ("", ""),
        };
        let parts = [text.as_bytes(), separator.as_bytes(), request.body];
        let keys = context.source.secrets.iter().filter_map(|secret| recipe.key(secret.expose()));
        mac::verify(&signatures, keys.map(|key| recipe.mac(&key, &parts)))?;
        if let Some((_, at)) = timestamp {
            tolerance::check(at, context)?;
        }
        Ok(Genuine { signed_timestamp: timestamp.map(|(text, _)| text.to_owned()), signed: None })
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let recipe = Recipe::read(&context.source.options, &mut Vec::new());
        let key = recipe.key(context.source.secrets.first()?.expose())?;
        let timestamp = match recipe.unit {
            Unit::Seconds => context.now.as_secs(),
            Unit::Milliseconds => context.now.as_millis(),
        };
        let timestamp = timestamp.to_string();
        let mut made = draft.object(context.now, &[]).with("idempotency-key", draft.id);
        let mut before = [b"".as_slice(), b""];
        if let (Signed::TimestampAndBody, Some(header)) = (recipe.signed, recipe.timestamp_header) {
            made = made.with(header, &timestamp);
            before = [timestamp.as_bytes(), recipe.separator.as_bytes()];
        }
        Some(made.signed(draft, recipe.header, |made| {
            let mac = recipe.mac(&key, &[before[0], before[1], &made.body]);
            format!("{}{}", recipe.prefix.unwrap_or_default(), recipe.spelling.write(&mac))
        }))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        vec![none::by_idempotency_key(request)]
    }
}
