//! Signature schemes that more than one kind has.

use super::imitation::{Draft, Imitation};
use super::mac::{self, Spelling};
use super::provider::Genuine;
use super::{Context, InboundRequest, Rejection, tolerance};

/// A header such as `t=<seconds>,v1=<hex>[,v1=…]`: HMAC-SHA256 under the whole text of the secret,
/// over the timestamp and the body.
#[derive(Debug)]
pub(super) struct Timed {
    /// The header.
    pub(super) header: &'static str,
    /// What may stand between its entries.
    pub(super) between: &'static [char],
    /// What the entry with the timestamp is called.
    pub(super) timestamp: &'static str,
    /// What entries with signatures are called; all others are passed over.
    pub(super) signature: &'static str,
    /// What is signed between timestamp and body.
    pub(super) joint: &'static [u8],
}

impl Timed {
    /// Verifies a request.
    ///
    /// # Errors
    /// [`Rejection::Signature`] or [`Rejection::Stale`].
    pub(super) fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let fault = |fault: &str| Rejection::header(self.header, fault);
        let (mut timestamp, mut signatures) = (None, Vec::new());
        for entry in mac::entries(request.required(self.header)?, self.between) {
            let Some((name, value)) = entry.split_once('=') else { continue };
            if name == self.timestamp {
                if timestamp.replace(value).is_some() {
                    return Err(fault("has two timestamps"));
                }
            } else if name == self.signature {
                signatures.extend(mac::from_hex(value));
            }
        }
        let timestamp = timestamp.ok_or_else(|| fault("has no timestamp"))?;
        let at = tolerance::seconds(timestamp)
            .ok_or_else(|| fault("has a timestamp that is not whole seconds"))?;
        if signatures.is_empty() {
            return Err(fault("has no readable signature of a version that is known"));
        }
        let signed = [timestamp.as_bytes(), self.joint, request.body];
        mac::verify(&signatures, context.text_keys().map(|key| mac::sha256(key, &signed)))?;
        tolerance::check(at, context)?;
        Ok(Genuine { signed_timestamp: Some(timestamp.to_owned()), signed: None })
    }
}

impl Timed {
    /// With the signature of a draft.
    pub(super) fn sign(
        &self,
        made: Imitation,
        draft: &Draft<'_>,
        context: &Context<'_>,
    ) -> Imitation {
        let timestamp = context.now.as_secs().to_string();
        made.signed(draft, self.header, |made| {
            let signed = [timestamp.as_bytes(), self.joint, &made.body];
            let mac = Spelling::Hex.write(&mac::sha256(context.signing_key(), &signed));
            let (t, v, between) = (self.timestamp, self.signature, self.between[0]);
            format!("{t}={timestamp}{between}{v}={mac}")
        })
    }
}

/// A header with one HMAC-SHA256 under the whole text of the secret.
#[derive(Debug)]
pub(super) struct Single {
    /// The header.
    pub(super) header: &'static str,
    /// What stands before the MAC.
    pub(super) prefix: &'static str,
    /// How it is written.
    pub(super) spelling: Spelling,
}

impl Single {
    /// Verifies that it is the MAC of these parts.
    ///
    /// # Errors
    /// [`Rejection::Signature`].
    pub(super) fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
        parts: &[&[u8]],
    ) -> Result<(), Rejection> {
        let signature = self.signature(request)?;
        mac::verify(&[signature], context.text_keys().map(|key| mac::sha256(key, parts)))
    }

    /// The bytes of the signature.
    ///
    /// # Errors
    /// [`Rejection::Signature`]: it is not there, or not in this form.
    pub(super) fn signature(&self, request: &InboundRequest<'_>) -> Result<Vec<u8>, Rejection> {
        let text = request.required(self.header)?.strip_prefix(self.prefix);
        text.and_then(|text| self.spelling.read(text)).ok_or_else(|| {
            let form = format!("{}<{}>", self.prefix, self.spelling.name());
            let fault = format!("is not a signature of the form {form}");
            Rejection::header(self.header, &fault)
        })
    }
    /// With the signature of a draft, over the body and what is signed before and after it.
    pub(super) fn sign(
        &self,
        made: Imitation,
        draft: &Draft<'_>,
        context: &Context<'_>,
        [before, after]: [&str; 2],
    ) -> Imitation {
        made.signed(draft, self.header, |made| {
            let signed = [before.as_bytes(), &made.body, after.as_bytes()];
            let mac = mac::sha256(context.signing_key(), &signed);
            format!("{}{}", self.prefix, self.spelling.write(&mac))
        })
    }
}
