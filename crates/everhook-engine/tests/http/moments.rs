//! A kept connection that ends at every moment of the next request, in clear text and behind TLS.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

use crate::client::{Client, delivered, failed, in_paused_time};
use crate::secure::{self, Authority, Server, localhost, read_request, url};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// More than any buffer on the way holds.
const BODY_BYTES: usize = 8 << 20;

/// How much of the request has been read when the connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    AmidHead,
    AmidBody,
    AfterAll,
    AfterOneByteOfAnAnswer,
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Close,
    Reset,
    /// With the last word that TLS has for it.
    Notify,
    /// Amid a record of TLS.
    Truncate,
}

/// The connection under whatever speaks on it.
trait Tcp: AsyncRead + AsyncWrite + Unpin + Send {
    fn tcp(&mut self) -> &mut TcpStream;
}

impl Tcp for TcpStream {
    fn tcp(&mut self) -> &mut TcpStream {
        self
    }
}

impl Tcp for TlsStream<TcpStream> {
    fn tcp(&mut self) -> &mut TcpStream {
        self.get_mut().0
    }
}

async fn answer<S: Tcp>(stream: &mut S) {
    stream.write_all(OK).await.expect("a client");
    stream.flush().await.expect("a client");
}

/// The first connection answers one request and ends in the second; the others answer all.
async fn serve<S: Tcp>(number: usize, mut stream: S, moment: Moment, end: End) {
    if number > 0 {
        while read_request(&mut stream).await.is_some() {
            answer(&mut stream).await;
        }
        return;
    }
    read_request(&mut stream).await.expect("a request");
    answer(&mut stream).await;
    match moment {
        Moment::AmidHead => drop(stream.read_exact(&mut [0; 10]).await),
        Moment::AmidBody => drop(stream.read_exact(&mut [0; 10_000]).await),
        Moment::AfterAll | Moment::AfterOneByteOfAnAnswer => drop(read_request(&mut stream).await),
    }
    if moment == Moment::AfterOneByteOfAnAnswer {
        stream.write_all(&OK[..1]).await.expect("a client");
        stream.flush().await.expect("a client");
    }
    match end {
        End::Close => {}
        End::Reset => stream.tcp().set_zero_linger().expect("a socket"),
        End::Notify => drop(stream.shutdown().await),
        End::Truncate => {
            let begun = [0x17, 3, 3, 1, 0, 1, 2, 3];
            stream.tcp().write_all(&begun).await.expect("a client");
        }
    }
}

async fn check(client: Client, server: Server, target: String, case: (Moment, End)) {
    assert!(!client.get_answer(&target).await.resent);
    let outcome = client.post(&target, &vec![b' '; BODY_BYTES]).await;
    let heard = case.0 == Moment::AfterOneByteOfAnAnswer;
    assert_eq!(outcome.resent, !heard, "{case:?}: {:?}", outcome.error);
    if heard {
        failed(&outcome, ErrorClass::Reset);
    } else {
        delivered(&outcome);
    }
    assert_eq!(server.connections(), if heard { 1 } else { 2 }, "{case:?}");
}

const MOMENTS: [Moment; 3] = [Moment::AmidHead, Moment::AmidBody, Moment::AfterAll];

#[tokio::test]
async fn case_016_a_connection_that_ends_amid_a_request_is_replaced_once() {
    for moment in MOMENTS {
        for end in [End::Close, End::Reset] {
            let server = Server::run(move |number, stream| serve(number, stream, moment, end));
            let server = server.await;
            let target = format!("http://{}/", server.address);
            check(Client::new(), server, target, (moment, end)).await;
        }
    }
}

#[tokio::test]
async fn case_016_behind_tls_it_is_the_same_with_or_without_a_last_word() {
    let authority = Authority::new("trusted");
    for moment in MOMENTS {
        for end in [End::Close, End::Reset, End::Notify, End::Truncate] {
            let script = move |number, stream| serve(number, stream, moment, end);
            let server = secure::run(localhost(&authority, &[]), script).await;
            let target = url(&server);
            check(authority.client(), server, target, (moment, end)).await;
        }
    }
}

#[tokio::test]
async fn case_016_after_one_byte_of_an_answer_nothing_is_sent_again() {
    let authority = Authority::new("trusted");
    let moment = Moment::AfterOneByteOfAnAnswer;
    let server = Server::run(move |number, stream| serve(number, stream, moment, End::Close)).await;
    let target = format!("http://{}/", server.address);
    check(Client::new(), server, target, (moment, End::Close)).await;
    let script = move |number, stream| serve(number, stream, moment, End::Notify);
    let server = secure::run(localhost(&authority, &[]), script).await;
    let target = url(&server);
    check(authority.client(), server, target, (moment, End::Notify)).await;
}

#[tokio::test(start_paused = true)]
async fn case_016_deliveries_spaced_just_around_a_servers_keep_alive_all_arrive() {
    for keep_ms in [1_000, 5_000_u64] {
        for spacing_ms in [keep_ms - 40, keep_ms - 20, keep_ms, keep_ms + 20, keep_ms + 40] {
            let keep = Duration::from_millis(keep_ms);
            let server = Server::run(move |_, mut stream| async move {
                while let Ok(Some(_)) = tokio::time::timeout(keep, read_request(&mut stream)).await
                {
                    answer(&mut stream).await;
                }
            })
            .await;
            let client = Client::new();
            let target = format!("http://{}/", server.address);
            let sending = async {
                for _ in 0..6 {
                    delivered(&client.get_answer(&target).await);
                    tokio::time::sleep(Duration::from_millis(spacing_ms)).await;
                }
            };
            in_paused_time(sending).await;
            let connections = server.connections();
            if keep_ms == 5_000 {
                assert_eq!(connections, 6, "none is kept as long as that");
            } else if spacing_ms < keep_ms {
                assert_eq!(connections, 1, "every one is used again");
            }
        }
    }
}

#[tokio::test]
async fn what_peers_fail_19_a_hundred_at_once_use_their_connections_again() {
    const ROUNDS: usize = 30;
    let server = Server::run(|_, mut stream| async move {
        while read_request(&mut stream).await.is_some() {
            answer(&mut stream).await;
        }
    })
    .await;
    let client = Arc::new(Client::new());
    let target = format!("http://{}/", server.address);
    for _ in 0..ROUNDS {
        let mut sending = JoinSet::new();
        for _ in 0..100 {
            let (client, target) = (Arc::clone(&client), target.clone());
            sending.spawn(async move { delivered(&client.get_answer(&target).await) });
        }
        sending.join_all().await;
    }
    let reused = 1.0 - server.connections() as f64 / (100 * ROUNDS) as f64;
    assert!(reused > 0.95, "{reused} of the requests");
}
