//! What goes out, when, and what is recorded of it.

use std::time::Duration;

use everhook_domain::attempt::{ErrorClass, Trigger};
use everhook_domain::delivery::{CancelReason, Dead, DeadReason, State};
use everhook_domain::endpoint::{EndpointVerb, Part};
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::header::{CustomHeaders, HeaderPrefix};
use everhook_domain::secret::Secret;
use everhook_domain::signature::{self, Signed};
use everhook_domain::time::Timestamp;
use everhook_engine::EngineSettings;
use everhook_store::Act;

use crate::world::{BEGIN, Sent, World, answers};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Whether a request is signed with this secret.
pub(crate) fn verifies(sent: &Sent, secret: [u8; 32]) -> bool {
    let headers = Signed {
        id: sent.header("webhook-id"),
        timestamp: sent.header("webhook-timestamp"),
        signature: sent.header("webhook-signature"),
    };
    let secret = Secret::from_bytes(secret);
    let at = BEGIN + sent.at;
    signature::verify([&secret].into_iter(), headers, &sent.body, at, SECOND).is_ok()
}

async fn world() -> World {
    World::new(EngineSettings::default()).await
}

#[tokio::test(start_paused = true)]
async fn an_event_goes_out_at_once_signed_and_is_recorded() {
    let world = world().await;
    world.endpoint("a").await;
    let event = world.publish("a").await;
    world.pass(Duration::from_millis(10)).await;
    let log = world.network.log();
    assert_eq!(log.len(), 1);
    let sent = &log[0];
    let body = String::from_utf8(sent.body.to_vec()).expect("UTF-8");
    assert!(body.starts_with(&format!(r#"{{"id":"{event}","type":"a""#)), "{body}");
    assert!(body.ends_with(r#""data":{"b": 1.0, "a":2}}"#), "{body}");
    assert_eq!(sent.header("content-type"), "application/json");
    assert!(sent.header("user-agent").starts_with("Everhook/"));
    assert_eq!(sent.header("webhook-id"), event.to_string());
    assert_eq!(sent.header("x-message-webhook-id"), event.to_string());
    assert_eq!(sent.number(), 1);
    assert!(verifies(sent, [7; 32]));
    assert!(!verifies(sent, [8; 32]));
    assert_eq!(sent.headers.len(), 7, "{:?}", sent.headers);

    assert_eq!(world.state(event).await, State::Delivered);
    let attempts = world.attempts(event).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].number, attempts[0].trigger), (1, Trigger::Schedule));
    assert_eq!(attempts[0].report.url, "http://a/");
    assert_eq!(attempts[0].report.duration, Duration::from_millis(1));
    assert_eq!(attempts[0].report.started_at, BEGIN + sent.at);
}

#[tokio::test(start_paused = true)]
async fn case_007_seven_attempts_at_the_promised_offsets_then_dead() {
    let world = world().await;
    world.endpoint("a").await;
    world.network.set("a", answers(403, 20));
    let event = world.publish("a").await;
    world.pass(3 * DAY).await;
    let log = world.network.log();
    let offsets: Vec<_> = log.iter().map(|sent| (sent.at - log[0].at).as_millis()).collect();
    for (offset, promised) in offsets.iter().zip([0, 60, 300, 1_800, 7_200, 21_600, 86_400]) {
        let late = offset.checked_sub(promised * 1_000).expect("never earlier");
        assert!(late < 250, "{late} ms late at +{promised} s");
    }
    assert_eq!(offsets.len(), 7);
    assert_eq!(log.iter().map(Sent::number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    let State::Dead(Dead { reason, acknowledged_at: None }) = world.state(event).await else {
        panic!("not dead")
    };
    assert_eq!(reason, DeadReason::Exhausted);
    assert_eq!(world.attempts(event).await.len(), 7);
}

#[tokio::test(start_paused = true)]
async fn case_024_case_082_attempts_differ_in_number_timestamp_and_signature_only() {
    let world = world().await;
    world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    let event = world.publish("a").await;
    world.pass(90 * SECOND).await;
    world.network.set("a", answers(200, 1));
    world.pass(300 * SECOND).await;
    world.act(event.delivery(1), Act::Replay).await;
    world.pass(SECOND).await;
    let log = world.network.log();
    assert_eq!(log.len(), 4);
    for (index, sent) in log.iter().enumerate() {
        assert!(verifies(sent, [7; 32]));
        assert_eq!(sent.number() as usize, index + 1);
        assert_eq!(sent.body, log[0].body);
        assert_eq!(sent.header("webhook-id"), event.to_string());
        let timestamp = (BEGIN + sent.at).as_secs().to_string();
        assert_eq!(sent.header("webhook-timestamp"), timestamp);
    }
    let triggers: Vec<_> =
        world.attempts(event).await.iter().map(|attempt| attempt.trigger).collect();
    use Trigger::{Replay, Schedule};
    assert_eq!(triggers, [Schedule, Schedule, Schedule, Replay]);
}

#[tokio::test(start_paused = true)]
async fn case_078_a_new_event_does_not_wait_for_retries() {
    let world = world().await;
    world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    world.publish("a").await;
    world.pass(30 * SECOND).await;
    let before = world.now();
    let event = world.publish("a").await;
    world.pass(Duration::from_millis(300)).await;
    let attempts = world.attempts(event).await;
    assert_eq!(attempts.len(), 1);
    assert!(attempts[0].report.started_at.since(before) < Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn case_010_no_request_starts_after_a_disable_or_delete() {
    for (verb, reason) in [
        (EndpointVerb::Disable, CancelReason::EndpointDisabled),
        (EndpointVerb::Delete, CancelReason::EndpointDeleted),
    ] {
        let world = world().await;
        let endpoint = world.endpoint("a").await;
        world.network.set("a", answers(500, 5));
        let events = world.publish_all("a", 200).await;
        world.pass(Duration::from_millis(7)).await;
        world.act_on(endpoint, verb).await;
        let sent = world.network.log().len();
        assert!(sent > 0);
        world.pass(2 * DAY).await;
        assert_eq!(world.network.log().len(), sent, "nothing was sent afterwards");
        for event in events {
            assert_eq!(world.state(event).await, State::Cancelled(reason));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn case_073_a_pause_keeps_everything_and_a_cancel_takes_one() {
    let world = world().await;
    let endpoint = world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    let events = world.publish_all("a", 3).await;
    world.settle().await;
    world.settle().await;
    world.act_on(endpoint, EndpointVerb::Pause).await;
    world.act(events[1].delivery(1), Act::Cancel).await;
    let waiting = world.publish("a").await;
    world.pass(600 * SECOND).await;
    assert_eq!(world.network.log().len(), 3, "nothing goes to a paused endpoint");
    assert!(matches!(world.state(waiting).await, State::Due(_)));
    world.network.set("a", answers(200, 1));
    world.act_on(endpoint, EndpointVerb::Resume).await;
    world.pass(SECOND).await;
    for event in [events[0], events[2], waiting] {
        assert_eq!(world.state(event).await, State::Delivered);
    }
    assert_eq!(world.state(events[1]).await, State::Cancelled(CancelReason::Requested));
    assert_eq!(world.network.log().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn case_025_url_headers_and_secrets_are_read_when_an_attempt_starts() {
    let world = world().await;
    let endpoint = world
        .endpoint_with("a", |settings| {
            settings.url = EndpointUrl::parse("http://user:word@a/", false).expect("a URL");
        })
        .await;
    world.network.set("a", answers(500, 1));
    let event = world.publish("a").await;
    world.settle().await;
    world
        .update(endpoint, |settings| {
            let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            let pairs = [pair("Authorization", "Bearer x"), pair("X-Own", "1")];
            settings.headers =
                CustomHeaders::parse(pairs, &HeaderPrefix::default()).expect("legal");
            settings.url = EndpointUrl::parse("https://user:word@b:99/x", false).expect("a URL");
        })
        .await;
    world.rotate(endpoint, Secret::from_bytes([9; 32]), DAY).await;
    world.pass(301 * SECOND).await;
    world.pass(DAY).await;
    let log = world.network.log();
    assert_eq!(log[0].header("authorization"), "Basic dXNlcjp3b3Jk");
    assert!(verifies(&log[0], [7; 32]) && !verifies(&log[0], [9; 32]));
    assert_eq!(log[1].host, "b:99");
    assert_eq!(log[1].header("authorization"), "Bearer x");
    assert_eq!(log[1].header("x-own"), "1");
    assert!(verifies(&log[1], [7; 32]) && verifies(&log[1], [9; 32]), "both during the overlap");
    assert!(log[1].header("webhook-signature").contains(' '));
    let urls: Vec<_> =
        world.attempts(event).await.into_iter().map(|attempt| attempt.report.url).collect();
    assert_eq!(urls, ["http://a/", "https://b:99/x"]);
}

#[tokio::test(start_paused = true)]
async fn case_068_a_stored_header_with_a_line_feed_fails_its_own_delivery_only() {
    let mut world = world().await;
    world.endpoint("a").await;
    let broken = world.endpoint("b").await;
    world
        .crash_and(|database| {
            let line_feed = r#"UPDATE endpoints SET settings = replace(settings,
                '"headers":{}', '"headers":{"x-a":"hunter2\nx-b: c"}') WHERE seq = 2"#;
            assert_eq!(database.execute(line_feed, []), Ok(1));
        })
        .await;
    let (good, failed) = (world.publish("a").await, world.publish("b").await);
    world.pass(301 * SECOND).await;
    assert_eq!(world.state(good).await, State::Delivered);
    assert!(world.network.log().iter().all(|sent| sent.host == "a"), "no request is made");
    let attempts = world.attempts(failed).await;
    let first = attempts[0].report.started_at;
    let starts = attempts.iter().map(|attempt| attempt.report.started_at.since(first).as_secs());
    assert_eq!(starts.collect::<Vec<_>>(), [0, 60, 300]);
    for attempt in &attempts {
        let report = &attempt.report;
        let error = report.outcome.error.as_ref().expect("a failure");
        assert_eq!((error.class, report.url.as_str()), (ErrorClass::Configuration, "http://b/"));
        assert!(error.detail.contains("'x-a'") && !error.detail.contains("hunter2"), "{error:?}");
    }
    world
        .update(broken, |settings| {
            settings.headers = CustomHeaders::default();
            settings.unusable.repaired(Part::Headers);
        })
        .await;
    world.pass(1_500 * SECOND).await;
    assert_eq!(world.state(failed).await, State::Delivered, "at its next time, after the repair");
}

#[tokio::test(start_paused = true)]
async fn case_075_a_timeout_is_recorded_as_a_failure() {
    let world = world().await;
    world.endpoint("a").await;
    world.network.set("a", answers(0, 0));
    let event = world.publish("a").await;
    world.pass(11 * SECOND).await;
    let attempts = world.attempts(event).await;
    let error = attempts[0].report.outcome.error.as_ref().expect("a failure");
    assert_eq!(error.class, ErrorClass::Timeout);
    assert_eq!(attempts[0].report.duration, 10 * SECOND);
    let State::Due(due) = world.state(event).await else { panic!("not due") };
    assert_eq!(due.at, attempts[0].report.started_at + 60 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn settled_2_a_clock_that_is_set_freezes_nothing_and_repeats_nothing() {
    let world = world().await;
    world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    world.publish("a").await;
    world.settle().await;
    world.clock.step_wall(-3_600_000);
    world.pass(61 * SECOND).await;
    assert_eq!(world.network.log().len(), 2, "set back an hour: the retry came on time");
    let signed: i64 = world.network.log()[1].header("webhook-timestamp").parse().expect("seconds");
    let wall = Timestamp::from_millis((BEGIN + world.network.log()[1].at).as_millis() - 3_600_000);
    assert_eq!(signed, wall.as_secs(), "signed with the wall's time");
    world.clock.step_wall(3_600_000 + 7_200_000);
    world.pass(61 * SECOND).await;
    assert_eq!(world.network.log().len(), 3, "set forward two hours: one attempt, within a minute");
}

#[tokio::test(start_paused = true)]
async fn what_peers_fail_14_idle_is_asleep() {
    let world = world().await;
    world.endpoint("a").await;
    world.publish("a").await;
    world.pass(SECOND).await;
    let readings = || world.clock.readings.load(std::sync::atomic::Ordering::SeqCst);
    let before = readings();
    world.pass(DAY).await;
    assert_eq!(readings(), before, "a day without work wakes nobody");
    assert_eq!(world.store.claims.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_gives_the_delivery_back_and_rests() {
    let world = world().await;
    world.endpoint("a").await;
    world.network.panics.store(1, std::sync::atomic::Ordering::SeqCst);
    let event = world.publish("a").await;
    world.pass(Duration::from_millis(4_900)).await;
    let tries = world.network.log().len();
    assert!((4..=6).contains(&tries), "one a second, not a loop: {tries}");
    world.network.panics.store(0, std::sync::atomic::Ordering::SeqCst);
    world.pass(2 * SECOND).await;
    assert_eq!(world.state(event).await, State::Delivered);
    assert_eq!(world.attempts(event).await.len(), 1);
}
