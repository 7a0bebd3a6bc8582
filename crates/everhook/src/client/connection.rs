//! Opens connections to a server, with TLS where its URL asks for it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::ServerUrl;

/// A connection, plain or encrypted.
pub(crate) enum Connection {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS, with the certificate verified against the public authorities.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects to the server; the error is for a person.
pub(crate) async fn open(server: &ServerUrl) -> Result<Connection, String> {
    let unreachable = |error: io::Error| {
        format!("{server} cannot be reached: {error}; is the server running, and is this its URL?")
    };
    let stream = TcpStream::connect((server.host(), server.port())).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    if !server.is_https() {
        return Ok(Connection::Plain(stream));
    }
    let insecure = |error: String| format!("no secure connection to {server}: {error}");
    let config = tls_config().map_err(insecure)?;
    let name = ServerName::try_from(server.host()).map_err(|error| insecure(error.to_string()))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    stream
        .map(|stream| Connection::Tls(Box::new(stream)))
        .map_err(|error| insecure(error.to_string()))
}

fn tls_config() -> Result<ClientConfig, String> {
    let authorities = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(authorities).with_no_client_auth())
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
