//! The certificate authorities of an endpoint's own: who may have signed its server's certificate.
//!
//! They are certificates, not keys, and so no secret; what else a PEM file can hold is refused, so
//! that no key is ever stored or shown with them.

use std::fmt;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::digest::Parts;

/// The longest text, in bytes.
pub const CA_BYTES_MAX: usize = 32 * 1_024;
/// The most certificates in one text.
pub const CA_COUNT_MAX: usize = 16;

/// Tells one set of certificates from another: SHA-256 over all of them, in order.
pub type Fingerprint = [u8; 32];

/// One to [`CA_COUNT_MAX`] certificates, each of which can be trusted as an authority. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq)]
pub struct CaCertificates(Arc<Inner>);

#[derive(PartialEq, Eq)]
struct Inner {
    pem: String,
    certificates: Vec<CertificateDer<'static>>,
    fingerprint: Fingerprint,
}

/// Why a text cannot be an endpoint's authorities. Never holds any of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCertificates {
    /// Too long; holds the length found.
    #[error("has {0} bytes: at most {CA_BYTES_MAX} are possible")]
    Length(usize),
    /// No certificate.
    #[error("holds no certificate: it must be PEM text, from -----BEGIN CERTIFICATE----- on")]
    None,
    /// A private key, which nobody but the server may have.
    #[error(
        "holds a private key: send certificates only, and make a new key, since this one has \
         been sent"
    )]
    PrivateKey,
    /// Another kind of PEM section.
    #[error("holds something that is no certificate: only CERTIFICATE sections may be in it")]
    Other,
    /// Too many; holds the number found.
    #[error("holds {0} certificates: at most {CA_COUNT_MAX} are possible")]
    Count(usize),
    /// Damaged on its way here; holds which one, from 1.
    #[error("certificate {0} is damaged: its PEM text cannot be decoded")]
    Damaged(usize),
    /// Not what it claims to be; holds which one, from 1.
    #[error("certificate {0} is no X.509 certificate")]
    NotX509(usize),
}

impl CaCertificates {
    /// Reads PEM text (RFC 7468). A text that is accepted here can be trusted later.
    ///
    /// # Errors
    /// [`InvalidCertificates`].
    pub fn parse(text: &str) -> Result<Self, InvalidCertificates> {
        if text.len() > CA_BYTES_MAX {
            return Err(InvalidCertificates::Length(text.len()));
        }
        if text.contains("PRIVATE KEY-----") {
            return Err(InvalidCertificates::PrivateKey);
        }
        let sections = text.matches("-----BEGIN ").count();
        if sections != text.matches("-----BEGIN CERTIFICATE-----").count() {
            return Err(InvalidCertificates::Other);
        }
        if sections > CA_COUNT_MAX {
            return Err(InvalidCertificates::Count(sections));
        }
        let mut certificates = Vec::with_capacity(sections);
        let mut hash = Parts::default();
        for (number, read) in (1..).zip(CertificateDer::pem_slice_iter(text.as_bytes())) {
            let certificate = read.map_err(|_| InvalidCertificates::Damaged(number))?;
            webpki::anchor_from_trusted_cert(&certificate)
                .map_err(|_| InvalidCertificates::NotX509(number))?;
            hash.part(&certificate);
            certificates.push(certificate);
        }
        if certificates.is_empty() {
            return Err(InvalidCertificates::None);
        }
        if certificates.len() < sections {
            return Err(InvalidCertificates::Damaged(certificates.len() + 1));
        }
        let fingerprint = hash.finish();
        Ok(Self(Arc::new(Inner { pem: text.to_owned(), certificates, fingerprint })))
    }

    /// The text as it was given.
    pub fn pem(&self) -> &str {
        &self.0.pem
    }

    /// The certificates, in the order of the text.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0.certificates
    }

    /// The same for the same certificates, whatever stands around them.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }
}

impl fmt::Debug for CaCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaCertificates({})", self.0.certificates.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A P-256 authority, made for these tests.
    const ONE: &str = include_str!("../tests/data/authority.pem");
    /// Another one.
    const TWO: &str = include_str!("../tests/data/other-authority.pem");

    fn check(text: &str, expected: Result<usize, InvalidCertificates>) {
        let read = CaCertificates::parse(text);
        assert_eq!(read.map(|read| read.certificates().len()), expected, "{text}");
    }

    #[test]
    fn certificates_and_nothing_else_are_read() {
        let both = format!("# ours\n{ONE}\nand theirs\r\n{TWO}");
        let key =
            format!("{ONE}-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----");
        let list = format!("{ONE}-----BEGIN X509 CRL-----\nAA==\n-----END X509 CRL-----\n");
        let wrong = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let cut = &TWO[..TWO.len() - 40];
        check(ONE, Ok(1));
        check(&ONE.replace('\n', "\r\n"), Ok(1));
        check(&both, Ok(2));
        check("", Err(InvalidCertificates::None));
        check("MIIB", Err(InvalidCertificates::None));
        check(&key, Err(InvalidCertificates::PrivateKey));
        check(&list, Err(InvalidCertificates::Other));
        check(wrong, Err(InvalidCertificates::NotX509(1)));
        check(&format!("{ONE}{wrong}"), Err(InvalidCertificates::NotX509(2)));
        check(&format!("{ONE}{cut}"), Err(InvalidCertificates::Damaged(2)));
        check(&ONE.replacen("MII", "M!!", 1), Err(InvalidCertificates::Damaged(1)));
        check(&ONE.repeat(CA_COUNT_MAX), Ok(CA_COUNT_MAX));
        check(&ONE.repeat(CA_COUNT_MAX + 1), Err(InvalidCertificates::Count(CA_COUNT_MAX + 1)));
        let long = " ".repeat(CA_BYTES_MAX + 1);
        check(&long, Err(InvalidCertificates::Length(CA_BYTES_MAX + 1)));
    }

    #[test]
    fn the_fingerprint_is_that_of_the_certificates() {
        let fingerprint =
            |text: &str| CaCertificates::parse(text).expect("certificates").fingerprint();
        assert_eq!(fingerprint(ONE), fingerprint(&format!("# a comment\r\n{ONE}\n")));
        assert_ne!(fingerprint(ONE), fingerprint(TWO));
        assert_ne!(fingerprint(ONE), fingerprint(&format!("{ONE}{TWO}")));
        assert_ne!(fingerprint(&format!("{ONE}{TWO}")), fingerprint(&format!("{TWO}{ONE}")));
    }

    #[test]
    fn the_text_is_kept_as_it_was_given() {
        let text = format!("# ours\n{ONE}");
        let read = CaCertificates::parse(&text).expect("certificates");
        assert_eq!(read.pem(), text);
        assert_eq!(format!("{read:?}"), "CaCertificates(1)");
    }
}
