//! What receiving fetches: whole, over TLS, bounded, and never from where no request may go.

use std::time::Duration;

use bytes::Bytes;
use everhook_engine::EngineSettings;
use everhook_engine::http::{HttpSender, Resolver};
use everhook_lab::tls::{ALWAYS, Authority};
use everhook_lab::{Lab, Reply, Step};
use rustls::RootCertStore;

use crate::client::{Client, PATIENCE, SHORT, behind, lab};

const BYTES_MAX: usize = 1_000;

/// A fetcher that may reach these addresses, and a lab that it trusts.
async fn fetcher(allowed: &[&str], reply: Reply) -> (HttpSender, Lab) {
    let authority = Authority::root("known").expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate()).expect("a root");
    let client = Client::guarded(allowed, Resolver::system());
    let sender = client.sender.with_roots(roots).expect("TLS");
    let identity = authority.certify(&["localhost"], ALWAYS).expect("names");
    (sender, behind(identity.door().expect("a key that fits"), reply).await)
}

async fn fetch(sender: &HttpSender, lab: &Lab, timeout: Duration) -> Result<Bytes, String> {
    let url = format!("https://localhost:{}/cert.pem?x=1", lab.address().port());
    sender.fetch(&url, BYTES_MAX, timeout).await.map_err(|why| why.to_string())
}

/// What is fetched from a lab that replies so.
async fn check(reply: Reply, expected: Result<&str, &str>) {
    let (sender, lab) = fetcher(&["127.0.0.0/8"], reply.clone()).await;
    let timeout = if reply_hangs(expected) { SHORT } else { PATIENCE };
    let fetched = fetch(&sender, &lab, timeout).await;
    let expected = expected.map(|text| Bytes::from(text.to_owned())).map_err(str::to_owned);
    assert_eq!(fetched, expected);
}

fn reply_hangs(expected: Result<&str, &str>) -> bool {
    expected.is_err_and(|detail| detail.contains("within"))
}

#[tokio::test]
async fn the_whole_body_of_a_2xx_answer_and_nothing_else() {
    let (full, over) = ("c".repeat(BYTES_MAX), "c".repeat(BYTES_MAX + 1));
    let moved = [("location", "https://localhost/other")];
    check(Reply::answer(200, &[], &full), Ok(&full)).await;
    check(Reply::answer(200, &[], ""), Ok("")).await;
    check(Reply::answer(200, &[], &over), Err("the answer is larger than 1000 bytes")).await;
    check(Reply::answer(302, &moved, "gone"), Err("the answer was 302")).await;
    check(Reply::answer(404, &[], "gone"), Err("the answer was 404")).await;
    let begun = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
    check(Reply::raw(begun).then(Step::Close), Err("the answer was cut off")).await;
    let hanging = Reply::raw(begun).then(Step::Hold);
    check(hanging, Err("the answer did not end within 300 ms")).await;
    let silent = Reply::nothing().then(Step::Hold);
    check(silent, Err("no status line and headers came within 300 ms")).await;
}

#[tokio::test]
async fn it_is_a_get_that_says_who_asks() {
    let (sender, lab) = fetcher(&["127.0.0.0/8"], Reply::answer(200, &[], "ok")).await;
    fetch(&sender, &lab, PATIENCE).await.expect("fetched");
    let request = lab.record().requests.remove(0);
    assert_eq!((request.method(), request.target()), ("GET", "/cert.pem?x=1"));
    assert_eq!(request.header("host"), Some(&*format!("localhost:{}", lab.address().port())));
    let user_agent = EngineSettings::default().user_agent;
    assert_eq!(request.header("user-agent"), user_agent.to_str().ok());
    assert!(request.body.is_empty());
}

#[tokio::test]
async fn what_is_not_trusted_or_not_allowed_is_not_asked() {
    let (sender, lab) = fetcher(&[], Reply::answer(200, &[], "ok")).await;
    let blocked = fetch(&sender, &lab, PATIENCE).await.expect_err("a loopback address");
    assert!(blocked.contains("leads to a loopback address"), "{blocked}");
    let stranger = Client::new().sender;
    let untrusted = fetch(&stranger, &lab, PATIENCE).await.expect_err("an unknown issuer");
    assert!(untrusted.contains("issuer is unknown"), "{untrusted}");
    assert_eq!(lab.record().request_count, 0);
    let plain = self::lab(Reply::answer(200, &[], "ok")).await;
    let url = format!("http://localhost:{}/", plain.address().port());
    let refused = stranger.fetch(&url, BYTES_MAX, PATIENCE).await.expect_err("no TLS");
    assert!(refused.to_string().contains("https"), "{refused}");
    assert_eq!(plain.record().connections, 0);
}
