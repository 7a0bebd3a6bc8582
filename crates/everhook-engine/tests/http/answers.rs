//! What answers mean and what is kept of them.

use everhook_domain::attempt::ErrorClass;
use everhook_lab::{Reply, Step};

use crate::client::{Client, delivered, failed, lab};

#[tokio::test]
async fn case_013_every_2xx_is_a_success() {
    for (reply, expected) in [
        (Reply::answer(200, &[], "ok"), (200, "ok")),
        (Reply::status(201), (201, "")),
        (
            Reply::raw("HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n")
                .send("2\r\nok\r\n0\r\n\r\n"),
            (202, "ok"),
        ),
        (Reply::raw("HTTP/1.1 204 No Content\r\n\r\n"), (204, "")),
        (Reply::answer(206, &[], "x"), (206, "x")),
        (Reply::raw("HTTP/1.1 299 Fine\r\ncontent-length: 0\r\n\r\n"), (299, "")),
        (Reply::raw("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"), (200, "")),
        (
            Reply::raw("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end").then(Step::Close),
            (200, "to the end"),
        ),
        (Reply::raw("HTTP/1.0 200 OK\r\n\r\nto the end").then(Step::Close), (200, "to the end")),
        (Reply::raw("HTTP/1.0 204 OK\r\n\r\n").then(Step::Close), (204, "")),
        // What comes before an answer is none, however much of it (RFC 9110 §15.2).
        (Reply::status(100).send("HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n"), (200, "")),
        (
            Reply::raw("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".repeat(3))
                .send("HTTP/1.1 201 \r\ncontent-length: 2\r\n\r\nok"),
            (201, "ok"),
        ),
    ] {
        let lab = lab(reply.clone()).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        let (status, body) = delivered(&outcome);
        assert_eq!((status, &*body), expected, "{reply:?}");
        assert!(!outcome.response.expect("an answer").truncated, "{reply:?}");
        assert_eq!(lab.record().request_count, 1, "{reply:?}");
    }
}

#[tokio::test]
async fn case_007_case_074_case_075_case_084_other_statuses_are_failures_with_their_status() {
    for status in [304, 400, 401, 403, 404, 408, 410, 413, 421, 429, 499, 500, 503, 599, 600, 999] {
        let lab = lab(Reply::raw(format!("HTTP/1.1 {status} No\r\nconnection: close\r\n\r\nno"))
            .then(Step::Close))
        .await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        let detail = failed(&outcome, ErrorClass::Status);
        assert_eq!(detail, format!("the endpoint answered with status {status}"));
        let response = outcome.response.expect("an answer");
        // Not modified: never with a body.
        let body = if status == 304 { "" } else { "no" };
        assert_eq!((response.status, &*response.body), (status, body));
        assert_eq!(lab.record().request_count, 1, "one attempt, one request");
    }
}

#[tokio::test]
async fn case_070_markup_is_kept_as_it_came_and_the_reason_phrase_is_not() {
    let script = "<script>alert(1)</script>";
    let lab = lab(Reply::raw(format!(
        "HTTP/1.1 500 {script}\r\nx-{script}: y\r\nx-html: {script}\r\ncontent-length: 25\r\n\r\n\
         {script}"
    )))
    .await;
    let outcome = Client::new().get_answer(&lab.url("/")).await;
    let detail = failed(&outcome, ErrorClass::Status);
    assert_eq!(detail, "the endpoint answered with status 500", "nothing of theirs is in it");
    let response = outcome.response.expect("an answer");
    assert_eq!(response.body, script);
    let headers = [("x-html", script), ("content-length", "25")];
    let expected = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(response.headers, expected, "a line that is no header is left out");
}

#[tokio::test]
async fn case_070_bytes_that_are_not_text_are_escaped() {
    let head = b"HTTP/1.1 200 \xe9\r\nx-odd: \xe4<b>\r\nx-tab: a\tb\r\nbad header\r\n".to_vec();
    let body = b"content-length: 8\r\n\r\n\xc3\xbc\x00\x1b<i>\xff".to_vec();
    let lab = lab(Reply::raw(head).send(body)).await;
    let outcome = Client::new().get_answer(&lab.url("/")).await;
    assert_eq!(delivered(&outcome), (200, "ü\\x00\\x1b<i>\\xff".to_owned()));
    let headers = outcome.response.expect("an answer").headers;
    assert!(headers.contains(&("x-odd".to_owned(), "\\xe4<b>".to_owned())), "{headers:?}");
}

#[tokio::test]
async fn case_021_case_022_the_request_arrives_as_it_was_signed() {
    let lab = lab(Reply::status(204)).await;
    let body = "{\"data\":\"\\ud83d 🎉 e\u{301}\"}";
    let url = format!("http://user:pa%20ss@{}/a%2Fb c?q=1+2&r=%25", lab.address());
    delivered(&Client::new().post(&url, body.as_bytes()).await);
    let record = lab.record();
    let request = &record.requests[0];
    assert_eq!(request.body, body);
    assert_eq!(request.header("content-length"), Some(&*body.len().to_string()));
    let head = std::str::from_utf8(&request.head).expect("UTF-8");
    let first = format!("POST /a%2Fb%20c?q=1+2&r=%25 HTTP/1.1\r\nhost: {}\r\n", lab.address());
    assert!(head.starts_with(&first), "{head}");
    assert!(!head.contains("pa"), "credentials are the engine's to send: {head}");
}
