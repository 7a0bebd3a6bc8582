//! HTTP Basic credentials (RFC 7617), for senders that sign nothing.

use super::{InboundRequest, Rejection, mac};

/// Why a secret that must be credentials is none, if so.
pub(super) fn fault(text: &str) -> Option<&'static str> {
    let detail = "must be the user name and the password of the webhook's URL, as user:password";
    (!text.contains(':')).then_some(detail)
}

/// Verifies that the request has one of these credentials, each `user:password`.
///
/// # Errors
/// [`Rejection::Signature`].
pub(super) fn verify<'k>(
    request: &InboundRequest<'_>,
    credentials: impl Iterator<Item = &'k [u8]>,
) -> Result<(), Rejection> {
    let header = request.required("authorization")?;
    let sent = header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
    let sent = sent.and_then(|(_, text)| mac::from_base64(text.trim()));
    let sent = sent.ok_or_else(|| Rejection::header("authorization", "is not Basic"))?;
    mac::verify(&[sent], credentials)
        .map_err(|_| Rejection::Signature("the user name or the password is wrong".to_owned()))
}
