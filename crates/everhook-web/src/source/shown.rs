//! A source as it is shown.

use everhook_domain::id::SourceId;
use everhook_domain::inbound::SourceKind;
use everhook_domain::source::{InvalidSource, Source, SourceName};
use everhook_domain::time::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base_url::BaseUrl;
use crate::endpoint::MASK;
use crate::intake::ShownRejections;

/// Something about a source that its owner should look at.
#[derive(Debug, Serialize)]
struct ShownFault {
    pointer: String,
    detail: String,
}

impl From<InvalidSource> for ShownFault {
    fn from(fault: InvalidSource) -> Self {
        Self { pointer: fault.pointer, detail: fault.detail }
    }
}

/// A source as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct ShownSource<'a> {
    id: SourceId,
    name: &'a SourceName,
    kind: SourceKind,
    ingest_url: String,
    /// How many there are; they themselves are never shown.
    secrets_count: usize,
    /// What holds, also where nothing was set.
    window_s: u64,
    tolerance_s: u64,
    public_url: Option<String>,
    /// `null`: as the kind has it.
    dedupe: Option<Value>,
    options: Map<String, Value>,
    warnings: Vec<ShownFault>,
    /// Why what is stored cannot be used: everything is answered 503 until it is set anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<&'a str>,
    rejected: ShownRejections,
    version: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl<'a> ShownSource<'a> {
    /// A source whose URL begins with `base`.
    pub(crate) fn new(
        source: &'a Source,
        base: Option<&BaseUrl>,
        rejected: ShownRejections,
    ) -> Self {
        let settings = &source.settings;
        let input = settings.to_input();
        let base = base.map(ToString::to_string).unwrap_or_default();
        Self {
            id: source.id,
            name: &settings.name,
            kind: settings.kind,
            ingest_url: format!("{base}/in/{}", source.id),
            secrets_count: settings.secrets.len(),
            window_s: settings.window().as_secs(),
            tolerance_s: settings.tolerance().as_secs(),
            public_url: input.public_url.as_deref().map(masked),
            dedupe: input.dedupe,
            options: input.options,
            warnings: settings.warnings().into_iter().map(ShownFault::from).collect(),
            unusable: source.unusable.as_deref(),
            rejected,
            version: source.version,
            created_at: source.created_at,
            updated_at: source.updated_at,
        }
    }
}

/// The URL without its user and password.
fn masked(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{MASK}:{MASK}{}", &rest[at..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_url_are_masked() {
        for (url, expected) in [
            ("https://a.test/x@y", "https://a.test/x@y"),
            ("https://a.test?x@y", "https://a.test?x@y"),
            ("https://user:hunter2@a.test/x", "https://***:***@a.test/x"),
            ("https://hunter2@a.test", "https://***:***@a.test"),
            ("https://u:p@q@a.test/", "https://***:***@a.test/"),
        ] {
            assert_eq!(masked(url), expected);
        }
    }
}
