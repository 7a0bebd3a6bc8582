//! TLS sessions that are resumed: where, and where not.

use rustls::HandshakeKind;
use rustls::crypto::ring::Ticketer;
use rustls::version::{TLS12, TLS13};

use crate::client::{Client, delivered};
use crate::secure::Authority;
use crate::secure::{ALWAYS, CLOSE, Seen, config, localhost, own, replying, url};

fn kinds(seen: &[Seen]) -> Vec<Option<HandshakeKind>> {
    seen.iter().map(|seen| seen.kind).collect()
}

const FULL: Option<HandshakeKind> = Some(HandshakeKind::Full);
const RESUMED: Option<HandshakeKind> = Some(HandshakeKind::Resumed);

#[tokio::test]
async fn the_second_connection_to_a_host_resumes_the_session_of_the_first() {
    let authority = Authority::new("trusted");
    for (version, tickets) in [(&TLS12, false), (&TLS12, true), (&TLS13, false), (&TLS13, true)] {
        let mut config = config(authority.certify(&["localhost"], ALWAYS), &[], &[version]);
        if tickets {
            config.ticketer = Ticketer::new().expect("a ticketer");
        }
        let (server, seen) = replying(config, CLOSE).await;
        let client = authority.client();
        for _ in 0..3 {
            delivered(&client.get_answer(&url(&server)).await);
        }
        let seen = seen.lock().expect("a lock").clone();
        assert_eq!(kinds(&seen), [FULL, RESUMED, RESUMED], "{version:?}, tickets: {tickets}");
    }
}

#[tokio::test]
async fn nothing_is_sent_before_the_handshake_has_ended() {
    let authority = Authority::new("trusted");
    let mut config = localhost(&authority, &[]);
    config.max_early_data_size = 16_384;
    let (server, seen) = replying(config, CLOSE).await;
    let client = authority.client();
    for _ in 0..2 {
        delivered(&client.get_answer(&url(&server)).await);
    }
    let seen = seen.lock().expect("a lock").clone();
    assert_eq!(kinds(&seen), [FULL, RESUMED]);
    assert!(!seen.iter().any(|seen| seen.early), "what is sent early can be replayed");
}

#[tokio::test]
async fn a_session_is_not_resumed_under_another_trust() {
    let authority = Authority::new("trusted");
    let other = Authority::new("other");
    let (server, seen) = replying(localhost(&authority, &[]), CLOSE).await;
    let public = authority.client();
    let with = |ca: &[&Authority]| {
        let ca: Vec<_> = ca.iter().map(|authority| authority.0.der()).collect();
        Some(own(&ca))
    };
    let mut client: Client = public;
    for (trust, expected) in [
        (None, FULL),
        (None, RESUMED),
        (with(&[&authority]), FULL),
        (with(&[&authority]), RESUMED),
        (with(&[&authority, &other]), FULL),
        (None, RESUMED),
        (with(&[&authority]), RESUMED),
    ] {
        client.ca_certificates = trust;
        delivered(&client.get_answer(&url(&server)).await);
        let last = seen.lock().expect("a lock").last().copied().expect("a handshake");
        assert_eq!(last.kind, expected);
    }
}
