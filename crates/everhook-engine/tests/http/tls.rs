//! TLS: what is accepted, and what is said about the rest.

use everhook_domain::attempt::ErrorClass;
use everhook_engine::EngineSettings;
use everhook_engine::http::Resolver;
use everhook_lab::tls::{ALWAYS, Authority, Identity};
use everhook_lab::{Door, Lab, Reply, Step};
use rustls::RootCertStore;

use crate::client::{Client, behind, delivered, failed, lab};

const UNKNOWN_ISSUER: &str = "the certificate's issuer is unknown: it is self-signed, or the \
     server leaves out the certificates between its own and the root's";

fn root(name: &str) -> Authority {
    Authority::root(name).expect("a key")
}

/// A client that trusts this authority and no other.
fn trusting(authority: &Authority) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate()).expect("a root");
    let client = Client::with(EngineSettings::default(), Resolver::system());
    Client { sender: client.sender.with_roots(roots).expect("TLS"), ..client }
}

async fn showing(identity: Identity) -> Lab {
    behind(identity.door().expect("a key that fits"), Reply::status(204)).await
}

fn url(host: &str, lab: &Lab) -> String {
    format!("https://{host}:{}/", lab.address().port())
}

#[tokio::test]
async fn a_good_certificate_is_accepted_and_its_connection_used_again() {
    let authority = root("known");
    let client = trusting(&authority);
    let identity = authority.certify(&["localhost", "127.0.0.1"], ALWAYS).expect("names");
    let lab = showing(identity).await;
    for _ in 0..3 {
        delivered(&client.get_answer(&url("localhost", &lab)).await);
    }
    assert_eq!(lab.record().connections, 1);
    delivered(&client.get_answer(&url("127.0.0.1", &lab)).await);
}

#[tokio::test]
async fn case_076_a_chain_must_be_whole() {
    let authority = root("known");
    let between = authority.intermediate("between").expect("a key");
    let leaf = || between.certify(&["localhost"], ALWAYS).expect("names");
    let client = trusting(&authority);
    let whole = showing(leaf().and(&between)).await;
    delivered(&client.get_answer(&url("localhost", &whole)).await);
    let leaf_only = showing(leaf()).await;
    let outcome = client.get_answer(&url("localhost", &leaf_only)).await;
    assert_eq!(failed(&outcome, ErrorClass::Tls), UNKNOWN_ISSUER);
    assert_eq!(leaf_only.record().request_count, 0, "nothing was sent");
}

#[tokio::test]
async fn case_076_bad_certificates_fail_with_a_plain_reason_and_nothing_is_sent() {
    let authority = root("known");
    let names = &["localhost"][..];
    let signed = |by: &Authority, names, years| by.certify(names, years).expect("names");
    for (identity, text) in [
        (signed(&root("unknown"), names, ALWAYS), UNKNOWN_ISSUER),
        (Identity::self_signed(names, false).expect("names"), UNKNOWN_ISSUER),
        (
            Identity::self_signed(names, true).expect("names"),
            "the certificate is that of an authority, not of a server: it is self-signed, or the \
             server shows the wrong one of its chain",
        ),
        (signed(&authority, names, (2000, 2001)), "the certificate has expired"),
        (signed(&authority, names, (2100, 2101)), "the certificate is not valid yet"),
        (
            signed(&authority, &["other.example"], ALWAYS),
            "the certificate is for another host name",
        ),
    ] {
        let lab = showing(identity).await;
        let outcome = trusting(&authority).get_answer(&url("localhost", &lab)).await;
        assert_eq!(failed(&outcome, ErrorClass::Tls), text);
        assert!(outcome.response.is_none());
        assert_eq!(lab.record().request_count, 0);
    }
}

#[tokio::test]
async fn case_015_a_server_without_tls_fails_as_tls() {
    for greeting in [
        "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "220 mail.example.com ESMTP\r\n",
    ] {
        let lab = behind(Door::Slammed(Reply::raw(greeting)), Reply::nothing()).await;
        let outcome = Client::new().get_answer(&url("127.0.0.1", &lab)).await;
        let text = failed(&outcome, ErrorClass::Tls);
        assert_eq!(text, "the server does not speak TLS on this port (plain HTTP?)", "{greeting}");
    }
}

#[tokio::test]
async fn case_015_a_handshake_that_is_cut_off_fails_as_tls() {
    // The beginning of an answer to a hello.
    let begin = Reply::raw(&b"\x16\x03\x03\x00\x7a\x02\x00"[..]);
    for (reply, text) in [
        (Reply::nothing(), "the connection was closed during the TLS handshake"),
        (begin.clone(), "the connection was closed during the TLS handshake"),
        (Reply::nothing().then(Step::Reset), "the connection was reset during the TLS handshake"),
        (
            // A fatal alert: handshake failure (RFC 8446 §6).
            Reply::raw(&b"\x15\x03\x03\x00\x02\x02\x28"[..]),
            "the server refused the TLS connection with the alert 'HandshakeFailure' (a server \
             that asks for a client certificate does so as well)",
        ),
    ] {
        let lab = behind(Door::Slammed(reply), Reply::nothing()).await;
        let outcome = Client::new().get_answer(&url("127.0.0.1", &lab)).await;
        assert_eq!(failed(&outcome, ErrorClass::Tls), text);
    }
}

#[tokio::test]
async fn tls_on_a_port_of_plain_http_fails_plainly() {
    let identity = root("known").certify(&["localhost"], ALWAYS).expect("names");
    let secure = showing(identity).await;
    let outcome = Client::new().get_answer(&secure.url("/")).await;
    let error = outcome.error.expect("a failure");
    assert!([ErrorClass::Reset, ErrorClass::Protocol].contains(&error.class), "{error:?}");
    let plain = lab(Reply::status(200)).await;
    delivered(&Client::new().get_answer(&plain.url("/")).await);
}
