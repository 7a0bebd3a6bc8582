//! Signatures that a public key verifies: ECDSA on P-256 and RSA. Ed25519 has a module of its own.

use ring::signature::{RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer, TrustAnchor, UnixTime, alg_id,
};
use webpki::{EndEntityCert, KeyUsage, RawPublicKeyEntity};

use super::mac;
use crate::time::Timestamp;

/// RSA with PKCS#1 v1.5 (RFC 8017 §8.2), by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RsaHash {
    /// Broken where the signer signs what others choose; what signs with it nowadays still has no
    /// other default.
    Sha1,
    /// The usual one.
    Sha256,
}

/// An ECDSA key on P-256 from its SubjectPublicKeyInfo in base64, as providers show it; `None` if
/// the text is none.
pub(super) fn p256(text: &str) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let key = SubjectPublicKeyInfoDer::from(mac::from_base64(text)?);
    let entity = RawPublicKeyEntity::try_from(&key).ok()?;
    // The wrong algorithm is told apart from a signature that does not fit.
    let tried = entity.verify_signature(webpki::ring::ECDSA_P256_SHA256, b"", b"");
    matches!(tried, Err(webpki::Error::InvalidSignatureForPublicKey)).then_some(key)
}

/// Whether this ECDSA signature with SHA-256, in DER, was made by the private half of the key.
pub(super) fn p256_fits(
    key: &SubjectPublicKeyInfoDer<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let algorithm = webpki::ring::ECDSA_P256_SHA256;
    let entity = RawPublicKeyEntity::try_from(key);
    entity.is_ok_and(|entity| entity.verify_signature(algorithm, message, signature).is_ok())
}

/// The certificates in PEM text: the first is the signer's, the others lead from it to an
/// authority. `None` if there are none, or a damaged one.
pub(super) fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
    EndEntityCert::try_from(read.first()?).ok()?;
    Some(read)
}

/// Whether the signature was made by the private half of the key that the certificate is for.
pub(super) fn rsa_fits(
    certificate: &CertificateDer<'_>,
    hash: RsaHash,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let algorithm = match hash {
        RsaHash::Sha1 => &RsaSha1,
        RsaHash::Sha256 => webpki::ring::RSA_PKCS1_2048_8192_SHA256,
    };
    let entity = EndEntityCert::try_from(certificate);
    entity.is_ok_and(|entity| entity.verify_signature(algorithm, message, signature).is_ok())
}

