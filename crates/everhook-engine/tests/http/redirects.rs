//! A redirect is an answer. Nothing of ours goes where it points.

use everhook_domain::attempt::ErrorClass;
use everhook_lab::Reply;

use crate::client::{Client, delivered, failed, lab};

#[tokio::test]
async fn case_014_case_066_case_111_a_redirect_is_a_failure_and_is_not_followed() {
    let other = lab(Reply::status(200)).await;
    let client = Client::new();
    for status in [300, 301, 302, 303, 305, 307, 308] {
        for location in [
            other.url("/"),
            format!("//{}/x", other.address()),
            "/".to_owned(),
            "../x".to_owned(),
            "?x".to_owned(),
            String::new(),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            "http://[::1]/".to_owned(),
            "file:///etc/passwd".to_owned(),
            "javascript:alert(1)".to_owned(),
        ] {
            let lab = lab(Reply::answer(status, &[("location", &location)], "moved")).await;
            let outcome = client.get_answer(&lab.url("/")).await;
            assert_eq!(
                failed(&outcome, ErrorClass::Status),
                format!(
                    "the endpoint answered with status {status}, a redirect, which is never \
                         followed: change the endpoint's URL if it has moved"
                )
            );
            let response = outcome.response.expect("an answer");
            assert_eq!((response.status, &*response.body), (status, "moved"));
            assert!(response.headers.contains(&("location".to_owned(), location)));
            let record = lab.record();
            assert_eq!((record.connections, record.request_count), (1, 1), "{status}");
        }
    }
    assert_eq!(other.record().connections, 0, "the second host gets nothing at all");
}

#[tokio::test]
async fn case_014_without_a_location_with_several_and_in_a_loop() {
    for headers in [
        &[][..],
        &[("location", "/a"), ("location", "/b")],
        &[("refresh", "0; url=/"), ("location", "/")],
        &[("content-location", "/"), ("link", "</>; rel=canonical")],
    ] {
        let lab = lab(Reply::answer(302, headers, "")).await;
        failed(&Client::new().get_answer(&lab.url("/")).await, ErrorClass::Status);
        assert_eq!(lab.record().request_count, 1);
    }
    // A success is one whatever else it says.
    let lab = lab(Reply::answer(201, &[("location", "/new"), ("refresh", "0; url=/")], "")).await;
    delivered(&Client::new().get_answer(&lab.url("/")).await);
    assert_eq!(lab.record().request_count, 1);
}

#[tokio::test]
async fn an_answer_that_asks_for_another_protocol_is_a_failure() {
    for (status, header) in [(101, ("upgrade", "websocket")), (426, ("upgrade", "h2c"))] {
        let headers = [header, ("connection", "upgrade")];
        let lab = lab(Reply::answer(status, &headers, "")).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        let error = outcome.error.expect("a failure");
        let right = [ErrorClass::Status, ErrorClass::Protocol].contains(&error.class);
        assert!(right, "{}: {}", error.class.as_str(), error.detail);
        assert_eq!(lab.record().request_count, 1);
    }
}
