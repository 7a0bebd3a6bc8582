//! What may not be reached gets no connection, whatever it is called and whenever it changes.

use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use everhook_lab::Reply;

use crate::client::{Client, delivered, failed, lab};
use crate::name_server::{NameServer, Says};

#[tokio::test]
async fn what_peers_fail_15_blocked_addresses_get_no_connection() {
    let lab = lab(Reply::answer(200, &[("x-secret", "inside")], "inside")).await;
    let port = lab.address().port();
    let names = NameServer::saying(Says::Addresses(&["127.0.0.1"])).await;
    let client = Client::guarded(&["192.0.2.1"], names.resolver());
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.0.0.1.",
        "１２７．０．０．１",
        "127。0。0。1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:7f00:0001]",
        "[::127.0.0.1]",
        "[::1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "0.0.0.0",
        "0",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "hooks.example.com",
    ] {
        let outcome = client.get_answer(&format!("http://{host}:{port}/")).await;
        let text = failed(&outcome, ErrorClass::Blocked);
        assert!(text.ends_with("; security.allow_targets can allow it"), "{host}: {text}");
        assert!(outcome.response.is_none(), "{host}: nothing of it is kept");
    }
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://10.0.0.1/",
        "http://[fe80::1]/",
        "http://255.255.255.255/",
    ] {
        failed(&client.get_answer(url).await, ErrorClass::Blocked);
    }
    assert_eq!(lab.record().connections, 0);
}

#[tokio::test]
async fn what_peers_fail_15_a_name_that_changes_its_mind_is_judged_anew() {
    let inside = lab(Reply::status(200)).await;
    let url = format!("http://hooks.example.com:{}/", inside.address().port());
    // Allowed addresses stand for public ones here: nothing listens there.
    let rebinding = NameServer::run(
        |question| match (question.ipv6, question.nth) {
            (true, _) => Says::Nothing,
            (false, 0 | 1) => Says::Addresses(&["127.0.0.9"]),
            (false, _) => Says::Addresses(&["127.0.0.1"]),
        },
        Duration::ZERO,
    )
    .await;
    let ask = async || Client::guarded(&["127.0.0.9"], rebinding.resolver()).get_answer(&url).await;
    failed(&ask().await, ErrorClass::Refused);
    for _ in 0..3 {
        let text = failed(&ask().await, ErrorClass::Blocked);
        assert!(text.starts_with("the endpoint leads to a loopback address;"), "{text}");
        assert!(!text.contains("127."), "what our name servers know stays with us: {text}");
    }
    assert_eq!(inside.record().connections, 0);
}

#[tokio::test]
async fn what_peers_fail_15_each_of_many_addresses_is_judged_also_from_the_cache() {
    let lab = lab(Reply::status(204)).await;
    let url = format!("http://hooks.example.com:{}/", lab.address().port());
    // The one that listens is not allowed; the allowed ones refuse.
    let addresses = &["127.0.0.9", "127.0.0.1", "::ffff:127.0.0.1", "127.0.0.8"];
    let names = NameServer::saying(Says::Addresses(addresses)).await;
    let client = Client::guarded(&["127.0.0.8/31"], names.resolver());
    for _ in 0..5 {
        failed(&client.get_answer(&url).await, ErrorClass::Refused);
    }
    assert_eq!(names.questions(), 2, "the rest was known");
    assert_eq!(lab.record().connections, 0);
}

#[tokio::test]
async fn case_110_the_allowed_address_is_used_and_the_blocked_one_skipped() {
    let lab = lab(Reply::status(204)).await;
    let url = format!("http://hooks.example.com:{}/", lab.address().port());
    let names = NameServer::saying(Says::Addresses(&["fe80::1", "127.0.0.1"])).await;
    delivered(&names.client().get_answer(&url).await);
    // Where no address is left, the reason is the first one's.
    let names = NameServer::saying(Says::Addresses(&["fe80::1", "10.0.0.1"])).await;
    let text = failed(&names.client().get_answer(&url).await, ErrorClass::Blocked);
    assert!(text.starts_with("the endpoint leads to a link-local address;"), "{text}");
}

#[tokio::test]
async fn what_peers_fail_15_where_a_name_cannot_be_resolved_nothing_is_connected_to() {
    for says in [Says::ServerFailure, Says::NoSuchName, Says::Nothing, Says::Refused] {
        let names = NameServer::saying(says).await;
        let client = Client::guarded(&["0.0.0.0/0", "::/0"], names.resolver());
        failed(&client.get_answer("http://hooks.example.com/").await, ErrorClass::Dns);
    }
}
