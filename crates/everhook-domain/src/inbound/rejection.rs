//! Why a request is not accepted.

use std::fmt;

/// Why a request is not accepted. Nothing of it is stored. The texts are for the log of the
/// source's owner: they hold neither secrets nor what was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The kind has no such method; these are those it has.
    #[error("this source takes {}", .allow.join(", "))]
    Method {
        /// The methods that the source takes.
        allow: &'static [&'static str],
    },
    /// It is not shown to be the provider's: the check that failed.
    #[error("{0}")]
    Signature(String),
    /// The signed timestamp is further from the time of arrival than is tolerated.
    #[error("the signed timestamp is {seconds} s {side}, more than is tolerated")]
    Stale {
        /// How far it is.
        seconds: u64,
        /// On which side: `old` or `ahead`.
        side: &'static str,
    },
    /// The source is not set up so that anything could be verified: ours to mend, so the provider
    /// must try again.
    #[error("{0}")]
    Misconfigured(String),
    /// The certificate at this URL is needed; judge again with it.
    #[error("the certificate that the request names is needed")]
    CertificateNeeded(CertificateUrl),
    /// There is no body, and the source is set to refuse that.
    #[error("the body is empty")]
    Empty,
    /// Decoded, the body is larger than the source takes.
    #[error("decoded, the body has more than {limit} bytes")]
    TooLarge {
        /// The most that it takes.
        limit: usize,
    },
    /// The body is in a content coding that is not known.
    #[error("the content coding is not one of gzip, deflate and identity")]
    UnknownCoding,
    /// The body is not what its content coding says.
    #[error("the body cannot be decoded as its Content-Encoding says")]
    BrokenCoding,
}

impl Rejection {
    /// A header that the signature needs is not there.
    pub(crate) fn missing(name: &str) -> Self {
        Self::header(name, "is missing")
    }

    /// Something is wrong with a header.
    pub(crate) fn header(name: &str, fault: &str) -> Self {
        Self::Signature(format!("the header {name} {fault}"))
    }

    /// No signature fits any secret.
    pub(crate) fn mismatch() -> Self {
        Self::Signature("no signature fits: another secret, or other bytes".to_owned())
    }

    /// There is nothing to verify with.
    pub(crate) fn no_secret() -> Self {
        Self::Misconfigured("the source has no secret: set one that the provider uses".to_owned())
    }
}

/// The URL of a certificate on a host that the kind allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateUrl(String);

impl CertificateUrl {
    /// A URL whose scheme and host were checked.
    pub(crate) const fn checked(url: String) -> Self {
        Self(url)
    }

    /// The URL as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CertificateUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
