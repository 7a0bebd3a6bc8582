//! Servers behind TLS, and what they saw of each handshake.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use everhook_domain::certificate::CaCertificates;
use everhook_engine::EngineSettings;
use everhook_engine::http::Resolver;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::client::Client;

/// Valid now, whenever that is.
pub(crate) const ALWAYS: (i32, i32) = (2000, 2100);
/// The protocols of a server that speaks HTTP/2 and HTTP/1.1.
pub(crate) const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];
/// Answers that leave the connection open, and that close it.
pub(crate) const KEEP: &[u8] = b"HTTP/1.1 204 OK\r\n\r\n";
pub(crate) const CLOSE: &[u8] = b"HTTP/1.1 204 OK\r\nconnection: close\r\n\r\n";

/// An authority that issues whatever a test wants.
pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// A client that trusts this one in place of the public roots.
    pub(crate) fn client(&self) -> Client {
        self.client_with(EngineSettings::default())
    }

    pub(crate) fn client_with(&self, settings: EngineSettings) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        let client = Client::with(settings, Resolver::system());
        Client { sender: client.sender.with_roots(roots).expect("TLS"), ..client }
    }

    /// A certificate of this authority, valid in these years.
    pub(crate) fn certify(
        &self,
        names: &[&str],
        years: (i32, i32),
    ) -> (CertificateDer<'static>, KeyPair) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("a certificate").der().clone(), key)
    }
}

/// A server on the loopback interface; its tasks end with it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Runs `script` for each connection, with its number from 0.
    pub(crate) async fn run<S, F>(script: S) -> Self
    where
        S: Fn(usize, TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut scripts = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                scripts.spawn(script(count.fetch_add(1, SeqCst), stream));
            }
        });
        Self { address, connections, _tasks: tasks }
    }

    /// How many connections came.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

/// Reads one request of HTTP/1.1, head and body; `None` when the connection has ended.
pub(crate) async fn read_request<S: AsyncReadExt + Unpin>(stream: &mut S) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await.ok()?;
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.trim().parse::<usize>().expect("a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    request.extend_from_slice(&body);
    Some(request)
}

/// The setup of a server with this certificate; with no protocols it does not choose any.
pub(crate) fn config(
    (certificate, key): (CertificateDer<'static>, KeyPair),
    protocols: &[&[u8]],
    versions: &[&'static SupportedProtocolVersion],
) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate");
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config
}

/// A setup for `localhost`, certified by this authority, of every version.
pub(crate) fn localhost(authority: &Authority, protocols: &[&[u8]]) -> ServerConfig {
    config(authority.certify(&["localhost"], ALWAYS), protocols, rustls::ALL_VERSIONS)
}

/// A server that runs `script` on each connection that was secured.
pub(crate) async fn run<S, F>(config: ServerConfig, script: S) -> Server
where
    S: Fn(usize, TlsStream<TcpStream>) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let script = Arc::new(script);
    Server::run(move |number, stream| {
        let (acceptor, script) = (acceptor.clone(), Arc::clone(&script));
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                script(number, stream).await;
            }
        }
    })
    .await
}

/// What a server saw of a handshake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) kind: Option<HandshakeKind>,
    /// Whether anything was sent before the handshake had ended.
    pub(crate) early: bool,
}

/// A server of HTTP/1.1 that gives the same answer to every request.
pub(crate) async fn replying(
    config: ServerConfig,
    answer: &'static [u8],
) -> (Server, Arc<Mutex<Vec<Seen>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let server = run(config, move |_, mut stream| {
        let told = Arc::clone(&told);
        async move {
            let session = stream.get_mut().1;
            let (kind, early) = (session.handshake_kind(), session.early_data().is_some());
            told.lock().expect("a lock").push(Seen { kind, early });
            while read_request(&mut stream).await.is_some() {
                stream.write_all(answer).await.expect("a client");
                stream.flush().await.expect("a client");
                if answer == CLOSE {
                    stream.shutdown().await.ok();
                    return;
                }
            }
        }
    })
    .await;
    (server, seen)
}

/// The URL of such a server by its name.
pub(crate) fn url(server: &Server) -> String {
    format!("https://localhost:{}/", server.address.port())
}

/// These certificates as an endpoint's own authorities.
pub(crate) fn own(certificates: &[&CertificateDer<'static>]) -> CaCertificates {
    let pem: String = certificates
        .iter()
        .map(|der| {
            let text = BASE64_STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        })
        .collect();
    CaCertificates::parse(&pem).expect("certificates")
}
