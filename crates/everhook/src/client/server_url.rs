//! Where a server is: `http://127.0.0.1:8080`, or behind a proxy `https://hooks.example.com/base`.

use std::fmt;
use std::str::FromStr;

use url::{Host, Url};

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    https: bool,
    host: Host<String>,
    port: u16,
    base_path: String,
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            // The text is not repeated: it may hold a password.
            Err(format!("the server's URL {why}; write it as in http://127.0.0.1:8080"))
        };
        let Ok(url) = Url::parse(text.trim()) else { return wrong("cannot be read") };
        let https = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return wrong("must begin with http:// or https://"),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return wrong("must not hold a user or password: use a token");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return wrong("must not have a query or fragment");
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return wrong("has no host");
        };
        let base_path = url.path().trim_end_matches('/').to_owned();
        Ok(Self { https, host: host.to_owned(), port, base_path })
    }
}

impl ServerUrl {
    /// Whether it is reached through TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.https
    }

    /// The name or address to connect to, without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> String {
        match &self.host {
            Host::Domain(name) => name.clone(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        }
    }

    /// The port to connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What every path begins with: nothing, unless the server stands below one.
    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    /// The value of `Host`.
    pub(crate) fn authority(&self) -> String {
        let default = if self.https { 443 } else { 80 };
        if self.port == default {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.base_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, expected) in [
            ("http://127.0.0.1:8080", Ok("http://127.0.0.1:8080")),
            ("http://127.0.0.1:8080/", Ok("http://127.0.0.1:8080")),
            (" http://localhost:80 ", Ok("http://localhost")),
            ("http://[::1]:8080", Ok("http://[::1]:8080")),
            ("https://Hooks.Example.com:443/base/", Ok("https://hooks.example.com/base")),
            ("127.0.0.1:8080", Err("cannot be read")),
            ("localhost:8080", Err("must begin with")),
            ("ftp://localhost", Err("must begin with")),
            ("http://a:b@localhost", Err("must not hold a user")),
            ("http://localhost?x=1", Err("must not have a query")),
            ("", Err("cannot be read")),
        ] {
            let found = text.parse::<ServerUrl>().map(|url| url.to_string());
            match expected {
                Ok(url) => assert_eq!(found.as_deref(), Ok(url), "{text}"),
                Err(part) => assert!(found.expect_err(text).contains(part), "{text}"),
            }
        }
    }

    #[test]
    fn an_ipv6_host_loses_its_brackets_where_it_is_connected_to() {
        let url: ServerUrl = "http://[::1]:1".parse().expect("legal");
        assert_eq!((url.host().as_str(), url.authority().as_str()), ("::1", "[::1]:1"));
    }
}
