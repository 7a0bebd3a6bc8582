//! Certificate authorities of an endpoint's own.

use everhook_domain::attempt::ErrorClass;
use rcgen::{CertificateParams, KeyPair};

use crate::client::{Client, delivered, failed};
use crate::secure::Authority;
use crate::secure::{ALWAYS, BOTH, KEEP, config, localhost, own, replying, url};

const UNKNOWN: &str = "the certificate's issuer is unknown: it is self-signed, or the server \
     leaves out the certificates between its own and the root's";

#[tokio::test]
async fn case_076_an_own_authority_is_trusted_where_it_is_named_and_only_there() {
    let authority = Authority::new("internal");
    let (server, _) = replying(localhost(&authority, &[]), KEEP).await;
    let mut client = Client::new();
    for _ in 0..2 {
        client.ca_certificates = None;
        let outcome = client.get_answer(&url(&server)).await;
        assert_eq!(failed(&outcome, ErrorClass::Tls), UNKNOWN);
        client.ca_certificates = Some(own(&[authority.0.der()]));
        delivered(&client.get_answer(&url(&server)).await);
    }
    assert_eq!(server.connections(), 3, "two refused, and one used twice");
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_where_it_is_named() {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
    let certificate = params.self_signed(&key).expect("a certificate").der().clone();
    let config = config((certificate.clone(), key), &[], rustls::ALL_VERSIONS);
    let (server, _) = replying(config, KEEP).await;
    let mut client = Client::new();
    failed(&client.get_answer(&url(&server)).await, ErrorClass::Tls);
    client.ca_certificates = Some(own(&[&certificate]));
    delivered(&client.get_answer(&url(&server)).await);
}

#[tokio::test]
async fn an_own_authority_stands_in_place_of_the_public_roots() {
    let public = Authority::new("public");
    let internal = Authority::new("internal");
    let (server, _) = replying(localhost(&public, &[]), KEEP).await;
    let mut client = public.client();
    delivered(&client.get_answer(&url(&server)).await);
    client.ca_certificates = Some(own(&[internal.0.der()]));
    let outcome = client.get_answer(&url(&server)).await;
    assert_eq!(failed(&outcome, ErrorClass::Tls), UNKNOWN);
    client.ca_certificates = Some(own(&[internal.0.der(), public.0.der()]));
    delivered(&client.get_answer(&url(&server)).await);
}

#[tokio::test]
async fn case_076_everything_else_is_still_checked_under_an_own_authority() {
    let authority = Authority::new("internal");
    for protocols in [&[][..], BOTH] {
        for (names, years, text) in [
            ("other.example", ALWAYS, "the certificate is for another host name"),
            ("localhost", (2000, 2001), "the certificate has expired"),
            ("localhost", (2100, 2101), "the certificate is not valid yet"),
        ] {
            let certificate = authority.certify(&[names], years);
            let config = config(certificate, protocols, rustls::ALL_VERSIONS);
            let (server, _) = replying(config, KEEP).await;
            let mut client = Client::new();
            client.ca_certificates = Some(own(&[authority.0.der()]));
            let outcome = client.get_answer(&url(&server)).await;
            assert_eq!(failed(&outcome, ErrorClass::Tls), text);
        }
    }
}

#[tokio::test]
async fn case_076_plain_reasons_are_the_same_where_http2_is_offered() {
    let authority = Authority::new("internal");
    let (server, _) = replying(localhost(&authority, BOTH), KEEP).await;
    let outcome = Client::new().get_answer(&url(&server)).await;
    assert_eq!(failed(&outcome, ErrorClass::Tls), UNKNOWN);
}

#[tokio::test]
async fn a_connection_made_under_one_trust_never_carries_a_request_under_another() {
    let authority = Authority::new("before");
    let replacement = Authority::new("after");
    let (server, _) = replying(localhost(&authority, &[]), KEEP).await;
    let mut client = Client::new();
    client.ca_certificates = Some(own(&[authority.0.der()]));
    delivered(&client.get_answer(&url(&server)).await);
    // The connection is still open, and nobody may use it.
    client.ca_certificates = Some(own(&[replacement.0.der()]));
    failed(&client.get_answer(&url(&server)).await, ErrorClass::Tls);
    client.ca_certificates = None;
    failed(&client.get_answer(&url(&server)).await, ErrorClass::Tls);
    client.ca_certificates = Some(own(&[authority.0.der()]));
    delivered(&client.get_answer(&url(&server)).await);
    assert_eq!(server.connections(), 3, "the first was used again by its own kind");
}

#[tokio::test]
async fn more_authorities_than_are_kept_still_work() {
    let authority = Authority::new("internal");
    let others: Vec<_> = (0..15).map(|n| Authority::new(&format!("other {n}"))).collect();
    let (server, _) = replying(localhost(&authority, &[]), KEEP).await;
    let mut client = Client::new();
    for n in 0..300 {
        // Every combination of the lowest nine is another set.
        let chosen = others.iter().enumerate().filter(|(bit, _)| n >> bit & 1 == 1);
        let set: Vec<_> = std::iter::once(authority.0.der())
            .chain(chosen.map(|(_, other)| other.0.der()))
            .collect();
        client.ca_certificates = Some(own(&set));
        delivered(&client.get_answer(&url(&server)).await);
    }
}
