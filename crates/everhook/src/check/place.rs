//! Where a receiver is: a URL, with its path and query as they are sent.

use std::fmt;
use std::str::FromStr;

use url::{Position, Url};

use crate::client::ServerUrl;

/// A URL that requests are sent to as it stands.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Where to connect.
    pub(crate) server: ServerUrl,
    /// Path and query.
    pub(crate) target: String,
    url: String,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text.trim())
            .map_err(|_| "cannot be read; write it as in http://localhost:3000/hook".to_owned())?;
        let target = url[Position::BeforePath..Position::AfterQuery].to_owned();
        let whole = url[..Position::AfterQuery].to_owned();
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self { server: url.as_str().parse()?, target, url: whole })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}
