//! The Standard Webhooks signature (specification 1.0.0), symmetric scheme `v1`.
//!
//! Signed are the bytes `id.timestamp.body`, exactly as they are sent; the header holds one
//! `v1,<base64 of HMAC-SHA256>` per secret, separated by spaces, newest secret first. Verifying
//! works on the bytes as they arrived, before any of them is parsed.

use std::time::Duration;

use base64::Engine;
use hmac::Mac as _;
use http::{HeaderMap, HeaderValue, Method};

use crate::inbound::{Context, InboundRequest, Rejection, judge};
use crate::secret::{BASE64, Secret};
use crate::source::{InvalidSource, SourceInput, SourceSettings};
use crate::time::Timestamp;

/// What stands before the signature in an entry.
const VERSION: &str = "v1,";
/// Bytes of an HMAC-SHA256.
const MAC_BYTES: usize = 32;

/// The headers that a signature covers and is carried in, as they arrived.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// `webhook-id`.
    pub id: &'a str,
    /// `webhook-timestamp`.
    pub timestamp: &'a str,
    /// `webhook-signature`.
    pub signature: &'a str,
}

/// The value of `webhook-signature` for one attempt: an entry per secret, in their order.
pub fn sign<'a>(
    secrets: impl Iterator<Item = &'a Secret>,
    id: &str,
    timestamp_s: i64,
    body: &[u8],
) -> String {
    let timestamp = timestamp_s.to_string();
    let mut header = String::with_capacity(48);
    for secret in secrets {
        if !header.is_empty() {
            header.push(' ');
        }
        header.push_str(VERSION);
        BASE64.encode_string(mac(secret, id, &timestamp, body), &mut header);
    }
    header
}

/// Verifies what [`sign`] has made, as a source of the kind `standard_webhooks` with these secrets
/// would: it is its code that judges. `tolerance` counts in whole seconds.
///
/// # Errors
/// [`Rejection`] names the check that failed.
pub fn verify<'a>(
    secrets: impl Iterator<Item = &'a Secret>,
    signed: Signed<'_>,
    body: &[u8],
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), Rejection> {
    let mut headers = HeaderMap::with_capacity(3);
    for (name, text) in [
        ("webhook-id", signed.id),
        ("webhook-timestamp", signed.timestamp),
        ("webhook-signature", signed.signature),
    ] {
        let value = HeaderValue::from_str(text);
        headers.insert(name, value.map_err(|_| Rejection::header(name, "is not plain text"))?);
    }
    let source = SourceSettings::parse(SourceInput {
        name: "verify".to_owned(),
        kind: "standard_webhooks".to_owned(),
        secrets: secrets.map(Secret::expose).collect(),
        tolerance_s: Some(tolerance.as_secs()),
        ..SourceInput::default()
    });
    let unusable = |faults: Vec<InvalidSource>| {
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        Rejection::Misconfigured(faults.join("; "))
    };
    let source = source.map_err(unusable)?;
    let request = InboundRequest { method: &Method::POST, target: "/", headers: &headers, body };
    judge(&request, &Context { source: &source, now, certificate: None }).map(|_| ())
}

