//! TLS: what is accepted, and what is said about the rest.

use std::sync::Arc;

use everhook_domain::attempt::ErrorClass;
use everhook_engine::EngineSettings;
use everhook_engine::http::Resolver;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;

use crate::server::{Client, Server, delivered, failed, read_request};

/// An authority that the clients of these tests trust.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    fn client(&self) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        let Client { sender, timeout } =
            Client::with(EngineSettings::default(), Resolver::system());
        Client { sender: sender.with_roots(roots).expect("TLS"), timeout }
    }

    /// A certificate of this authority, valid in these years.
    fn certify(&self, names: &[&str], years: (i32, i32)) -> (CertificateDer<'static>, KeyPair) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("a certificate").der().clone(), key)
    }
}

async fn server((certificate, key): (CertificateDer<'static>, KeyPair)) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Server::run(move |_, stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            while read_request(&mut stream).await.is_some() {
                stream.write_all(b"HTTP/1.1 204 OK\r\n\r\n").await.expect("a client");
            }
        }
    })
    .await
}

fn url(host: &str, server: &Server) -> String {
    format!("https://{host}:{}/", server.address.port())
}

const ALWAYS: (i32, i32) = (2000, 2100);

#[tokio::test]
async fn a_good_certificate_is_accepted_and_its_connection_used_again() {
    let authority = Authority::new("known");
    let client = authority.client();
    let server = server(authority.certify(&["localhost", "127.0.0.1"], ALWAYS)).await;
    for _ in 0..3 {
        delivered(&client.get_answer(&url("localhost", &server)).await);
    }
    assert_eq!(server.connections(), 1);
    delivered(&client.get_answer(&url("127.0.0.1", &server)).await);
}

#[tokio::test]
async fn case_076_bad_certificates_fail_with_a_plain_reason() {
    let authority = Authority::new("known");
    let unknown = Authority::new("unknown");
    let names = &["localhost"][..];
    for (certificate, text) in [
        (
            unknown.certify(names, ALWAYS),
            "the certificate's issuer is unknown: it is self-signed, or \
         the server leaves out the certificates between its own and the root's",
        ),
        (authority.certify(names, (2000, 2001)), "the certificate has expired"),
        (authority.certify(names, (2100, 2101)), "the certificate is not valid yet"),
        (authority.certify(&["other.example"], ALWAYS), "the certificate is for another host name"),
    ] {
        let server = server(certificate).await;
        let outcome = authority.client().get_answer(&url("localhost", &server)).await;
        assert_eq!(failed(&outcome, ErrorClass::Tls), text);
    }
}

#[tokio::test]
async fn case_015_a_self_signed_certificate_and_plain_http_fail_as_tls() {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
    let certificate = params.self_signed(&key).expect("a certificate").der().clone();
    let secure = server((certificate, key)).await;
    failed(&Client::new().get_answer(&url("localhost", &secure)).await, ErrorClass::Tls);

    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate").der().clone();
    let authority = server((certificate, key)).await;
    let outcome = Client::new().get_answer(&url("localhost", &authority)).await;
    assert_eq!(
        failed(&outcome, ErrorClass::Tls),
        "the certificate is that of an authority, not of a server: it is self-signed, or the \
         server shows the wrong one of its chain"
    );

    let plain = Server::run(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("a client");
        read_request(&mut stream).await;
    })
    .await;
    let outcome = Client::new().get_answer(&url("127.0.0.1", &plain)).await;
    let text = failed(&outcome, ErrorClass::Tls);
    assert_eq!(text, "the server does not speak TLS on this port (plain HTTP?)");

    let closing = Server::run(|_, stream| async move { drop(stream) }).await;
    let outcome = Client::new().get_answer(&url("127.0.0.1", &closing)).await;
    failed(&outcome, ErrorClass::Tls);
}
