//! A name server on the loopback interface (RFC 1035 §4), as much of one as is needed to be wrong.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use everhook_engine::EngineSettings;
use everhook_engine::http::Resolver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use crate::client::Client;

const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;
/// Response codes (RFC 1035 §4.1.1).
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const REFUSED: u8 = 5;
const TTL_SECONDS: u8 = 60;

/// What is said to a question.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Says {
    /// Those of the family that was asked for.
    Addresses(&'static [&'static str]),
    /// Another name has the addresses.
    Alias(&'static str),
    NoSuchName,
    ServerFailure,
    Refused,
    /// An answer without records.
    Nothing,
    /// Something that is no answer.
    Garbage,
    Silence,
}

/// A question, and the how many-th it is, from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) nth: usize,
    pub(crate) name: &'a str,
    pub(crate) ipv6: bool,
    pub(crate) over_tcp: bool,
}

type Zone = dyn Fn(Question<'_>) -> Says + Send + Sync;

/// A running name server; its tasks end with it.
pub(crate) struct NameServer {
    address: SocketAddr,
    questions: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl NameServer {
    /// Says the same to everybody.
    pub(crate) async fn saying(says: Says) -> Self {
        Self::run(move |_| says, Duration::ZERO).await
    }

    /// Answers by UDP and TCP, each answer so late.
    pub(crate) async fn run(
        zone: impl Fn(Question<'_>) -> Says + Send + Sync + 'static,
        late: Duration,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let socket = UdpSocket::bind(address).await.expect("bind");
        let questions = Arc::new(AtomicUsize::new(0));
        let server = Server { zone: Arc::new(zone), late, questions: Arc::clone(&questions) };
        let mut tasks = JoinSet::new();
        tasks.spawn(server.clone().by_udp(socket));
        tasks.spawn(server.by_tcp(listener));
        Self { address, questions, _tasks: tasks }
    }

    /// How many questions came.
    pub(crate) fn questions(&self) -> usize {
        self.questions.load(SeqCst)
    }

    /// A resolver that knows nothing yet and asks here only.
    pub(crate) fn resolver(&self) -> Resolver {
        Resolver::with_servers(&[self.address])
    }

    /// A client with such a resolver, which may reach loopback addresses.
    pub(crate) fn client(&self) -> Client {
        Client::with(EngineSettings::default(), self.resolver())
    }
}

#[derive(Clone)]
struct Server {
    zone: Arc<Zone>,
    late: Duration,
    questions: Arc<AtomicUsize>,
}

impl Server {
    async fn by_udp(self, socket: UdpSocket) {
        let socket = Arc::new(socket);
        let mut answers = JoinSet::new();
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            let Some(answer) = self.answer(&packet[..length], false) else { continue };
            let (socket, late) = (Arc::clone(&socket), self.late);
            answers.spawn(async move {
                tokio::time::sleep(late).await;
                socket.send_to(&answer, from).await.ok();
            });
        }
    }

    async fn by_tcp(self, listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            while let Ok(length) = stream.read_u16().await {
                let mut packet = vec![0; usize::from(length)];
                stream.read_exact(&mut packet).await.expect("a question");
                let Some(answer) = self.answer(&packet, true) else { continue };
                let length = u16::try_from(answer.len()).expect("short");
                stream.write_u16(length).await.ok();
                stream.write_all(&answer).await.ok();
            }
        }
    }

    fn answer(&self, packet: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
        let name_end = 12 + packet[12..].iter().position(|byte| *byte == 0)?;
        let asked = u16::from_be_bytes([packet[name_end + 1], packet[name_end + 2]]);
        let name = read_name(&packet[12..name_end]);
        let nth = self.questions.fetch_add(1, SeqCst);
        let question = Question { nth, name: &name, ipv6: asked == TYPE_AAAA, over_tcp };
        let (code, records) = match (self.zone)(question) {
            Says::Silence => return None,
            Says::Garbage => return Some(b"what?".to_vec()),
            Says::Addresses(addresses) => {
                (0, addresses.iter().filter_map(|text| address(text, asked)).collect())
            }
            Says::Alias(other) => (0, vec![(TYPE_CNAME, write_name(other))]),
            Says::Nothing => (0, Vec::new()),
            Says::NoSuchName => (NO_SUCH_NAME, Vec::new()),
            Says::ServerFailure => (SERVER_FAILURE, Vec::new()),
            Says::Refused => (REFUSED, Vec::new()),
        };
        let question = &packet[12..name_end + 5];
        Some(message([packet[0], packet[1]], question, code, &records, over_tcp))
    }
}

fn message(
    id: [u8; 2],
    question: &[u8],
    code: u8,
    records: &[(u16, Vec<u8>)],
    over_tcp: bool,
) -> Vec<u8> {
    // More than fits into a packet without extensions goes by TCP (RFC 1035 §4.2.1).
    let truncated = !over_tcp && records.len() > 20;
    let records = if truncated { &[] } else { records };
    let flags = 0x81 | if truncated { 0x02 } else { 0 };
    let mut answer = id.to_vec();
    answer.extend_from_slice(&[flags, 0x80 | code, 0, 1, 0]);
    answer.push(u8::try_from(records.len()).expect("few"));
    answer.extend_from_slice(&[0, 0, 0, 0]);
    answer.extend_from_slice(question);
    for (kind, data) in records {
        answer.extend_from_slice(&[0xc0, 12]);
        answer.extend_from_slice(&kind.to_be_bytes());
        answer.extend_from_slice(&[0, 1, 0, 0, 0, TTL_SECONDS, 0]);
        answer.push(u8::try_from(data.len()).expect("short"));
        answer.extend_from_slice(data);
    }
    answer
}

fn address(text: &str, asked: u16) -> Option<(u16, Vec<u8>)> {
    match text.parse().expect("an address") {
        IpAddr::V4(v4) if asked == TYPE_A => Some((asked, v4.octets().to_vec())),
        IpAddr::V6(v6) if asked == TYPE_AAAA => Some((asked, v6.octets().to_vec())),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

fn read_name(mut labels: &[u8]) -> String {
    let mut name = String::new();
    while let Some((length, rest)) = labels.split_first() {
        let (label, rest) = rest.split_at(usize::from(*length));
        name += &format!("{}.", String::from_utf8_lossy(label).to_ascii_lowercase());
        labels = rest;
    }
    name.trim_end_matches('.').to_owned()
}

fn write_name(name: &str) -> Vec<u8> {
    let mut labels = Vec::new();
    for label in name.split('.') {
        labels.push(u8::try_from(label.len()).expect("short"));
        labels.extend_from_slice(label.as_bytes());
    }
    labels.push(0);
    labels
}
