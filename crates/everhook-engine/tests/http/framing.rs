//! Answers in odd form: what can be read is read, the rest is a protocol error that says so.

use everhook_domain::attempt::ErrorClass;
use everhook_lab::{Door, Reply, Step};

use crate::client::{Client, behind, delivered, failed, lab};

#[tokio::test]
async fn case_015_what_is_not_http_is_a_protocol_error() {
    for answer in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "220 mail.example.com ESMTP\r\n",
        "hello\r\n\r\n",
        // HTTP/0.9 had no status line.
        "<html><body>hello</body></html>\r\n",
        "\x15\x03\x01\x00\x02\x02\x46 and more than enough",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 99999 OK\r\n\r\n",
        "HTTP/1.1 20x OK\r\n\r\n",
        "HTTP/1.1 \r\n\r\n",
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        "{\"status\":200}\n\n",
    ] {
        let lab = lab(Reply::raw(answer).then(Step::Close)).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        let text = failed(&outcome, ErrorClass::Protocol);
        assert!(text.starts_with("the answer is not HTTP/1.1 ("), "{answer:?}: {text}");
        assert!(outcome.response.is_none());
    }
    // A server that speaks first is one of another protocol.
    let ssh = behind(Door::Slammed(Reply::raw("SSH-2.0-x\r\n")), Reply::nothing()).await;
    let error = Client::new().get_answer(&ssh.url("/")).await.error.expect("a failure");
    assert!([ErrorClass::Protocol, ErrorClass::Reset].contains(&error.class), "{error:?}");
}

#[tokio::test]
async fn what_peers_fail_8_many_header_lines_are_taken_up_to_a_limit_that_is_told() {
    let head = |lines: usize, value: &str| {
        let lines: String = (1..lines).map(|n| format!("x-{n}: {value}\r\n")).collect();
        Reply::raw(format!("HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\nok"))
    };
    for (lines, value) in [(101, "y"), (256, "y"), (60, &*"z".repeat(1_000))] {
        let lab = lab(head(lines, value)).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        assert_eq!(delivered(&outcome), (200, "ok".to_owned()), "{lines} lines");
        let headers = outcome.response.expect("an answer").headers;
        let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(bytes <= 8 * 1_024, "{bytes} bytes are kept of {lines} lines");
    }
    for (lines, value) in [(257, "y"), (1_000, "y"), (2, &*"z".repeat(128 * 1_024))] {
        let lab = lab(head(lines, value)).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        assert_eq!(
            failed(&outcome, ErrorClass::Protocol),
            "the head of the answer is too large: at most 256 header lines and 64 KiB are read"
        );
        lab.wait_for(|record| record.ended == 1).await;
    }
}

#[tokio::test]
async fn lengths_that_contradict_one_another_are_a_protocol_error() {
    for headers in [
        "content-length: 2\r\ncontent-length: 3\r\n",
        "content-length: -1\r\n",
        "content-length: 2x\r\n",
        "content-length: 99999999999999999999999\r\n",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}\r\nok");
        let lab = lab(Reply::raw(answer).then(Step::Close)).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        let text = failed(&outcome, ErrorClass::Protocol);
        assert!(text.contains("content-length"), "{headers}: {text}");
    }
    // The same length twice is a length, and chunks win over one (RFC 9112 §6.3).
    for (headers, body) in [
        ("content-length: 2\r\ncontent-length: 2\r\n", "ok"),
        ("content-length: 9\r\ntransfer-encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n"),
        ("transfer-encoding: chunked\r\ncontent-length: 1\r\n", "2\r\nok\r\n0\r\n\r\n"),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}\r\n{body}");
        let lab = lab(Reply::raw(answer).then(Step::Close)).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        assert_eq!(delivered(&outcome), (200, "ok".to_owned()), "{headers}");
    }
}

#[tokio::test]
async fn a_body_in_bad_form_does_not_take_a_success_back() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (head, body, kept) in [
        (chunked, "2\r\nok\r\nzz\r\nmore\r\n", "ok"),
        (chunked, "2\r\nokay\r\n", "ok"),
        (chunked, "ffffffffffffffffff\r\n", ""),
        (chunked, "not a chunk", ""),
        (chunked, "2\r\nok\r\n0\r\nbad trailer\r\n\r\n", "ok"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", "part", "part"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", "as it came", "as it came"),
    ] {
        let lab = lab(Reply::raw(head).send(body).then(Step::Close)).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        assert_eq!(delivered(&outcome), (200, kept.to_owned()), "{body:?}");
    }
}

#[tokio::test]
async fn what_follows_an_answer_is_never_taken_for_the_next_one() {
    let first = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    for more in [
        "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nsmuggled",
        "HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
        "longer than its length",
        "\r\n",
    ] {
        for together in [true, false] {
            // In one piece, or when the answer has been read already.
            let reply = if together {
                Reply::raw(format!("{first}{more}"))
            } else {
                Reply::raw(first).then(Step::Pause(std::time::Duration::from_millis(20))).send(more)
            };
            let lab = lab(reply).await;
            let client = Client::new();
            for _ in 0..2 {
                let outcome = client.get_answer(&lab.url("/")).await;
                assert_eq!(delivered(&outcome), (200, "ok".to_owned()), "{more:?}");
                let sent = first.len() + more.len();
                lab.wait_for(|record| record.bytes_sent == record.request_count * sent).await;
            }
            assert_eq!(lab.record().connections, 2, "{more:?}");
        }
    }
    // What never has a body has none, whatever is sent.
    let empty = lab(Reply::raw("HTTP/1.1 204 No\r\ncontent-length: 5\r\n\r\nhello")).await;
    let client = Client::new();
    for _ in 0..2 {
        assert_eq!(delivered(&client.get_answer(&empty.url("/")).await), (204, String::new()));
    }
    assert_eq!(empty.record().connections, 2);
}
