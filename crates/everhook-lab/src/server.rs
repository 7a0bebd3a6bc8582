//! The server: takes connections, records what arrives, and does what the behaviour says.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use everhook_domain::time::Clock;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::reply::{Left, Reply};
use crate::request::{self, Request};
use crate::script::Behaviour;

/// The most requests that are kept; later ones are answered and counted.
pub const RECORDED_MAX: usize = 4_096;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;
/// What the system holds of bytes that the client has not read yet: little, so that a client that
/// reads little is seen to.
const SEND_BUFFER_BYTES: u32 = 64 * 1_024;

/// What a connection meets before its first request.
#[derive(Clone, Debug)]
pub enum Door {
    /// Nothing: HTTP in clear text.
    Open,
    /// A TLS handshake; a connection where it fails is closed.
    #[cfg(feature = "tls")]
    Tls(Arc<rustls::ServerConfig>),
    /// Nothing, but then no body is read: the reply comes right after the head of a request, which
    /// is recorded without a body. What the reply does not read stays unread, and the connection
    /// is reset.
    Impatient,
    /// These steps at once, without waiting for a request; then the connection is closed.
    Slammed(Reply),
}

/// What a lab has seen and done so far.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The first [`RECORDED_MAX`] requests, in the order in which their last byte was read.
    pub requests: Vec<Request>,
    /// All requests.
    pub request_count: usize,
    /// Connections that were accepted.
    pub connections: usize,
    /// How many of them have ended.
    pub ended: usize,
    /// Bytes that the system has taken to be sent.
    pub bytes_sent: usize,
}

/// A receiver on the loopback interface. Dropping it ends all its connections.
#[derive(Debug)]
pub struct Lab {
    address: SocketAddr,
    shared: Arc<Shared>,
    // Owns the connections.
    _tasks: JoinSet<()>,
}

struct Shared {
    door: Door,
    behaviour: Behaviour,
    record: watch::Sender<Record>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Lab {
    /// Starts on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(
        door: Door,
        behaviour: impl Into<Behaviour>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let record = watch::Sender::new(Record::default());
        let shared = Arc::new(Shared { door, behaviour: behaviour.into(), record, clock });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, _tasks: tasks })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL in clear text that leads here.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What it has seen and done so far.
    pub fn record(&self) -> Record {
        self.shared.record.borrow().clone()
    }

    /// Waits until this is so; gives what it has seen and done by then.
    pub async fn wait_for(&self, mut so: impl FnMut(&Record) -> bool) -> Record {
        let mut seen = self.shared.record.subscribe();
        let found = seen.wait_for(|record| so(record)).await;
        // The sender is ours, so the wait ends only one way.
        found.map(|record| record.clone()).unwrap_or_default()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // One that is gone before it was accepted is no reason to stop.
                let Ok((stream, _)) = accepted else { continue };
                let number = shared.record.borrow().connections;
                shared.record.send_modify(|record| record.connections += 1);
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    shared.meet(stream, number).await;
                    shared.record.send_modify(|record| record.ended += 1);
                });
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

impl Shared {
    async fn meet(&self, stream: TcpStream, number: usize) {
        let mut stream = BufReader::new(stream);
        let left = match &self.door {
            Door::Open | Door::Impatient => self.converse(&mut stream, number).await,
            Door::Slammed(reply) => {
                let reply = reply.clone().then(crate::Step::Close);
                reply.act(&mut stream, |bytes| self.count(bytes)).await
            }
            #[cfg(feature = "tls")]
            Door::Tls(config) => {
                let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(config));
                match acceptor.accept(stream.into_inner()).await {
                    Ok(secured) => {
                        let mut secured = BufReader::new(secured);
                        let left = self.converse(&mut secured, number).await;
                        stream = BufReader::new(secured.into_inner().into_inner().0);
                        left
                    }
                    Err(_refused) => return,
                }
            }
        };
        if left == Left::Broken {
            // Where that cannot be set, the client sees an end in order.
            stream.get_ref().set_zero_linger().ok();
        }
    }

    /// Answers requests until the connection has ended.
    async fn converse<S>(&self, stream: &mut BufReader<S>, connection: usize) -> Left
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        for nth in 0.. {
            let Some(head) = request::read_head(stream).await else { break };
            let impatient = matches!(self.door, Door::Impatient);
            let body = if impatient {
                Some(Bytes::new())
            } else {
                request::read_body(stream, &head).await
            };
            let Some(body) = body else { break };
            let request = Request { connection, nth, at: self.clock.monotonic(), head, body };
            let reply = self.behaviour.reply(&request);
            self.record.send_modify(|record| {
                record.request_count += 1;
                if record.requests.len() < RECORDED_MAX {
                    record.requests.push(request);
                }
            });
            let left = reply.act(stream, |bytes| self.count(bytes)).await;
            if impatient && left == Left::Open {
                return Left::Broken;
            }
            if left != Left::Open {
                return left;
            }
        }
        Left::Gone
    }

    fn count(&self, bytes: usize) {
        self.record.send_modify(|record| record.bytes_sent += bytes);
    }
}

#[cfg(test)]
mod tests {
    use everhook_domain::time::SystemClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Step;

    async fn lab(door: Door, behaviour: impl Into<Behaviour>) -> Lab {
        Lab::start(door, behaviour, Arc::new(SystemClock::start())).await.expect("a free port")
    }

    async fn client(lab: &Lab) -> TcpStream {
        TcpStream::connect(lab.address()).await.expect("it listens")
    }

    async fn answer_to(mut client: TcpStream) -> io::Result<String> {
        client.write_all(b"POST /x HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi").await?;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn requests_are_recorded_and_answered_in_turn() {
        let behaviour = Behaviour::by(|request| match request.nth {
            0 => Reply::status(204),
            _ => Reply::status(200).then(Step::Close),
        });
        let lab = lab(Door::Open, behaviour).await;
        let mut client = client(&lab).await;
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
        let answer = answer_to(client).await.expect("answers");
        let expected = "HTTP/1.1 204 \r\n\r\nHTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n";
        assert_eq!(answer, expected);
        let record = lab.wait_for(|record| record.ended == 1).await;
        assert_eq!((record.connections, record.request_count), (1, 2));
        assert_eq!(record.requests[1].body, "hi");
        assert_eq!(record.bytes_sent, expected.len());
    }

    #[tokio::test]
    async fn a_reset_and_a_slammed_door() {
        let broken = lab(Door::Open, Reply::raw("HTTP").then(Step::Reset)).await;
        let error = answer_to(client(&broken).await).await.expect_err("no end in order");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let slammed = lab(Door::Slammed(Reply::raw("no")), Reply::nothing()).await;
        assert_eq!(answer_to(client(&slammed).await).await.expect("an end"), "no");
        assert_eq!(slammed.record().request_count, 0);
    }
}
