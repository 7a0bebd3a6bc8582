//! Names, addresses and what may be connected to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use everhook_domain::attempt::ErrorClass;
use everhook_engine::EngineSettings;
use everhook_engine::http::Resolver;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use crate::server::{Client, SHORT, Server, delivered, failed};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;

/// What the name server says to every question.
#[derive(Clone, Copy)]
enum Says {
    Addresses(&'static [&'static str]),
    NoSuchName,
    Nothing,
    Silence,
}

/// A name server on the loopback interface (RFC 1035 §4), as much of one as is needed here.
struct NameServer {
    address: SocketAddr,
    questions: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl NameServer {
    async fn run(says: Says) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("bind");
        let address = socket.local_addr().expect("bound");
        let questions = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&questions);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut packet = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut packet).await {
                count.fetch_add(1, SeqCst);
                if let Some(answer) = answer(&packet[..length], says) {
                    socket.send_to(&answer, from).await.expect("a client");
                }
            }
        });
        Self { address, questions, _task: task }
    }

    fn client(&self) -> Client {
        Client::with(EngineSettings::default(), Resolver::with_servers(&[self.address]))
    }
}

fn answer(question: &[u8], says: Says) -> Option<Vec<u8>> {
    let addresses = match says {
        Says::Silence => return None,
        Says::Addresses(addresses) => addresses,
        Says::NoSuchName | Says::Nothing => &[],
    };
    let name_end = 12 + question[12..].iter().position(|byte| *byte == 0)?;
    let asked = u16::from_be_bytes([question[name_end + 1], question[name_end + 2]]);
    let records: Vec<_> = addresses
        .iter()
        .filter_map(|address| match address.parse().expect("an address") {
            IpAddr::V4(v4) if asked == TYPE_A => Some(v4.octets().to_vec()),
            IpAddr::V6(v6) if asked == TYPE_AAAA => Some(v6.octets().to_vec()),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        })
        .collect();
    let code = if matches!(says, Says::NoSuchName) { 3 } else { 0 };
    let mut answer = question[..2].to_vec();
    answer.extend_from_slice(&[0x81, 0x80 | code, 0, 1, 0]);
    answer.push(u8::try_from(records.len()).expect("few"));
    answer.extend_from_slice(&[0, 0, 0, 0]);
    answer.extend_from_slice(&question[12..name_end + 5]);
    for record in records {
        answer.extend_from_slice(&[0xc0, 12]);
        answer.extend_from_slice(&asked.to_be_bytes());
        answer.extend_from_slice(&[0, 1, 0, 0, 0, 60, 0]);
        answer.push(u8::try_from(record.len()).expect("short"));
        answer.extend_from_slice(&record);
    }
    Some(answer)
}

#[tokio::test]
async fn case_077_names_that_do_not_resolve_fail_with_a_dns_reason() {
    for (says, text) in [
        (Says::NoSuchName, "the host's name does not exist"),
        (Says::Nothing, "the host's name has no address"),
    ] {
        let names = NameServer::run(says).await;
        let outcome = names.client().get_answer("http://hooks.example.com/").await;
        assert_eq!(failed(&outcome, ErrorClass::Dns), text);
    }
    let names = NameServer::run(Says::Silence).await;
    let client = names.client().within(SHORT);
    let outcome = client.get_answer("http://hooks.example.com/").await;
    let text = failed(&outcome, ErrorClass::Dns);
    assert_eq!(text, "the host's name was not resolved within 300 ms");
}

#[tokio::test]
async fn case_077_a_silent_name_server_is_given_up_before_the_attempt() {
    let names = NameServer::run(Says::Silence).await;
    let outcome = names.client().get_answer("http://hooks.example.com/").await;
    let text = failed(&outcome, ErrorClass::Dns);
    assert!(!text.contains("within"), "the name server's time is up first: {text}");
}

#[tokio::test]
async fn a_name_is_asked_for_once_however_many_wait() {
    let server = Server::replying(OK).await;
    let names = NameServer::run(Says::Addresses(&["127.0.0.1"])).await;
    let client = Arc::new(names.client());
    let url = format!("http://hooks.example.com:{}/", server.address.port());
    let mut sending = JoinSet::new();
    for _ in 0..20 {
        let (client, url) = (Arc::clone(&client), url.clone());
        sending.spawn(async move { delivered(&client.get_answer(&url).await) });
    }
    sending.join_all().await;
    assert_eq!(names.questions.load(SeqCst), 2, "A and AAAA");
    assert!(server.connections() > 1);
}

#[tokio::test]
async fn case_080_the_other_family_is_tried_when_one_does_not_lead_there() {
    let server = Server::replying(OK).await;
    // Discard-only addresses: allowed here, and nowhere connected to.
    let names = NameServer::run(Says::Addresses(&["100::1", "127.0.0.1"])).await;
    let resolver = Resolver::with_servers(&[names.address]);
    let settings = EngineSettings::default();
    let client = Client::guarded("127.0.0.0/8", settings, resolver);
    let url = format!("http://hooks.example.com:{}/", server.address.port());
    delivered(&client.get_answer(&url).await);
}

#[tokio::test]
async fn what_peers_fail_15_blocked_addresses_get_no_connection() {
    let server = Server::replying(OK).await;
    let port = server.address.port();
    let names = NameServer::run(Says::Addresses(&["127.0.0.1"])).await;
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://hooks.example.com:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://a.localhost:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://10.0.0.1/".to_owned(),
    ] {
        let resolver = Resolver::with_servers(&[names.address]);
        let client = Client::guarded("192.0.2.1", EngineSettings::default(), resolver);
        let text = failed(&client.get_answer(&url).await, ErrorClass::Blocked);
        assert!(text.contains("security.allow_targets"), "{text}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn localhost_is_this_machine_without_asking_anybody() {
    let server = Server::replying(OK).await;
    let names = NameServer::run(Says::NoSuchName).await;
    let client = names.client();
    for host in ["localhost", "hooks.localhost"] {
        delivered(&client.get_answer(&format!("http://{host}:{}/", server.address.port())).await);
    }
    assert_eq!(names.questions.load(SeqCst), 0);
}
