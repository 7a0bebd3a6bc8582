//! From what went wrong on the wire to a class and a sentence for a person.
//!
//! Every error has a class; there is no list of errors that count. The sentences say what was seen,
//! never what was sent.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use everhook_domain::attempt::{AttemptOutcome, ErrorClass};
use rustix::io::Errno;
use rustls::{CertificateError, InvalidMessage, OtherError};

use super::connection::{HEAD_BYTES_MAX, HEADER_LINES_MAX};

/// What the certificate check says of a certificate that may sign others; rustls does not name its
/// type. A self-signed one is often of this kind, as that of `openssl req -x509`.
const AUTHORITY_AS_SERVER: &str = "CaUsedAsEndEntity";

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) class: ErrorClass,
    pub(super) detail: String,
}

/// How far a request has come when its time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Resolving,
    Connecting,
    Securing,
    Waiting,
}

impl Failure {
    pub(super) fn new(class: ErrorClass, detail: impl Into<String>) -> Self {
        Self { class, detail: detail.into() }
    }

    /// The time was up in this phase.
    pub(super) fn timeout(phase: Phase, timeout: Duration) -> Self {
        let within = Within(timeout);
        let (class, detail) = match phase {
            Phase::Resolving => {
                (ErrorClass::Dns, format!("the host's name was not resolved within {within}"))
            }
            Phase::Connecting => {
                (ErrorClass::Timeout, format!("no connection was made within {within}"))
            }
            Phase::Securing => {
                (ErrorClass::Timeout, format!("the TLS handshake did not end within {within}"))
            }
            Phase::Waiting => {
                (ErrorClass::Timeout, format!("no status line and headers came within {within}"))
            }
        };
        Self::new(class, detail)
    }

    /// No connection was made.
    pub(super) fn connecting(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        if let Some(failure) = Self::ours(error) {
            return failure;
        }
        let (class, detail) = match error.kind() {
            Kind::ConnectionRefused => {
                (ErrorClass::Refused, "the connection was refused: nothing listens there".into())
            }
            Kind::HostUnreachable | Kind::NetworkUnreachable => {
                (ErrorClass::Refused, format!("no route leads to the address ({error})"))
            }
            Kind::AddrNotAvailable => {
                let detail = "this machine has no address or no free port to connect from";
                (ErrorClass::Refused, format!("{detail} ({error})"))
            }
            Kind::TimedOut => {
                (ErrorClass::Timeout, "the operating system gave up connecting".into())
            }
            Kind::ConnectionReset | Kind::ConnectionAborted => {
                (ErrorClass::Reset, "the connection was reset while it was made".into())
            }
            _ => (ErrorClass::Refused, format!("the connection could not be made ({error})")),
        };
        Self::new(class, detail)
    }

    /// This machine has run out of something that a connection needs; the endpoint is not at fault.
    pub(super) fn ours(error: &io::Error) -> Option<Self> {
        let error = Errno::from_io_error(error)?;
        let what = match error {
            Errno::MFILE => "open files of this process: raise its limit (ulimit -n)",
            Errno::NFILE => "open files of this machine: raise its limit (fs.file-max)",
            Errno::NOBUFS | Errno::NOMEM => "memory for connections: free some",
            _ => return None,
        };
        let detail = format!(
            "no connection was tried, and the endpoint is not at fault: this server has run out of \
             {what}, or lower delivery.in_flight_max"
        );
        Some(Self::new(ErrorClass::Configuration, detail))
    }

    /// The TLS handshake failed, or the connection under it.
    pub(super) fn securing(error: &io::Error) -> Self {
        if let Some(failure) = tls_failure(error) {
            return failure;
        }
        let detail = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the connection was closed during the TLS handshake",
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                "the connection was reset during the TLS handshake"
            }
            _ => return Self::new(ErrorClass::Tls, format!("the TLS handshake failed ({error})")),
        };
        Self::new(ErrorClass::Tls, detail)
    }

    /// The exchange failed on an established connection; `heard` tells whether any byte came back.
    pub(super) fn exchanging(error: &hyper::Error, heard: bool) -> Self {
        let io = io_error(error);
        if let Some(failure) = io.and_then(tls_failure) {
            return failure;
        }
        if error.is_parse_too_large() {
            let detail = format!(
                "the head of the answer is too large: at most {HEADER_LINES_MAX} header lines and \
                 {} KiB are read",
                HEAD_BYTES_MAX / 1_024
            );
            return Self::new(ErrorClass::Protocol, detail);
        }
        if error.is_parse() {
            return Self::new(
                ErrorClass::Protocol,
                format!("the answer is not HTTP/1.1 ({})", Chain(error)),
            );
        }
        if io.is_some() || is_closed(error) {
            return Self::new(ErrorClass::Reset, closed_text(io, heard));
        }
        Self::new(ErrorClass::Protocol, format!("the exchange failed ({})", Chain(error)))
    }

    /// A request on a shared connection failed before its answer.
    pub(super) fn multiplexing(error: &h2::Error) -> Self {
        let code = error.reason().map(|reason| format!("{reason:?}")).unwrap_or_default();
        if let Some(io) = error.get_io() {
            return match tls_failure(io) {
                Some(failure) => failure,
                // What TLS says comes through here as text only.
                None if io.kind() == io::ErrorKind::InvalidData => {
                    Self::new(ErrorClass::Tls, format!("TLS failed ({io})"))
                }
                None => Self::new(ErrorClass::Reset, broken_text(io)),
            };
        }
        if error.is_go_away() && error.is_remote() {
            let detail = format!(
                "the connection was closed by the endpoint before it took the request (GOAWAY, \
                 {code})"
            );
            return Self::new(ErrorClass::Reset, detail);
        }
        if error.is_reset() && error.is_remote() {
            let detail =
                format!("the request was reset by the endpoint without an answer ({code})");
            return Self::new(ErrorClass::Reset, detail);
        }
        let detail = if error.is_reset() {
            format!("the answer breaks the rules of HTTP/2, or its headers are too large ({code})")
        } else if error.is_go_away() {
            format!("what the endpoint sends is not HTTP/2, or more than is allowed ({code})")
        } else {
            format!("the exchange failed ({})", Chain(error))
        };
        Self::new(ErrorClass::Protocol, detail)
    }

    /// The outcome of an attempt that ended this way.
    pub(super) fn into_outcome(self) -> AttemptOutcome {
        AttemptOutcome::failed(self.class, self.detail)
    }
}

