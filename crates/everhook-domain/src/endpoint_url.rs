//! Which URLs may be an endpoint, how they are sent and how they are shown.
//!
//! Parsing follows the WHATWG URL Standard, so that odd spellings of a host (a number, octal, hex,
//! full-width digits, percent signs) come out as the address or name that a connection would use.
//! What that standard would repair in silence (line breaks inside, missing or extra slashes,
//! backslashes, a second `@`) is refused instead: whoever reads the text must see the host that is
//! meant.
//!
//! Credentials are sent as Basic and kept for the store; everything that shows a URL (`Display`,
//! `Debug`, `Serialize`, every message here) leaves them out. The host is shown as it is sent, in
//! ASCII, so that no look-alike letter can pass for another. Whether an address may be connected to
//! is not decided here but in [`address`](crate::address).

use std::fmt;
use std::net::IpAddr;

use base64::Engine;
use serde::{Serialize, Serializer};
use url::{ParseError, Position, Url};

use crate::secret::BASE64;

/// The longest URL, in bytes, as it is given and as it is sent.
pub const URL_BYTES_MAX: usize = 2_048;

/// The longest host name and the longest label of one, in bytes (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// How the endpoint is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// In clear text.
    Http,
    /// Through TLS.
    Https,
}

impl Scheme {
    /// As in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port where none is named.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Where a connection leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name to be resolved: ASCII, lower case, punycode (RFC 5891), without a dot at the end.
    Name(String),
    /// A literal address.
    Ip(IpAddr),
}

/// A URL that can be an endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointUrl {
    /// Everything, as the store keeps it.
    full: String,
    /// Without user and password.
    shown: String,
    /// Where the path begins in `shown`.
    path_at: usize,
    scheme: Scheme,
    host: Host,
    port: u16,
    basic_auth: Option<String>,
}

/// Why a text cannot be an endpoint. Never holds any of the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpointUrl {
    /// No text.
    #[error("the URL is empty")]
    Empty,
    /// Too long, as given or once encoded; holds the length found.
    #[error("the URL has {0} bytes once encoded: at most {URL_BYTES_MAX} are possible")]
    Length(usize),
    /// White space around it, or other white space than plain spaces inside.
    #[error(
        "the URL has white space or line breaks around or inside it: remove them (a space in the \
         path or query is %20)"
    )]
    WhiteSpace,
    /// A control character, or one that cannot be seen.
    #[error("the URL has a control character or an invisible one in it: remove or encode it")]
    Invisible,
    /// A scheme other than the two, or none.
    #[error("the URL must begin with http:// or https:// and a host")]
    Scheme,
    /// `http` where only `https` is accepted.
    #[error("the URL must begin with https://: security.require_https is on")]
    NotHttps,
    /// A backslash, which some readers take for a slash.
    #[error("the URL has a backslash in it: write /, or %5C in the path or query")]
    Backslash,
    /// A fragment.
    #[error(
        "the URL has a fragment ('#' and what follows), which is never sent: remove it, or write \
         %23 for the character"
    )]
    Fragment,
    /// No host.
    #[error("the URL has no host: write one after http:// or https://")]
    NoHost,
    /// Neither a name nor an address.
    #[error(
        "the host is not a legal name or address: names have labels of 1 to {LABEL_BYTES_MAX} \
         letters, digits, '-' and '_' (at most {NAME_BYTES_MAX} bytes), IPv6 addresses stand in \
         brackets without a zone"
    )]
    Host,
    /// A port that there is not.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// An `@` in the user or password.
    #[error("the URL has more than one '@' before its path: write %40 inside user and password")]
    Ambiguous,
    /// User or password that Basic cannot carry (RFC 7617 §2).
    #[error(
        "user and password must not hold control characters, and the user no ':': Basic \
         authentication cannot carry them"
    )]
    Credentials,
}

impl EndpointUrl {
    /// A URL that can be an endpoint; with `https_only`, only one that is spoken to through TLS.
    ///
    /// # Errors
    /// [`InvalidEndpointUrl`] says what is wrong and what to do.
    pub fn parse(text: &str, https_only: bool) -> Result<Self, InvalidEndpointUrl> {
        check_characters(text)?;
        let scheme = check_shape(text)?;
        if https_only && scheme == Scheme::Http {
            return Err(InvalidEndpointUrl::NotHttps);
        }
        let mut url = Url::parse(text).map_err(|error| parse_error(&error))?;
        let host = settle_host(&mut url)?;
        let port = url.port().unwrap_or(scheme.default_port());
        if port == 0 {
            return Err(InvalidEndpointUrl::Port);
        }
        let basic_auth = basic_auth(&url)?;
        let mut shown =
            format!("{}://{}", scheme.as_str(), &url[Position::BeforeHost..Position::AfterPort]);
        let path_at = shown.len();
        shown.push_str(&url[Position::BeforePath..]);
        let full = String::from(url);
        if full.len() > URL_BYTES_MAX {
            return Err(InvalidEndpointUrl::Length(full.len()));
        }
        Ok(Self { full, shown, path_at, scheme, host, port, basic_auth })
    }

    /// Stands where no URL can be had; no request is made to it. Its name never resolves (RFC 2606
    /// §2).
    pub(crate) fn nowhere() -> Self {
        const HOST: &str = "unusable.invalid";
        let full = format!("http://{HOST}/");
        Self {
            shown: full.clone(),
            path_at: full.len() - 1,
            full,
            scheme: Scheme::Http,
            host: Host::Name(HOST.to_owned()),
            port: Scheme::Http.default_port(),
            basic_auth: None,
        }
    }

