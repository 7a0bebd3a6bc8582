//! Requests of others, handed on: whole, once, as they come, and with a true word about what was
//! sent.

use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::time::Clock;
use everhook_engine::http::{ForwardSettings, ForwardedBody, Forwarder, NotForwarded, Resolver};
use everhook_lab::tls::Authority;
use everhook_lab::{Behaviour, Door, Lab, Reply, Script, Step};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame};
use rustls::RootCertStore;
use tokio::sync::mpsc;

use crate::client::{PATIENCE, SHORT, TestClock, behind, in_paused_time, lab};

fn settings() -> ForwardSettings {
    ForwardSettings {
        connect_timeout: PATIENCE,
        silence_max: PATIENCE,
        idle_max: PATIENCE,
        idle_connections_max: 8,
    }
}

fn to(url: &str, settings: ForwardSettings) -> Forwarder {
    let clock: Arc<dyn Clock> = Arc::new(TestClock::start());
    let url = EndpointUrl::parse(url, false).expect("a URL");
    Forwarder::new(url, settings, Resolver::system(), clock).expect("TLS")
}

fn to_lab(lab: &Lab) -> Forwarder {
    to(&lab.url("/"), settings())
}

fn post(path: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::post(path).header("host", "a.test");
    request.body(Full::from(body.to_owned())).expect("legal")
}

type Answer = Response<ForwardedBody>;

async fn whole(answer: Answer) -> Result<(u16, String), Box<dyn Error + Send + Sync>> {
    let (head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok((head.status.as_u16(), String::from_utf8(body.to_vec())?))
}

async fn answered(forwarder: &Forwarder, request: Request<Full<Bytes>>) -> (u16, String) {
    whole(forwarder.forward(request).await.expect("an answer")).await.expect("a whole one")
}

/// A body whose pieces come when the test sends them.
struct Fed(mpsc::Receiver<Frame<Bytes>>);

impl Body for Fed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

#[tokio::test]
async fn a_request_goes_as_it_is_below_the_path_of_the_service() {
    let lab = lab(Reply::answer(201, &[("x-a", "1"), ("x-a", "2")], "done")).await;
    for (base, target, expected) in [
        ("/", "/orders?x=1", "/orders?x=1"),
        ("/base/", "/orders", "/base/orders"),
        ("/base", "/", "/base/"),
        ("/base", "*", "*"),
    ] {
        let forwarder = to(&lab.url(base), settings());
        let request = post(target, "{}");
        let answer = forwarder.forward(request).await.expect("an answer");
        let values: Vec<_> = answer.headers().get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert_eq!(whole(answer).await.expect("whole"), (201, "done".to_owned()));
        let record = lab.record();
        let arrived = record.requests.last().expect("it came");
        assert_eq!((arrived.method(), arrived.target()), ("POST", expected));
        assert_eq!((arrived.header("host"), &*arrived.body), (Some("a.test"), &b"{}"[..]));
    }
}

#[tokio::test]
async fn connections_are_used_again_when_their_answers_are_whole() {
    let lab = lab(Reply::answer(200, &[], "ok")).await;
    let forwarder = to_lab(&lab);
    for _ in 0..3 {
        answered(&forwarder, post("/", "")).await;
    }
    assert_eq!(lab.record().connections, 1);
    // One whose answer is not whole is taken; another one is opened.
    let open = forwarder.forward(post("/", "")).await.expect("an answer");
    answered(&forwarder, post("/", "")).await;
    assert_eq!(lab.record().connections, 2);
    drop(open);
    lab.wait_for(|record| record.ended == 1).await;

    let forgetful = to(&lab.url("/"), ForwardSettings { idle_max: Duration::ZERO, ..settings() });
    answered(&forgetful, post("/", "")).await;
    answered(&forgetful, post("/", "")).await;
    assert_eq!(lab.record().connections, 4);
}

#[tokio::test]
async fn what_cannot_be_reached_was_sent_nothing() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = gone.local_addr().expect("bound");
    drop(gone);
    let unreachable = |why: NotForwarded, begin: &str| {
        assert!(matches!(why, NotForwarded::Unsent(_)), "{why:?}");
        assert!(why.to_string().starts_with(begin), "{why}");
    };
    let forwarder = to(&format!("http://{address}/"), settings());
    let why = forwarder.forward(post("/", "{}")).await.expect_err("nobody listens");
    unreachable(why, "the connection was refused");

    let plain = behind(Door::Slammed(Reply::status(400)), Reply::nothing()).await;
    let forwarder = to(&format!("https://{}/", plain.address()), settings());
    let why = forwarder.forward(post("/", "{}")).await.expect_err("no TLS there");
    unreachable(why, "the server does not speak TLS on this port");

    let silent = behind(Door::Slammed(Reply::nothing().then(Step::Hold)), Reply::nothing()).await;
    let short = ForwardSettings { connect_timeout: SHORT, ..settings() };
    let forwarder = to(&format!("https://{}/", silent.address()), short);
    let why = forwarder.forward(post("/", "{}")).await.expect_err("it says nothing");
    unreachable(why, "the TLS handshake did not end within");
}

