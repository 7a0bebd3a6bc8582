//! The URL that a provider calls, as it knows it.
//!
//! Providers that sign the URL sign the one that was registered with them, not what reaches us
//! behind proxies. So scheme and host are the owner's word, never a forwarded header's.

use std::fmt;

use url::Url;

/// Longest URL, in bytes.
pub const URL_BYTES_MAX: usize = 2_048;

/// Scheme and host, and what else the owner has written, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// Scheme, credentials, host and port, as written: no slash at the end.
    origin: String,
    /// As written; `None`: the path that was received.
    path: Option<String>,
    /// As written, without the question mark.
    query: Option<String>,
}

/// Why a text cannot be a public URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPublicUrl {
    /// Not a URL of the web.
    #[error("must be an http:// or https:// URL with a host, as it is registered at the provider")]
    Form,
    /// Too long.
    #[error("has at most {URL_BYTES_MAX} bytes")]
    Length,
    /// Fragments are not sent.
    #[error("must not have a '#': what follows it is never sent")]
    Fragment,
}

impl PublicUrl {
    /// Reads a URL. What is written stays as it is written: signatures cover the spelling.
    ///
    /// # Errors
    /// [`InvalidPublicUrl`].
    pub fn parse(text: &str) -> Result<Self, InvalidPublicUrl> {
        if text.len() > URL_BYTES_MAX {
            return Err(InvalidPublicUrl::Length);
        }
        if text.contains('#') {
            return Err(InvalidPublicUrl::Fragment);
        }
        let legal = text.bytes().all(|b| b.is_ascii_graphic());
        let parsed = Url::parse(text).map_err(|_| InvalidPublicUrl::Form)?;
        let web = matches!(parsed.scheme(), "http" | "https") && parsed.has_host();
        let (scheme, rest) = text.split_once("://").ok_or(InvalidPublicUrl::Form)?;
        if !web || !legal || rest.starts_with('/') {
            return Err(InvalidPublicUrl::Form);
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query.to_owned())),
            None => (rest, None),
        };
        let (host, path) = match rest.find('/') {
            Some(at) if rest.len() > at + 1 => (&rest[..at], Some(rest[at..].to_owned())),
            Some(at) => (&rest[..at], None),
            None => (rest, None),
        };
        Ok(Self { origin: format!("{scheme}://{host}"), path, query })
    }

    /// The same without user and password: to be shown and passed on.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let (scheme, authority) = self.origin.split_once("://").unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        Self { origin: format!("{scheme}://{host}"), ..self.clone() }
    }

    /// The URL that the provider called for a request with this path and query as received: path
    /// and query of `self` where they were written (the query only if the request has none).
    pub fn called(&self, target: &str) -> String {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let path = self.path.as_deref().unwrap_or(path);
        match query.or(self.query.as_deref()) {
            Some(query) => format!("{}{path}?{query}", self.origin),
            None => format!("{}{path}", self.origin),
        }
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        f.write_str(self.path.as_deref().unwrap_or_default())?;
        match &self.query {
            Some(query) => write!(f, "?{query}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called() {
        for (public, target, expected) in [
            ("https://a.test", "/in/x?b=1", "https://a.test/in/x?b=1"),
            ("https://a.test/", "/in/x", "https://a.test/in/x"),
            ("https://a.test:8443", "/in/x", "https://a.test:8443/in/x"),
            ("https://a.test/hook", "/in/x?b=%7E", "https://a.test/hook?b=%7E"),
            ("https://a.test/hook?c=2", "/in/x", "https://a.test/hook?c=2"),
            ("https://a.test/hook?c=2", "/in/x?b=1", "https://a.test/hook?b=1"),
            ("https://u:p@A.test/hook", "/in/x?", "https://u:p@A.test/hook?"),
        ] {
            let public = PublicUrl::parse(public).expect("legal");
            assert_eq!(public.called(target), expected, "{public}");
        }
    }

    #[test]
    fn credentials_are_left_out_where_it_is_shown() {
        for (public, expected) in [
            ("https://a.test/x@y?z@", "https://a.test/x@y?z@"),
            ("HTTPS://user:hunter2@A.test:8443/x", "HTTPS://A.test:8443/x"),
            ("https://hunter2@a.test", "https://a.test"),
            ("https://u:p@q@a.test", "https://a.test"),
        ] {
            let public = PublicUrl::parse(public).expect("legal");
            assert_eq!(public.without_credentials().to_string(), expected);
        }
    }

    #[test]
    fn what_is_refused() {
        use InvalidPublicUrl::{Form, Fragment, Length};
        for (text, expected) in [
            ("a.test/hook", Form),
            ("ftp://a.test", Form),
            ("https://", Form),
            ("https:///hook", Form),
            ("https:a.test", Form),
            ("https://a.test/ä", Form),
            ("https://a.test/a b", Form),
            ("https://a.test/#x", Fragment),
            (&format!("https://a.test/{}", "x".repeat(URL_BYTES_MAX)), Length),
        ] {
            assert_eq!(PublicUrl::parse(text), Err(expected), "{text}");
        }
    }
}
