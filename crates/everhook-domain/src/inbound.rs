//! What arrives from a provider: is it genuine, what identifies it, what becomes of it.
//!
//! [`judge`] takes a request as it came from the socket and says what to store, or why not. It is
//! pure: the time of arrival is an argument, and a certificate that has to be fetched is asked for
//! by [`Rejection::CertificateNeeded`] and given on the next call.
//!
//! Each kind of source is a `Provider`: one file in `inbound/provider`, one line of the table
//! there, one file of vectors in `tests/vectors`.

mod array;
mod basic;
mod certificate;
mod content;
mod form;
mod forwarded;
mod imitation;
mod json;
mod judgement;
mod key;
mod kind;
mod mac;
mod mail;
mod message_id;
mod mime;
mod provider;
mod public_key;
mod rejection;
mod scheme;
mod ses;
#[cfg(test)]
mod tests;
mod tolerance;

use http::{HeaderMap, Method};

use crate::source::SourceSettings;
use crate::time::Timestamp;

pub use forwarded::{ForwardedHeaders, UnreadableHeaders};
pub use imitation::{Draft, Imitation, imitate};
pub use judgement::{Answer, Handshake, Judgement, OnChange, ReceivedItem, judge, look};
pub use key::DedupeKey;
pub use kind::{InvalidSourceKind, SourceKind};
pub use message_id::MessageId;
pub use rejection::{CertificateUrl, Rejection};

/// A request as it came from the socket.
#[derive(Clone, Copy, Debug)]
pub struct InboundRequest<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path and query, percent-encoding untouched.
    pub target: &'a str,
    /// Its headers; values are bytes.
    pub headers: &'a HeaderMap,
    /// Its body, as on the wire.
    pub body: &'a [u8],
}

impl<'a> InboundRequest<'a> {
    /// The only value of a header, as text without white space at its ends.
    ///
    /// Of a header that is there more than once with different values none is trusted.
    ///
    /// # Errors
    /// [`Rejection::Signature`], which names the header: missing, several, or not visible ASCII.
    pub(crate) fn required(&self, name: &str) -> Result<&'a str, Rejection> {
        match self.optional(name)? {
            Some(value) => Ok(value),
            None => Err(Rejection::missing(name)),
        }
    }

    /// As [`Self::required`], for a header that may be missing.
    ///
    /// # Errors
    /// [`Rejection::Signature`]: several, or not visible ASCII.
    pub(crate) fn optional(&self, name: &str) -> Result<Option<&'a str>, Rejection> {
        let mut values = self.headers.get_all(name).iter();
        let Some(first) = values.next() else { return Ok(None) };
        if values.any(|other| other != first) {
            return Err(Rejection::header(name, "was sent more than once, with different values"));
        }
        match first.to_str() {
            Ok(text) => Ok(Some(text.trim_matches([' ', '\t']))),
            Err(_) => Err(Rejection::header(name, "is not plain text")),
        }
    }

    /// The only value of a header that only describes, if there is one, it is text and not empty.
    pub(crate) fn described(&self, name: &str) -> Option<&'a str> {
        self.optional(name).ok().flatten().filter(|value| !value.is_empty())
    }

    /// The raw query, without the question mark.
    pub(crate) fn query(&self) -> Option<&'a str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The media type, without parameters, in lower case; empty without one.
    pub(crate) fn media_type(&self) -> String {
        let value = self.described("content-type").unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }
}

/// What a request is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The source that it came to.
    pub source: &'a SourceSettings,
    /// The time of arrival, by the wall clock.
    pub now: Timestamp,
    /// The certificate that was asked for: its URL and the PEM text.
    pub certificate: Option<(&'a CertificateUrl, &'a [u8])>,
}

impl<'a> Context<'a> {
    /// The secrets as keys, where the key is the text itself.
    pub(crate) fn text_keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.source.secrets.iter().map(|secret| secret.expose().as_bytes())
    }

    /// The URL that the provider called, as it knows it.
    ///
    /// # Errors
    /// [`Rejection::Misconfigured`]: the source has no `public_url`.
    pub(crate) fn called_url(&self, request: &InboundRequest<'_>) -> Result<String, Rejection> {
        let missing = || Rejection::Misconfigured("the source has no public_url".to_owned());
        Ok(self.source.public_url.as_ref().ok_or_else(missing)?.called(request.target))
    }
}
