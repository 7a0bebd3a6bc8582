//! Certificates of every kind, and what a server shows of them.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::server::Door;

/// The years in which a certificate of these tests is valid, whatever today is.
pub const ALWAYS: (i32, i32) = (2000, 2100);

/// Issues certificates.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// What a server shows: certificates, its own first, and the key of that.
#[derive(Debug)]
pub struct Identity {
    /// The certificates.
    pub chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

impl Authority {
    /// A root: it has signed itself.
    ///
    /// # Errors
    /// A key cannot be made.
    pub fn root(name: &str) -> Result<Self, Error> {
        CertifiedIssuer::self_signed(authority(name), KeyPair::generate()?).map(Self)
    }

    /// Another authority, below this one.
    ///
    /// # Errors
    /// A key cannot be made.
    pub fn intermediate(&self, name: &str) -> Result<Self, Error> {
        CertifiedIssuer::signed_by(authority(name), KeyPair::generate()?, &self.0).map(Self)
    }

    /// Its own certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A server's identity: one certificate for these names, valid from the beginning of the first
    /// year to that of the second.
    ///
    /// # Errors
    /// A name is none, or a key cannot be made.
    pub fn certify(&self, names: &[&str], years: (i32, i32)) -> Result<Identity, Error> {
        let key = KeyPair::generate()?;
        let certificate = server(names, years)?.signed_by(&key, &self.0)?;
        Ok(Identity { chain: vec![certificate.der().clone()], key })
    }
}

impl Identity {
    /// A certificate that has signed itself, as a server's or, as that of `openssl req -x509`, an
    /// authority's.
    ///
    /// # Errors
    /// A name is none, or a key cannot be made.
    pub fn self_signed(names: &[&str], as_authority: bool) -> Result<Self, Error> {
        let mut params = server(names, ALWAYS)?;
        if as_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Self { chain: vec![certificate.der().clone()], key })
    }

    /// The same, with the certificate of this authority shown too.
    #[must_use]
    pub fn and(mut self, authority: &Authority) -> Self {
        self.chain.push(authority.certificate());
        self
    }

    /// The door of a server with this identity, for TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// Key and certificate do not fit.
    pub fn door(&self) -> Result<Door, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::try_from(self.key.serialize_der())
            .map_err(|error| rustls::Error::General(error.to_owned()))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), key)?;
        Ok(Door::Tls(Arc::new(config)))
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn server(names: &[&str], years: (i32, i32)) -> Result<CertificateParams, Error> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.not_before = date_time_ymd(years.0, 1, 1);
    params.not_after = date_time_ymd(years.1, 1, 1);
    Ok(params)
}