#[tokio::test]
async fn tls_is_checked_and_http_1_spoken() {
    let authority = Authority::root("a lab").expect("an authority");
    let identity = authority.certify(&["localhost"], (2000, 2100)).expect("an identity");
    let lab = behind(identity.door().expect("a door"), Reply::answer(200, &[], "safe")).await;
    let url = format!("https://localhost:{}/", lab.address().port());
    let why = to(&url, settings()).forward(post("/", "{}")).await.expect_err("nobody vouches");
    assert!(matches!(why, NotForwarded::Unsent(_)), "{why:?}");
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate()).expect("a root");
    let trusting = to(&url, settings()).with_roots(roots).expect("TLS");
    assert_eq!(answered(&trusting, post("/", "{}")).await, (200, "safe".to_owned()));
    assert!(lab.record().requests[0].head.ends_with(b"\r\n\r\n"));
}

#[tokio::test]
async fn case_037_what_breaks_after_the_first_byte_is_lost_and_not_sent_again() {
    let script = Script::otherwise(Reply::answer(200, &[], "ok"))
        .on("/reset", [Reply::nothing().then(Step::Reset)])
        .on("/closed", [Reply::nothing().then(Step::Close)])
        .on("/head", [Reply::raw("HTTP/1.1 200 OK\r\ncontent-le").then(Step::Reset)])
        .on("/nonsense", [Reply::raw("what?\r\n\r\n").then(Step::Close)])
        .on("/switch", [Reply::raw("HTTP/1.1 101 \r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")]);
    let lab = lab(script).await;
    let forwarder = to_lab(&lab);
    for (sent, path) in
        ["/reset", "/closed", "/head", "/nonsense", "/switch"].into_iter().enumerate()
    {
        // On a connection that was used before, which is no reason to send it again.
        answered(&forwarder, post("/", "")).await;
        let why = forwarder.forward(post(path, "{}")).await.expect_err(path);
        assert!(matches!(why, NotForwarded::Lost(_)), "{path}: {why:?}");
        let record = lab.record();
        assert_eq!((record.request_count, record.connections), (2 * sent + 2, sent + 1), "{path}");
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_replaced() {
    let behaviour = Behaviour::by(|request| match request.connection {
        0 => Reply::answer(200, &[], "first").then(Step::Close),
        _ => Reply::answer(200, &[], "second"),
    });
    let lab = lab(behaviour).await;
    let forwarder = to_lab(&lab);
    assert_eq!(answered(&forwarder, post("/", "a")).await.1, "first");
    lab.wait_for(|record| record.ended == 1).await;
    assert_eq!(answered(&forwarder, post("/", "b")).await.1, "second");
    assert_eq!(lab.record().request_count, 2);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_whole() {
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhal";
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhal";
    for reply in [
        Reply::raw(short).then(Step::Close),
        Reply::raw(chunked).then(Step::Reset),
        Reply::raw(chunked).then(Step::Close),
    ] {
        let lab = lab(reply).await;
        let answer = to_lab(&lab).forward(post("/", "{}")).await.expect("a head");
        whole(answer).await.expect_err("cut off");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_ends_the_wait_for_a_head_and_for_the_rest_of_a_body() {
    let quiet = ForwardSettings { silence_max: 10 * SHORT, ..settings() };
    let hanging = lab(Reply::nothing().then(Step::Hold)).await;
    let forwarder = to(&hanging.url("/"), quiet.clone());
    let began = in_paused_time(forwarder.forward(post("/", "{}"))).await;
    let silent = began.0.expect_err("nothing comes");
    assert_eq!(silent, NotForwarded::Silent(10 * SHORT));
    assert!(began.1 >= 10 * SHORT && began.1 < 11 * SHORT, "{:?}", began.1);
    hanging.wait_for(|record| record.ended == 1).await;

    let half = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhal";
    let stopping = lab(Reply::raw(half).then(Step::Hold)).await;
    let forwarder = to(&stopping.url("/"), quiet.clone());
    let read = async { whole(forwarder.forward(post("/", "{}")).await.expect("a head")).await };
    let (read, took) = in_paused_time(read).await;
    let why = read.expect_err("the rest is missing").to_string();
    assert_eq!(why, "the service stopped in the middle of its answer");
    assert!(took >= 10 * SHORT && took < 11 * SHORT, "{took:?}");
    stopping.wait_for(|record| record.ended == 1).await;

    // Whoever moves may take as long as it likes.
    let drip = Step::Drip("slowly".into(), 9 * SHORT);
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n";
    let dripping = lab(Reply::raw(head).then(drip)).await;
    let forwarder = to(&dripping.url("/"), quiet);
    let (read, _) = in_paused_time(answered(&forwarder, post("/", "{}"))).await;
    assert_eq!(read.1, "slowly");
}

#[tokio::test]
async fn bodies_stream_both_ways_with_their_trailers() {
    let echo = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
    let reply = Reply::raw(format!("{echo}3\r\none\r\n")).send("3\r\ntwo\r\n0\r\nx-sum: 7\r\n\r\n");
    // It answers after the head, before any of the body has come.
    let lab = behind(Door::Impatient, reply).await;
    let (feed, fed) = mpsc::channel(1);
    let request = Request::post("/").header("host", "a").header("trailer", "x-up");
    let request = request.body(Fed(fed)).expect("legal");
    let forwarder = to_lab(&lab);
    let mut answer = forwarder.forward(request).await.expect("a head");
    let body = answer.body_mut();
    let mut pieces = String::new();
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        match frame.expect("more").into_data() {
            Ok(data) => pieces += std::str::from_utf8(&data).expect("text"),
            Err(frame) => trailers = frame.into_trailers().expect("trailers"),
        }
    }
    assert_eq!((pieces.as_str(), &trailers["x-sum"]), ("onetwo", &"7".parse().expect("legal")));
    drop(feed);
}

#[tokio::test]
async fn a_body_without_a_length_goes_piece_by_piece() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address: SocketAddr = listener.local_addr().expect("bound");
    let forwarder = to(&format!("http://{address}/"), settings());
    let (feed, fed) = mpsc::channel(1);
    let request = Request::post("/").header("host", "a").header("trailer", "x-sum");
    let request = request.body(Fed(fed)).expect("legal");
    let service = async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut read = Vec::new();
        let mut until = async |end: &[u8]| {
            while !read.ends_with(end) {
                assert_ne!(stream.read_buf(&mut read).await.expect("more"), 0);
            }
        };
        until(b"transfer-encoding: chunked\r\n\r\n").await;
        feed.send(Frame::data("one".into())).await.expect("taken");
        until(b"\r\n3\r\none\r\n").await;
        feed.send(Frame::data("three".into())).await.expect("taken");
        until(b"5\r\nthree\r\n").await;
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "8".parse().expect("legal"));
        feed.send(Frame::trailers(trailers)).await.expect("taken");
        drop(feed);
        until(b"0\r\nx-sum: 8\r\n\r\n").await;
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("written");
    };
    let (answer, ()) = tokio::join!(forwarder.forward(request), service);
    assert_eq!(answer.expect("an answer").status(), 204);
}

#[tokio::test]
async fn heads_without_bodies_are_whole_at_once() {
    let script = Script::otherwise(Reply::status(200))
        .on("/head", [Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")])
        .on("/304", [Reply::raw("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n")])
        .on("/204", [Reply::status(204)]);
    let lab = lab(script).await;
    let forwarder = to_lab(&lab);
    for (method, path, status) in
        [(Method::HEAD, "/head", 200), (Method::GET, "/304", 304), (Method::DELETE, "/204", 204)]
    {
        let request = Request::builder().method(method).uri(path).header("host", "a");
        let request = request.body(Empty::<Bytes>::new()).expect("legal");
        let answer = forwarder.forward(request).await.expect("an answer");
        assert!(answer.body().is_end_stream());
        assert_eq!(whole(answer).await.expect("whole"), (status, String::new()));
    }
    assert_eq!(lab.record().connections, 1);
}

#[tokio::test]
async fn case_013_a_large_answer_waits_for_whoever_reads_it() {
    const BYTES: usize = 50 << 20;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n");
    let lab = lab(Reply::raw(head).send(vec![b'x'; BYTES])).await;
    let forwarder = to_lab(&lab);
    let mut answer = forwarder.forward(post("/", "{}")).await.expect("a head");
    // What the service gets rid of while nobody reads is what buffers hold.
    let first = answer.body_mut().frame().await.expect("more").expect("more");
    let mut read = first.data_ref().expect("data").len();
    let sent = lab.record().bytes_sent;
    assert!(sent < BYTES / 4, "{sent} bytes were taken");
    while let Some(frame) = answer.body_mut().frame().await {
        read += frame.expect("more").data_ref().expect("data").len();
    }
    assert_eq!(read, BYTES);
}