/// Whether a public authority vouches at this time that the first certificate is for a host under
/// `domain` (RFC 5280 §6). Whether it was revoked is not asked.
pub(super) fn is_vouched_for(
    certificates: &[CertificateDer<'_>],
    domain: &str,
    roots: &[TrustAnchor<'_>],
    now: Timestamp,
) -> bool {
    let Some((first, others)) = certificates.split_first() else { return false };
    let Ok(entity) = EndEntityCert::try_from(first) else { return false };
    let seconds = u64::try_from(now.as_secs()).unwrap_or(0);
    let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    let usage = KeyUsage::server_auth();
    let path = entity.verify_for_usage(ALGORITHMS, roots, others, time, usage, None, None);
    path.is_ok() && entity.valid_dns_names().any(|name| is_under(name, domain))
}

/// Whether a host is a true subdomain of the domain, which is in lower case.
pub(super) fn is_under(host: &str, domain: &str) -> bool {
    let host = host.to_ascii_lowercase();
    host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// What certificates of public authorities are signed with.
const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    webpki::ring::ECDSA_P256_SHA256,
    webpki::ring::ECDSA_P256_SHA384,
    webpki::ring::ECDSA_P384_SHA256,
    webpki::ring::ECDSA_P384_SHA384,
    webpki::ring::RSA_PKCS1_2048_8192_SHA256,
    webpki::ring::RSA_PKCS1_2048_8192_SHA384,
    webpki::ring::RSA_PKCS1_2048_8192_SHA512,
];

/// RSA with SHA-1, which no certificate may be signed with.
#[derive(Debug)]
struct RsaSha1;

impl SignatureVerificationAlgorithm for RsaSha1 {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let algorithm = &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
        let key = UnparsedPublicKey::new(algorithm, public_key);
        key.verify(message, signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        // sha1WithRSAEncryption, RFC 8017 appendix A.2.4, with parameters NULL.
        AlgorithmIdentifier::from_slice(&[
            0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05, 0x05, 0x00,
        ])
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PublicKeyData,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn issued(names: &[&str]) -> CertificateParams {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        params
    }

    fn authority() -> CertificateParams {
        let mut params = issued(&[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    #[test]
    fn who_is_vouched_for() {
        let root = CertifiedIssuer::self_signed(authority(), KeyPair::generate().unwrap()).unwrap();
        let mut below = authority();
        below.distinguished_name.push(rcgen::DnType::CommonName, "below");
        let below = CertifiedIssuer::signed_by(below, KeyPair::generate().unwrap(), &root).unwrap();
        let key = KeyPair::generate().unwrap();
        let of = |names: &[&str]| issued(names).signed_by(&key, &below).unwrap().der().clone();
        let alone = issued(&["a.paypal.com"]).self_signed(&key).unwrap().der().clone();
        let (paypal, between) = (of(&["x.test", "A.b.PayPal.com"]), below.der().clone());
        let root_der = root.der().clone();
        let anchor = [webpki::anchor_from_trusted_cert(&root_der).unwrap()];
        let check = |chain: &[&CertificateDer<'_>], roots: &[TrustAnchor<'_>], now, vouched| {
            let chain: Vec<_> = chain.iter().map(|it| (*it).clone()).collect();
            assert_eq!(is_vouched_for(&chain, "paypal.com", roots, now), vouched);
        };
        let years = |years: u64| NOW + std::time::Duration::from_secs(years * 365 * 86_400);
        check(&[&paypal, &between], &anchor, NOW, true);
        check(&[&paypal, &between], &anchor, years(7), false);
        check(&[&paypal, &between], &anchor, Timestamp::from_millis(0), false);
        check(&[&paypal, &between], webpki_roots::TLS_SERVER_ROOTS, NOW, false);
        check(&[&paypal], &anchor, NOW, false);
        check(&[&between, &paypal], &anchor, NOW, false);
        check(&[&alone], &anchor, NOW, false);
        check(&[], &anchor, NOW, false);
        for other in ["paypal.com", "evilpaypal.com", "a.paypal.com.evil.test"] {
            check(&[&of(&[other]), &between], &anchor, NOW, false);
        }
    }

    #[test]
    fn hosts_under_a_domain() {
        for (host, expected) in [
            ("api.paypal.com", true),
            ("API.sandbox.PayPal.com", true),
            ("paypal.com", false),
            (".paypal.com", false),
            ("xpaypal.com", false),
            ("paypal.com.test", false),
            ("", false),
        ] {
            assert_eq!(is_under(host, "paypal.com"), expected, "{host}");
        }
    }

    #[test]
    fn keys_are_told_from_other_texts() {
        let key = KeyPair::generate().unwrap();
        let encoded = |der: &[u8]| base64::Engine::encode(&crate::secret::BASE64, der);
        let spki = key.subject_public_key_info();
        assert!(p256(&encoded(&spki)).is_some());
        let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        for text in [
            "",
            "not base64",
            "AAAA",
            &encoded(&spki[1..]),
            &encoded(&spki[..spki.len() - 1]),
            &encoded(&other.subject_public_key_info()),
            &format!("{}\n", encoded(&spki)),
        ] {
            assert!(p256(text).is_none(), "{text}");
        }
        let pem = |kind: &str, text: &str| {
            format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
        };
        let der = issued(&["a.test"]).self_signed(&key).unwrap().der().clone();
        let certificate = pem("CERTIFICATE", &encoded(&der));
        let count = |text: &str| certificates(text.as_bytes()).map(|found| found.len());
        assert_eq!(count(&certificate), Some(1));
        assert_eq!(count(&format!("{certificate}{certificate}")), Some(2));
        for text in [
            "",
            "AAAA",
            &pem("PUBLIC KEY", "AAAA"),
            &pem("CERTIFICATE", "AAAA"),
            "-----BEGIN CERTIFICATE-----\n",
        ] {
            assert_eq!(count(text), None, "{text}");
        }
    }
}
