//! The certificate that a request is signed with: one that the source pins, else the one at the URL
//! that the request names, on a host that the kind allows.

use rustls_pki_types::CertificateDer;
use url::Url;

use super::{CertificateUrl, Context, Rejection, public_key};

/// The longest URL that a request may name, in bytes: it is kept before the request is verified.
const URL_BYTES_MAX: usize = 2_048;

/// Certificates, each with those that lead from it to an authority.
pub(super) enum Signers {
    /// The source's secrets: its owner vouches for them.
    Pinned(Vec<Vec<CertificateDer<'static>>>),
    /// From the URL.
    Fetched(Vec<CertificateDer<'static>>),
}

/// Why a secret that must be a certificate is none, if so.
pub(super) fn fault(text: &str) -> Option<&'static str> {
    let detail = "must be a certificate in PEM, to trust it alone; without any the one that the \
                  provider serves is fetched";
    public_key::certificates(text.as_bytes()).is_none().then_some(detail)
}

/// The URL if it is `https`, names nothing but a host that is allowed, and a path, and is no longer
/// than any of a provider.
pub(super) fn url(text: &str, is_allowed: impl Fn(&str) -> bool) -> Option<(CertificateUrl, Url)> {
    let fits = |length: usize| length <= URL_BYTES_MAX;
    let url = Url::parse(fits(text.len()).then_some(text)?).ok()?;
    // Escapes may have made it longer.
    let plain = fits(url.as_str().len())
        && url.scheme() == "https"
        && url.port().is_none()
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none();
    let allowed = plain && url.host_str().is_some_and(is_allowed);
    // As it was read, so that whoever fetches it cannot read it in another way.
    allowed.then(|| (CertificateUrl::checked(url.as_str().to_owned()), url))
}

/// The certificates that may have signed.
///
/// # Errors
/// [`Rejection::CertificateNeeded`], or [`Rejection::Misconfigured`] if what was fetched is none.
pub(super) fn signers(context: &Context<'_>, wanted: CertificateUrl) -> Result<Signers, Rejection> {
    let secrets = &context.source.secrets;
    if !secrets.is_empty() {
        let read = secrets.iter().map(|secret| secret.expose().as_bytes());
        return Ok(Signers::Pinned(read.filter_map(public_key::certificates).collect()));
    }
    match context.certificate.filter(|(url, _)| **url == wanted) {
        None => Err(Rejection::CertificateNeeded(wanted)),
        Some((_, pem)) => match public_key::certificates(pem) {
            Some(chain) => Ok(Signers::Fetched(chain)),
            None => {
                let detail = "there is no certificate in PEM at the URL that the request names";
                Err(Rejection::Misconfigured(detail.to_owned()))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_are_kept_are_short() {
        let check = |path: &str, expected: bool| {
            let text = format!("https://a.test/{path}");
            assert_eq!(url(&text, |host| host == "a.test").is_some(), expected, "{}", text.len());
        };
        let rest = URL_BYTES_MAX - "https://a.test/".len();
        check(&"x".repeat(rest), true);
        check(&"x".repeat(rest + 1), false);
        check(&"x".repeat(1_000_000), false);
        check(&"\u{e4}".repeat(rest / 3), false);
    }
}
