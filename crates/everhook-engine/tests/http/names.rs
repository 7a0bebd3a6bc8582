//! Names that resolve in odd ways, or do not.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use everhook_lab::Reply;
use tokio::task::JoinSet;

use crate::client::{Client, PATIENCE, SHORT, delivered, failed, in_paused_time, lab};
use crate::name_server::{NameServer, Question, Says};

const NAME: &str = "http://hooks.example.com/";

/// More than fit into one packet.
const MANY: [&str; 24] = ["127.0.0.2"; 24];

#[tokio::test]
async fn case_077_names_that_do_not_resolve_fail_with_a_dns_reason() {
    for (says, text) in [
        (Says::NoSuchName, "the host's name does not exist"),
        (Says::Nothing, "the host's name has no address"),
        (Says::ServerFailure, "the name servers could not answer for the host's name (SERVFAIL)"),
        (Says::Refused, "the name servers refuse to answer for the host's name (REFUSED)"),
    ] {
        let names = NameServer::saying(says).await;
        let outcome = names.client().get_answer(NAME).await;
        assert_eq!(failed(&outcome, ErrorClass::Dns), text, "{says:?}");
        assert!(outcome.response.is_none());
    }
}

#[tokio::test]
async fn case_077_an_alias_that_leads_to_itself_ends() {
    let names = NameServer::run(
        |question| match question.name {
            "hooks.example.com" => Says::Alias("a.example.com"),
            "a.example.com" => Says::Alias("b.example.com"),
            _ => Says::Alias("a.example.com"),
        },
        Duration::ZERO,
    )
    .await;
    let outcome = names.client().get_answer(NAME).await;
    let text = failed(&outcome, ErrorClass::Dns);
    assert!(text.starts_with("the host's name "), "{text}");
    assert!(names.questions() < 100, "{} questions", names.questions());
}

#[tokio::test]
async fn an_alias_is_followed() {
    let lab = lab(Reply::status(204)).await;
    let names = NameServer::run(
        |question| match question.name {
            "hooks.example.com" => Says::Alias("lb.example.net"),
            "lb.example.net" => Says::Addresses(&["127.0.0.1"]),
            _ => Says::NoSuchName,
        },
        Duration::ZERO,
    )
    .await;
    let url = format!("http://hooks.example.com:{}/", lab.address().port());
    delivered(&names.client().get_answer(&url).await);
    let host = format!("hooks.example.com:{}", lab.address().port());
    assert_eq!(lab.record().requests[0].header("host"), Some(&*host), "the endpoint's own name");
}

#[tokio::test]
async fn an_answer_too_large_for_a_packet_is_fetched_by_tcp() {
    let lab = lab(Reply::status(204)).await;
    let names = NameServer::run(
        |question| match question.over_tcp {
            true => Says::Addresses(&["127.0.0.1"]),
            false => Says::Addresses(&MANY),
        },
        Duration::ZERO,
    )
    .await;
    let url = format!("http://hooks.example.com:{}/", lab.address().port());
    delivered(&names.client().get_answer(&url).await);
}

#[tokio::test]
async fn case_077_silence_fails_by_the_deadline_or_before() {
    let names = NameServer::saying(Says::Silence).await;
    let outcome = names.client().within(SHORT).get_answer(NAME).await;
    let text = failed(&outcome, ErrorClass::Dns);
    assert_eq!(text, "the host's name was not resolved within 300 ms");
}

#[tokio::test(start_paused = true)]
async fn case_077_a_silent_name_server_is_given_up_before_the_attempt() {
    for says in [Says::Silence, Says::Garbage] {
        let names = NameServer::saying(says).await;
        let client = names.client();
        let (outcome, took) = in_paused_time(client.get_answer(NAME)).await;
        let text = failed(&outcome, ErrorClass::Dns);
        assert_eq!(text, "no name server answered in time for the host's name", "{says:?}");
        assert!(took < PATIENCE, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_077_a_slow_name_server_costs_time_of_the_attempt_and_no_more() {
    let lab = lab(Reply::status(204)).await;
    let late = Duration::from_millis(1_500);
    let names = NameServer::run(|_| Says::Addresses(&["127.0.0.1"]), late).await;
    let url = format!("http://hooks.example.com:{}/", lab.address().port());
    let client = names.client();
    let (outcome, took) = in_paused_time(client.get_answer(&url)).await;
    delivered(&outcome);
    assert!((late..PATIENCE).contains(&took), "{took:?}");
    // The time that resolving took is not given back.
    let client = names.client().within(2 * late / 3);
    let outcome = in_paused_time(client.get_answer(&url)).await.0;
    let text = failed(&outcome, ErrorClass::Dns);
    assert_eq!(text, "the host's name was not resolved within 1 s");
}

#[tokio::test]
async fn a_name_is_asked_for_once_however_many_wait() {
    let lab = lab(Reply::status(204)).await;
    let names = NameServer::saying(Says::Addresses(&["127.0.0.1"])).await;
    let client = Arc::new(names.client());
    let url = format!("http://hooks.example.com:{}/", lab.address().port());
    let mut sending = JoinSet::new();
    for _ in 0..20 {
        let (client, url) = (Arc::clone(&client), url.clone());
        sending.spawn(async move { delivered(&client.get_answer(&url).await) });
    }
    sending.join_all().await;
    assert_eq!(names.questions(), 2, "A and AAAA");
    assert!(lab.record().connections > 1);
}

#[tokio::test]
async fn case_080_another_address_is_tried_when_one_does_not_lead_there() {
    let lab = lab(Reply::status(204)).await;
    let url = format!("http://hooks.example.com:{}/", lab.address().port());
    for addresses in [
        // Nothing listens on the others. The last is one of this machine by another family.
        &["127.0.0.2", "127.0.0.1"][..],
        &["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.1"],
        &["::1", "127.0.0.1"],
        &["127.0.0.2", "::ffff:127.0.0.1"],
        // Blocked here.
        &["fd00::1", "10.0.0.1", "127.0.0.1"],
    ] {
        let addresses: &'static [&'static str] = addresses;
        let names = NameServer::saying(Says::Addresses(addresses)).await;
        let allowed = ["127.0.0.0/8", "::1"];
        let client = Client::guarded(&allowed, names.resolver());
        delivered(&client.get_answer(&url).await);
    }
}

#[tokio::test]
async fn case_080_one_family_without_an_answer_does_not_hide_the_other() {
    let lab = lab(Reply::status(204)).await;
    let url = format!("http://hooks.example.com:{}/", lab.address().port());
    for wrong in [Says::Nothing, Says::ServerFailure, Says::NoSuchName] {
        let zone = move |question: Question<'_>| match question.ipv6 {
            true => wrong,
            false => Says::Addresses(&["127.0.0.1"]),
        };
        let names = NameServer::run(zone, Duration::ZERO).await;
        delivered(&names.client().get_answer(&url).await);
    }
}

#[tokio::test]
async fn localhost_is_this_machine_without_asking_anybody() {
    let lab = lab(Reply::status(204)).await;
    let names = NameServer::saying(Says::NoSuchName).await;
    let client = names.client();
    for host in ["localhost", "hooks.localhost"] {
        delivered(&client.get_answer(&format!("http://{host}:{}/", lab.address().port())).await);
    }
    assert_eq!(names.questions(), 0);
}