    /// How it is spoken to.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Where a connection leads.
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The port, named or not.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The value of `Host` (RFC 9110 §7.2): host, and port unless it is the scheme's own.
    pub fn authority(&self) -> &str {
        &self.shown[self.scheme.as_str().len() + "://".len()..self.path_at]
    }

    /// The request target (RFC 9112 §3.2.1), percent-encoded; begins with `/`.
    pub fn path_and_query(&self) -> &str {
        &self.shown[self.path_at..]
    }

    /// The value of `Authorization` for the URL's user and password (RFC 7617), if it has any.
    pub fn basic_auth(&self) -> Option<&str> {
        self.basic_auth.as_deref()
    }

    /// The whole URL with user and password, for the store; never to be shown or logged.
    /// [`Self::parse`] reads it back as the same URL.
    pub fn expose(&self) -> &str {
        &self.full
    }
}

/// Without user and password.
impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Without user and password.
impl fmt::Debug for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndpointUrl").field(&self.shown).finish()
    }
}

/// Without user and password.
impl Serialize for EndpointUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown)
    }
}

/// Refuses what the parser would drop or nobody would see.
fn check_characters(text: &str) -> Result<(), InvalidEndpointUrl> {
    if text.is_empty() {
        return Err(InvalidEndpointUrl::Empty);
    }
    if text.len() > URL_BYTES_MAX {
        return Err(InvalidEndpointUrl::Length(text.len()));
    }
    if text.trim() != text || text.chars().any(|c| c.is_whitespace() && c != ' ') {
        return Err(InvalidEndpointUrl::WhiteSpace);
    }
    if text.chars().any(|c| c.is_control() || is_invisible(c)) {
        return Err(InvalidEndpointUrl::Invisible);
    }
    if text.contains('\\') {
        return Err(InvalidEndpointUrl::Backslash);
    }
    Ok(())
}

/// Characters without a look of their own that a host's mapping drops (UTS 46 §4), or that turn the
/// text around them. The two joiners stay: scripts and emoji need them.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Refuses what the parser would take for something else than it looks like; gives the scheme.
fn check_shape(text: &str) -> Result<Scheme, InvalidEndpointUrl> {
    let (scheme, rest) = text.split_once("://").ok_or(InvalidEndpointUrl::Scheme)?;
    let scheme = if scheme.eq_ignore_ascii_case("http") {
        Scheme::Http
    } else if scheme.eq_ignore_ascii_case("https") {
        Scheme::Https
    } else {
        return Err(InvalidEndpointUrl::Scheme);
    };
    if text.contains('#') {
        return Err(InvalidEndpointUrl::Fragment);
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err(InvalidEndpointUrl::NoHost);
    }
    if authority.matches('@').count() > 1 {
        return Err(InvalidEndpointUrl::Ambiguous);
    }
    Ok(scheme)
}

fn parse_error(error: &ParseError) -> InvalidEndpointUrl {
    if *error == ParseError::EmptyHost {
        InvalidEndpointUrl::NoHost
    } else if *error == ParseError::InvalidPort {
        InvalidEndpointUrl::Port
    } else {
        // The scheme is one of two; what else there is to get wrong is the host.
        InvalidEndpointUrl::Host
    }
}

/// The host, after a dot at its end was taken away from the URL: it says that the name is complete,
/// which all names here are, and some servers and certificates do not know it with the dot.
fn settle_host(url: &mut Url) -> Result<Host, InvalidEndpointUrl> {
    if let Some(name) = url.domain().and_then(|name| name.strip_suffix('.')) {
        let name = name.to_owned();
        url.set_host(Some(&name)).map_err(|_| InvalidEndpointUrl::Host)?;
    }
    match url.host() {
        Some(url::Host::Ipv4(address)) => Ok(Host::Ip(address.into())),
        Some(url::Host::Ipv6(address)) => Ok(Host::Ip(address.into())),
        Some(url::Host::Domain(name)) if is_name(name) => Ok(Host::Name(name.to_owned())),
        Some(url::Host::Domain(_)) => Err(InvalidEndpointUrl::Host),
        None => Err(InvalidEndpointUrl::NoHost),
    }
}

fn is_name(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let label =
        |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(legal);
    name.len() <= NAME_BYTES_MAX && name.split('.').all(label)
}

/// User and password as a header value; none where both are empty.
fn basic_auth(url: &Url) -> Result<Option<String>, InvalidEndpointUrl> {
    let user = percent_decoded(url.username());
    let password = percent_decoded(url.password().unwrap_or_default());
    if user.is_empty() && password.is_empty() {
        return Ok(None);
    }
    let control = |bytes: &[u8]| bytes.iter().any(u8::is_ascii_control);
    if user.contains(&b':') || control(&user) || control(&password) {
        return Err(InvalidEndpointUrl::Credentials);
    }
    Ok(Some(format!("Basic {}", BASE64.encode([&user[..], b":", &password].concat()))))
}

/// The bytes that percent-encoding stands for (RFC 3986 §2.1); a lone `%` stands for itself.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let encoded = match (first, after) {
            (b'%', [high, low, after @ ..]) => hex(*high).zip(hex(*low)).zip(Some(after)),
            (_, _) => None,
        };
        match encoded {
            Some(((high, low), after)) => {
                bytes.push(high << 4 | low);
                rest = after;
            }
            None => bytes.push(*first),
        }
    }
    bytes
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests;
