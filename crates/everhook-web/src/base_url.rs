//! Where the outside reaches this server: what URLs that are given out begin with.

use std::fmt;
use std::str::FromStr;

use http::uri::{Authority, Uri};
use http::{HeaderMap, header};

/// `http://` or `https://`, a host, and perhaps a port and a path, without a slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

/// The text is not a base URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an http:// or https:// URL without user, query and fragment")]
pub struct InvalidBaseUrl;

impl FromStr for BaseUrl {
    type Err = InvalidBaseUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBaseUrl> {
        let uri: Uri = text.parse().map_err(|_| InvalidBaseUrl)?;
        let web = matches!(uri.scheme_str(), Some("http" | "https"));
        let host = uri.authority().filter(|authority| is_plain(authority));
        if !web || host.is_none() || text.contains(['?', '#']) {
            return Err(InvalidBaseUrl);
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl BaseUrl {
    /// What the caller itself has called, as far as that can be known without trusting a proxy's
    /// headers; `None` where the request does not say.
    pub(crate) fn of_request(headers: &HeaderMap) -> Option<Self> {
        let host: Authority = headers.get(header::HOST)?.to_str().ok()?.parse().ok()?;
        is_plain(&host).then(|| Self(format!("http://{host}")))
    }
}

fn is_plain(authority: &Authority) -> bool {
    !authority.host().is_empty() && !authority.as_str().contains('@')
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (text, expected) in [
            ("https://hooks.example.com", Some("https://hooks.example.com")),
            ("https://hooks.example.com/", Some("https://hooks.example.com")),
            ("http://10.0.0.7:8080/everhook/", Some("http://10.0.0.7:8080/everhook")),
            ("https://[::1]:8080", Some("https://[::1]:8080")),
            ("hooks.example.com", None),
            ("https://", None),
            ("ftp://hooks.example.com", None),
            ("https://u:p@hooks.example.com", None),
            ("https://hooks.example.com/?a=b", None),
            ("https://hooks.example.com/#a", None),
            ("", None),
        ] {
            let found = text.parse::<BaseUrl>().ok().map(|url| url.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn of_a_request() {
        for (host, expected) in [
            ("localhost:8080", Some("http://localhost:8080")),
            ("[::1]:8080", Some("http://[::1]:8080")),
            ("u@localhost", None),
            ("a/b", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().expect("legal"));
            let found = BaseUrl::of_request(&headers).map(|url| url.to_string());
            assert_eq!(found.as_deref(), expected, "{host}");
        }
        assert_eq!(BaseUrl::of_request(&HeaderMap::new()), None);
    }
}