/// The MAC of `id.timestamp.body`. The timestamp is the text of the header, not a number.
fn mac(secret: &Secret, id: &str, timestamp: &str, body: &[u8]) -> [u8; MAC_BYTES] {
    let mut mac = secret.mac();
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The most entries of a header that are looked at.
    const ENTRIES_MAX: usize = 32;
    /// What is told of the checks.
    const ID: &str = "webhook-id is empty or has a '.' in it";
    const TIME: &str = "webhook-timestamp is not a number of whole seconds";
    const NO_SIGNATURE: &str = "no readable signature";
    const MISMATCH: &str = "no signature fits";

    const TOLERANCE: Duration = Duration::from_secs(300);

    /// A published vector: secret, id, seconds, body, signature.
    struct Vector(&'static str, &'static str, i64, &'static str, &'static str);

    /// From the JavaScript library of the Standard Webhooks repository.
    const FIRST: Vector = Vector(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        r#"{"test": 2432232314}"#,
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    );

    /// From the Rust library there.
    const SECOND: Vector = Vector(
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
        1_649_367_553,
        r#"{"email":"test@example.com","username":"test_user"}"#,
        "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
    );

    fn secret(text: &str) -> Secret {
        Secret::parse(text).expect("a secret")
    }

    /// A request that differs from the first vector in some of its parts.
    #[derive(Clone, Copy)]
    struct Request<'a> {
        headers: Signed<'a>,
        body: &'a [u8],
        late_s: i64,
    }

    const GOOD: Request<'static> = Request {
        headers: Signed { id: FIRST.1, timestamp: "1614265330", signature: FIRST.4 },
        body: FIRST.3.as_bytes(),
        late_s: 0,
    };

    fn signature(signature: &str) -> Request<'_> {
        Request { headers: Signed { signature, ..GOOD.headers }, ..GOOD }
    }

    fn timestamp(timestamp: &str) -> Request<'_> {
        Request { headers: Signed { timestamp, ..GOOD.headers }, ..GOOD }
    }

    fn id(id: &str) -> Request<'_> {
        Request { headers: Signed { id, ..GOOD.headers }, ..GOOD }
    }

    /// Verified is told as `()`, else the words that the rejection has to have.
    fn check(request: Request<'_>, expected: Result<(), &str>) {
        let now = Timestamp::from_millis((FIRST.2 + request.late_s) * 1_000);
        let secrets = [secret(SECOND.0), secret(FIRST.0)];
        let verified = verify(secrets.iter(), request.headers, request.body, now, TOLERANCE);
        let told = verified.as_ref().map_err(ToString::to_string);
        let fits = match (&told, expected) {
            (Ok(()), Ok(())) => true,
            (Err(told), Err(expected)) => told.contains(expected),
            (Ok(()), Err(_)) | (Err(_), Ok(())) => false,
        };
        assert!(fits, "{:?} at {:+}: {told:?}", request.headers, request.late_s);
    }

    #[test]
    fn published_vectors() {
        for Vector(key, id, at, body, signature) in [FIRST, SECOND] {
            let secret = secret(key);
            assert_eq!(sign([&secret].into_iter(), id, at, body.as_bytes()), signature);
            let timestamp = at.to_string();
            let headers = Signed { id, timestamp: &timestamp, signature };
            let now = Timestamp::from_millis(at * 1_000);
            let verified =
                verify([&secret].into_iter(), headers, body.as_bytes(), now, Duration::ZERO);
            assert_eq!(verified, Ok(()), "{id}");
        }
    }

    #[test]
    fn test_case_4_of_rfc_4231() {
        // §4.5: a key of 25 bytes, shorter than a block, and 50 bytes of data.
        let key: Vec<u8> = (1..=25).collect();
        let mut mac = secret(&BASE64.encode(key)).mac();
        mac.update(&[0xcd; 50]);
        let hex: String =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
    }

    #[test]
    fn case_025_each_live_secret_signs_newest_first() {
        let (new, old) = (secret(SECOND.0), secret(FIRST.0));
        let both = sign([&new, &old].into_iter(), FIRST.1, FIRST.2, FIRST.3.as_bytes());
        let (first, second) = both.split_once(' ').expect("two entries");
        assert_eq!(second, FIRST.4);
        assert!(first.starts_with("v1,") && first != second);
        let now = Timestamp::from_millis(FIRST.2 * 1_000);
        for known in [&new, &old] {
            let headers = Signed { signature: &both, ..GOOD.headers };
            assert_eq!(verify([known].into_iter(), headers, GOOD.body, now, TOLERANCE), Ok(()));
        }
    }

    #[test]
    fn case_030_any_known_entry_passes_and_unknown_ones_are_ignored() {
        let good = FIRST.4;
        let base64 = &good[3..];
        let bad = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=";
        let many = |before: usize| format!("{}{good}", format!("{bad} ").repeat(before));
        check(signature(good), Ok(()));
        check(signature(&format!("{bad} v2,{base64} {good}")), Ok(()));
        check(signature(&format!("{good} {bad} v2,X")), Ok(()));
        check(signature(&format!("  {bad}  {good} ")), Ok(()));
        check(signature(good.trim_end_matches('=')), Ok(()));
        check(signature(&format!("v1a,{base64} {good}")), Ok(()));
        check(signature(bad), Err(MISMATCH));
        check(signature(&format!("v2,{base64}")), Err(NO_SIGNATURE));
        check(signature(&format!("v1a,{base64}")), Err(MISMATCH));
        check(signature(&format!("V1,{base64}")), Err(NO_SIGNATURE));
        check(signature(&format!("v1={base64}")), Err(NO_SIGNATURE));
        check(signature(&format!("v1,{base64},{base64}")), Err(NO_SIGNATURE));
        check(signature(base64), Err(NO_SIGNATURE));
        check(signature(""), Err(NO_SIGNATURE));
        check(signature("   "), Err(NO_SIGNATURE));
        check(signature("v1,"), Err(MISMATCH));
        check(signature("v1,g0hM9SsE"), Err(MISMATCH));
        check(signature("v1,é"), Err("is not plain text"));
        check(signature(&many(ENTRIES_MAX - 1)), Ok(()));
        check(signature(&many(ENTRIES_MAX)), Err(MISMATCH));
        check(signature(&format!("{good} {}", many(199))), Ok(()));
    }

    #[test]
    fn the_tolerance_is_inclusive_on_both_sides() {
        for (late_s, expected) in
            [(300, Ok(())), (-300, Ok(())), (301, Err("301 s old")), (-301, Err("301 s ahead"))]
        {
            check(Request { late_s, ..GOOD }, expected);
        }
    }

    #[test]
    fn case_092_the_text_of_the_timestamp_is_what_is_signed() {
        check(timestamp("01614265330"), Err(MISMATCH));
        for odd in ["hello", "", "1614265330.0", "-1", "+1614265330", "1 614265330", "1e9"] {
            check(timestamp(odd), Err(TIME));
        }
        check(timestamp("99999999999999999999"), Err(TIME));
        check(timestamp("9223372036854775807"), Err(TIME));
    }

    #[test]
    fn case_027_other_bytes_for_the_same_json_do_not_verify() {
        for body in [r#"{"test":2432232314}"#, r#"{"test": 2432232314} "#, ""] {
            check(Request { body: body.as_bytes(), ..GOOD }, Err(MISMATCH));
        }
    }

    #[test]
    fn the_id_is_part_of_what_is_signed() {
        check(id("msg_other"), Err(MISMATCH));
        check(id(""), Err(ID));
        // The full stop could move between the id, the timestamp and the body.
        check(id("msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330"), Err(ID));
    }

    #[test]
    fn no_secret_verifies_nothing() {
        let now = Timestamp::from_millis(FIRST.2 * 1_000);
        let verified = verify([].into_iter(), GOOD.headers, GOOD.body, now, TOLERANCE);
        assert!(matches!(verified, Err(Rejection::Misconfigured(_))), "{verified:?}");
    }

    proptest! {
        #[test]
        fn case_028_whatever_is_signed_verifies_and_no_other_bytes_do(
            keys in prop::collection::vec(any::<[u8; 32]>(), 1..4),
            id in "[a-z0-9_]{1,40}",
            at in 0..=253_402_300_799_i64,
            body: Vec<u8>,
            flip: prop::sample::Index,
        ) {
            let secrets: Vec<_> = keys.into_iter().map(Secret::from_bytes).collect();
            let signature = sign(secrets.iter(), &id, at, &body);
            let timestamp = at.to_string();
            let headers = Signed { id: &id, timestamp: &timestamp, signature: &signature };
            let now = Timestamp::from_millis(at * 1_000);
            for secret in &secrets {
                let verified = verify([secret].into_iter(), headers, &body, now, Duration::ZERO);
                prop_assert_eq!(verified, Ok(()));
            }
            let mut other = body;
            match other.len() {
                0 => other.push(0),
                length => other[flip.index(length)] ^= 1,
            }
            let verified = verify(secrets.iter(), headers, &other, now, Duration::ZERO);
            prop_assert_eq!(verified, Err(Rejection::mismatch()));
        }

        #[test]
        fn no_header_is_too_strange(
            id in ".{0,20}",
            timestamp in ".{0,20}",
            signature in ".{0,99}",
        ) {
            let secret = Secret::from_bytes([1; 32]);
            let headers = Signed { id: &id, timestamp: &timestamp, signature: &signature };
            let now = Timestamp::from_millis(0);
            prop_assert!(verify([&secret].into_iter(), headers, b"", now, TOLERANCE).is_err());
        }
    }
}
