//! `Retry-After` in all its forms, as it is shown. What it moves is the domain's to decide.

use std::time::Duration;

use everhook_domain::retry_after::WAIT_MAX;
use everhook_lab::Reply;

use crate::client::{Client, lab};

async fn shown(status: u16, values: &[&str]) -> Option<Duration> {
    let headers: Vec<_> = values.iter().map(|value| ("Retry-After", *value)).collect();
    let lab = lab(Reply::answer(status, &headers, "")).await;
    Client::new().get_answer(&lab.url("/")).await.retry_after
}

#[tokio::test]
async fn what_peers_fail_9_every_form_is_read_and_garbage_counts_as_absent() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (values, expected) in [
        (&["120"][..], seconds(120)),
        (&["0"], seconds(0)),
        (&["99999999999999999999999"], Some(WAIT_MAX)),
        (&["Sun, 06 Nov 1994 08:49:37 GMT"], seconds(0)),
        (&["Sunday, 06-Nov-94 08:49:37 GMT"], seconds(0)),
        (&["Sun Nov  6 08:49:37 1994"], seconds(0)),
        (&["Fri, 31 Dec 9999 23:59:59 GMT"], Some(WAIT_MAX)),
        (&["-5"], None),
        (&["1.5"], None),
        (&["soon"], None),
        (&["zw\u{f6}lf"], None),
        (&["60, 120"], None),
        (&[""], None),
        (&[], None),
        // Of several the longest that can be read: all of them were asked for.
        (&["10", "60", "soon"], seconds(60)),
        (&["soon", "5"], seconds(5)),
        (&["Sun, 06 Nov 1994 08:49:37 GMT", "7"], seconds(7)),
    ] {
        assert_eq!(shown(429, values).await, expected, "{values:?}");
    }
}

#[tokio::test]
async fn what_peers_fail_9_it_is_shown_whatever_the_status() {
    for status in [200, 202, 301, 404, 410, 413, 429, 500, 503] {
        assert_eq!(shown(status, &["30"]).await, Some(Duration::from_secs(30)), "{status}");
    }
}
