//! TLS to endpoints: certificates are always verified, and there is no way to switch that off.

use std::io;
use std::sync::Arc;

use everhook_domain::attempt::ErrorClass;
use everhook_domain::endpoint_url::Host;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure::Failure;

/// The client's side of TLS 1.2 and 1.3.
pub(super) struct Tls {
    connector: TlsConnector,
}

impl Tls {
    /// Trusts these roots.
    pub(super) fn new(roots: RootCertStore) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// The roots that browsers trust.
    pub(super) fn public_roots() -> RootCertStore {
        RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
    }

    /// Secures a connection to this host.
    pub(super) async fn secure(
        &self,
        host: &Host,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let name = match host {
            Host::Ip(address) => ServerName::from(*address),
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| {
                let detail = "the host's name cannot stand in a certificate";
                Failure::new(ErrorClass::Configuration, detail)
            })?,
        };
        let secured: io::Result<_> = self.connector.connect(name, tcp).await;
        secured.map_err(|error| Failure::securing(&error))
    }
}