/// Whether the error means that the connection ended, and not that something odd came over it.
pub(super) fn is_closed(error: &hyper::Error) -> bool {
    error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || error.is_body_write_aborted()
        || io_error(error).is_some_and(|io| tls_failure(io).is_none())
}

fn closed_text(io: Option<&io::Error>, heard: bool) -> String {
    let how = match io.map(io::Error::kind) {
        None | Some(io::ErrorKind::UnexpectedEof) => "closed",
        Some(_) => "reset",
    };
    let when = if heard { "before its headers were complete" } else { "without an answer" };
    format!("the connection was {how} by the endpoint {when}")
}

/// As [`closed_text`], for a connection that was closed in the library's own words.
fn broken_text(io: &io::Error) -> String {
    let io = (io.kind() != io::ErrorKind::BrokenPipe).then_some(io);
    closed_text(io, false)
}

fn io_error(error: &hyper::Error) -> Option<&io::Error> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref() {
            return Some(io);
        }
        source = error.source();
    }
    None
}

/// The failure, if it is TLS that failed.
fn tls_failure(error: &io::Error) -> Option<Failure> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(Failure::new(ErrorClass::Tls, tls_text(error)))
}

fn tls_text(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => certificate_text(why),
        rustls::Error::NoCertificatesPresented => "the server shows no certificate".into(),
        rustls::Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::InvalidEmptyPayload,
        ) => "the server does not speak TLS on this port (plain HTTP?)".into(),
        rustls::Error::AlertReceived(alert) => format!(
            "the server refused the TLS connection with the alert '{alert:?}' (a server that asks \
             for a client certificate does so as well)"
        ),
        rustls::Error::PeerIncompatible(why) => {
            format!("the server offers no TLS version or cipher that is safe ({why:?})")
        }
        other => format!("TLS failed ({other})"),
    }
}

fn certificate_text(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "the certificate's issuer is unknown: it is \
             self-signed, or the server leaves out the certificates between its own and the root's"
            .into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another host name".into()
        }
        CertificateError::Other(OtherError(why)) if why.to_string() == AUTHORITY_AS_SERVER => {
            "the certificate is that of an authority, not of a server: it is self-signed, or the \
             server shows the wrong one of its chain"
                .into()
        }
        CertificateError::Other(OtherError(why)) => {
            format!("the certificate cannot be accepted ({why})")
        }
        CertificateError::Revoked => "the certificate was revoked".into(),
        CertificateError::BadSignature => "the certificate's signature is wrong".into(),
        other => format!("the certificate cannot be accepted ({other})"),
    }
}

/// An error and what caused it, on one line.
struct Chain<'a>(&'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

/// A duration as a person writes it.
struct Within(Duration);

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        if ms.is_multiple_of(1_000) { write!(f, "{} s", ms / 1_000) } else { write!(f, "{ms} ms") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Class and detail of a connection that failed with this error of the system.
    fn check(error: Errno, class: ErrorClass, begin: &str) {
        let failure = Failure::connecting(&io::Error::from(error));
        assert_eq!(failure.class, class, "{}", failure.detail);
        assert!(failure.detail.starts_with(begin), "{}", failure.detail);
    }

    #[test]
    fn case_015_every_error_of_the_system_has_a_class() {
        use ErrorClass::{Configuration, Refused, Reset, Timeout};
        check(Errno::CONNREFUSED, Refused, "the connection was refused: nothing listens there");
        check(Errno::HOSTUNREACH, Refused, "no route leads to the address (");
        check(Errno::NETUNREACH, Refused, "no route leads to the address (");
        check(Errno::ADDRNOTAVAIL, Refused, "this machine has no address or no free port to");
        check(Errno::TIMEDOUT, Timeout, "the operating system gave up connecting");
        check(Errno::CONNRESET, Reset, "the connection was reset while it was made");
        check(Errno::ACCESS, Refused, "the connection could not be made (");
        let ours = "no connection was tried, and the endpoint is not at fault: this server has run";
        for error in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM] {
            check(error, Configuration, ours);
        }
    }

    #[test]
    fn our_own_fault_says_what_to_do() {
        let failure = Failure::connecting(&io::Error::from(Errno::MFILE));
        assert_eq!(
            failure.detail,
            "no connection was tried, and the endpoint is not at fault: this server has run out \
             of open files of this process: raise its limit (ulimit -n), or lower \
             delivery.in_flight_max"
        );
    }

    #[test]
    fn the_operator_reads_durations_as_they_are_written() {
        for (ms, expected) in [(10_000, "10 s"), (300, "300 ms"), (1_500, "1500 ms"), (0, "0 s")] {
            assert_eq!(Within(Duration::from_millis(ms)).to_string(), expected);
        }
    }
}
