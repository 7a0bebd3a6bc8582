use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Serves one connection after another: reads a request's head and answers with the next of the
/// texts; an empty one closes the connection instead. Returns the requests.
async fn serve(listener: TcpListener, answers: &[&str]) -> Vec<String> {
    let mut requests = Vec::new();
    for answer in answers {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"{}") {
            let mut buffer = [0; 1024];
            let read = stream.read(&mut buffer).await.expect("readable");
            request.extend_from_slice(&buffer[..read]);
        }
        requests.push(String::from_utf8(request).expect("text"));
        stream.write_all(answer.as_bytes()).await.expect("writable");
    }
    requests
}

async fn exchange(answers: &[&str]) -> (Result<Answer, Failure>, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = format!("http://{address}/base").parse().expect("legal");
    let client = Client::new(server, "secret\n").expect("legal");
    let call = Call::post("/api/v1/events", "{}").once("key-1").expect("legal");
    tokio::join!(client.send_until_answered(&call), serve(listener, answers))
}

const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 11\r\n\r\n{\"id\":\"e1\"}";

#[tokio::test]
async fn a_request_carries_token_and_key() {
    let (answer, requests) = exchange(&[ACCEPTED]).await;
    let answer = answer.expect("answered");
    assert_eq!(answer.accepted().expect("accepted")["id"], "e1");
    let request = requests[0].to_ascii_lowercase();
    assert!(request.starts_with("post /base/api/v1/events http/1.1\r\n"), "{request}");
    for header in ["authorization: bearer secret\r\n", "idempotency-key: key-1\r\n"] {
        assert!(request.contains(header), "{request}");
    }
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
    let (answer, requests) = exchange(&["", busy, ACCEPTED]).await;
    assert_eq!(answer.expect("answered").status, StatusCode::ACCEPTED);
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| *request == requests[0]));
}

#[tokio::test]
async fn an_unreachable_server_is_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let client = Client::new(format!("http://{address}").parse().expect("legal"), "t");
    let failure =
        client.expect("legal").send_until_answered(&Call::get("/")).await.expect_err("closed");
    assert_eq!(failure.exit, Exit::Unreachable);
    assert!(failure.message.contains("is the server running"), "{failure}");
}

#[tokio::test]
async fn a_server_without_tls_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let client = Client::new(format!("https://{address}").parse().expect("legal"), "t");
    let client = client.expect("legal");
    let call = Call::get("/");
    let plain = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("writable");
    };
    let (answer, ()) = tokio::join!(client.send(&call), plain);
    let error = answer.expect_err("not TLS").to_string();
    assert!(error.starts_with("no secure connection to https://127.0.0.1"), "{error}");
}

#[test]
fn problems_are_told_in_the_server_s_words() {
    let problem = |status, body: &'static str| {
        let body = Bytes::from_static(body.as_bytes());
        let answer = Answer { status, body, retry_after: None };
        answer.accepted().expect_err("refused").to_string()
    };
    let body = r#"{"title":"The request is invalid","detail":"1 error",
        "errors":[{"pointer":"/type","detail":"is reserved"}]}"#;
    for (status, body, expected) in [
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            body,
            "the server answered 422: The request is invalid: 1 error\n  /type: is reserved",
        ),
        (
            StatusCode::UNAUTHORIZED,
            "{}",
            "the server answered 401\n  set EVERHOOK_TOKEN to a token of this server",
        ),
        (StatusCode::BAD_GATEWAY, "<html>", "the server answered 502"),
    ] {
        assert_eq!(problem(status, body), expected);
    }
    assert!(problem(StatusCode::OK, "<html>").contains("is it an Everhook server?"));
}
