//! TLS to endpoints: certificates are always verified, and there is no way to switch that off.
//!
//! A profile is what is trusted: the public roots, or an endpoint's own authorities in their place.
//! Each profile remembers its own sessions, so that none made under one is ever resumed under
//! another. Nothing is sent before the handshake has ended (no early data, which could be replayed;
//! RFC 8446 §8).

use std::io;
use std::sync::{Arc, Mutex};

use everhook_domain::attempt::ErrorClass;
use everhook_domain::certificate::{CaCertificates, Fingerprint};
use everhook_domain::endpoint_url::Host;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure::Failure;
use crate::lock::lock;
use crate::settings::EngineSettings;

/// The most profiles of endpoints' own authorities that are kept; the one not used for longest is
/// made anew when it is needed again.
const OWN_PROFILES_MAX: usize = 256;
/// The most hosts whose sessions one of those remembers.
const OWN_SESSION_HOSTS_MAX: usize = 8;
/// The most sessions of one host; a library's number, in which its limit is counted.
const SESSIONS_PER_HOST: usize = 8;
/// The names of what may be spoken through TLS (RFC 7301).
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// What is trusted; connections are only shared within one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trust {
    /// The public roots.
    Public,
    /// An endpoint's own authorities.
    Own(Fingerprint),
}

/// The client's side of TLS 1.2 and 1.3.
pub(super) struct Tls {
    public: TlsConnector,
    /// Least recently used first.
    own: Mutex<Vec<(Fingerprint, TlsConnector)>>,
    http2: bool,
}

impl Trust {
    /// What is trusted with these authorities.
    pub(super) fn of(own: Option<&CaCertificates>) -> Self {
        own.map_or(Self::Public, |own| Self::Own(own.fingerprint()))
    }
}

impl Tls {
    /// Trusts these roots where an endpoint has no authorities of its own.
    pub(super) fn new(
        roots: RootCertStore,
        settings: &EngineSettings,
    ) -> Result<Self, rustls::Error> {
        let http2 = settings.http2;
        let public = connector(roots, http2, settings.tls_session_hosts_max)?;
        Ok(Self { public, own: Mutex::default(), http2 })
    }

    /// The roots that browsers trust.
    pub(super) fn public_roots() -> RootCertStore {
        RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
    }

    /// Whether endpoints are told that HTTP/2 is spoken here.
    pub(super) const fn offers_http2(&self) -> bool {
        self.http2
    }

    /// Secures a connection to this host, whose certificate must be signed by one of `own`, if
    /// there are any, and else by a public root.
    pub(super) async fn secure(
        &self,
        host: &Host,
        own: Option<&CaCertificates>,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = match host {
            Host::Ip(address) => ServerName::from(*address),
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| {
                let detail = "the host's name cannot stand in a certificate";
                Failure::new(ErrorClass::Configuration, detail)
            })?,
        };
        let connector = match own {
            None => self.public.clone(),
            Some(own) => self.own(own)?,
        };
        let secured: io::Result<_> = connector.connect(name, tcp).await;
        secured.map_err(|error| Failure::securing(&error))
    }

    /// The profile of these authorities.
    fn own(&self, own: &CaCertificates) -> Result<TlsConnector, Failure> {
        let fingerprint = own.fingerprint();
        let mut profiles = lock(&self.own);
        if let Some(at) = profiles.iter().position(|(known, _)| *known == fingerprint) {
            let used = profiles.remove(at);
            let connector = used.1.clone();
            profiles.push(used);
            return Ok(connector);
        }
        let unusable = |error: rustls::Error| {
            let detail = format!("the endpoint's ca_certificates cannot be used ({error})");
            Failure::new(ErrorClass::Configuration, detail)
        };
        let mut roots = RootCertStore::empty();
        for certificate in own.certificates() {
            roots.add(certificate.clone()).map_err(unusable)?;
        }
        let connector = connector(roots, self.http2, OWN_SESSION_HOSTS_MAX).map_err(unusable)?;
        if profiles.len() >= OWN_PROFILES_MAX {
            profiles.remove(0);
        }
        profiles.push((fingerprint, connector.clone()));
        Ok(connector)
    }
}

/// Whether the two sides have agreed on HTTP/2.
pub(super) fn is_http2(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP2)
}

fn connector(
    roots: RootCertStore,
    http2: bool,
    session_hosts_max: usize,
) -> Result<TlsConnector, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if http2 {
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    }
    let sessions_max = session_hosts_max.saturating_mul(SESSIONS_PER_HOST);
    config.resumption = Resumption::in_memory_sessions(sessions_max);
    Ok(TlsConnector::from(Arc::new(config)))
}
