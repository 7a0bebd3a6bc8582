//! Settings as they are asked for and as they are stored: one shape for both.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::dedupe::POINTERS_MAX;
use super::options::COMMON_OPTIONS;
use super::{
    DedupeRule, InvalidSource, PublicUrl, SECRET_BYTES_MAX, SECRETS_MAX, SourceName, SourceOptions,
    SourceSecret, SourceSettings, TOLERANCE_MAX, WINDOW_MAX,
};
use crate::inbound::SourceKind;
use crate::subscription::JsonPointer;

/// A source's settings as they are asked for; nothing is checked but the shape.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SourceInput {
    /// See [`SourceSettings::name`].
    pub name: String,
    /// The word of the kind.
    pub kind: String,
    /// See [`SourceSettings::secrets`]. Not in the stored form, which has them apart.
    #[serde(default, skip_serializing)]
    pub secrets: Vec<String>,
    /// See [`SourceSettings::window`]; whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_s: Option<u64>,
    /// See [`SourceSettings::tolerance`]; whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance_s: Option<u64>,
    /// See [`SourceSettings::public_url`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// `{"header": name}` or `{"pointers": [pointer, …]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe: Option<Value>,
    /// See [`SourceOptions`].
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
}

/// The stored form cannot be read. The text holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored settings of the source cannot be used: {0}")]
pub struct UnreadableSource(pub String);

impl SourceSettings {
    /// Settings that keep to the rules of their kind.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn parse(mut input: SourceInput) -> Result<Self, Vec<InvalidSource>> {
        let mut faults = Vec::new();
        let name = noted("/name", SourceName::from_str(&input.name), &mut faults);
        let kind = noted("/kind", SourceKind::from_str(&input.kind), &mut faults);
        if kind.is_none() {
            // Which others there are, its kind says.
            input.options.retain(|name, _| COMMON_OPTIONS.contains(&name.as_str()));
        }
        let name = name.unwrap_or_else(|| SourceName(Arc::default()));
        let settings = Self::read(input, name, kind.unwrap_or_default(), &mut faults);
        if let Some(kind) = kind {
            kind.check(&settings, &mut faults);
        }
        if faults.is_empty() { Ok(settings) } else { Err(faults) }
    }

    /// What of an input can be used, whatever its name and kind are; notes the rest.
    fn read(
        input: SourceInput,
        name: SourceName,
        kind: SourceKind,
        faults: &mut Vec<InvalidSource>,
    ) -> Self {
        Self {
            name,
            kind,
            secrets: secrets(&input.secrets, faults),
            window: duration("/window_s", input.window_s, 1, WINDOW_MAX, faults),
            tolerance: duration("/tolerance_s", input.tolerance_s, 0, TOLERANCE_MAX, faults),
            public_url: input
                .public_url
                .and_then(|url| noted("/public_url", PublicUrl::parse(&url), faults)),
            dedupe: input.dedupe.and_then(|rule| dedupe(&rule, faults)),
            options: SourceOptions::parse(input.options, kind, faults),
        }
    }

    /// As it would be asked for, without the secrets.
    pub fn to_input(&self) -> SourceInput {
        SourceInput {
            name: self.name.to_string(),
            kind: self.kind.as_str().to_owned(),
            secrets: Vec::new(),
            window_s: self.window.map(|window| window.as_secs()),
            tolerance_s: self.tolerance.map(|tolerance| tolerance.as_secs()),
            public_url: self.public_url.as_ref().map(ToString::to_string),
            dedupe: self.dedupe.as_ref().map(|rule| match rule {
                DedupeRule::Header(name) => json!({ "header": name.as_str() }),
                DedupeRule::Pointers(pointers) => json!({ "pointers": pointers }),
            }),
            options: self.options.to_json(),
        }
    }

    /// The stored form of everything but the secrets, JSON.
    pub fn to_stored(&self) -> String {
        serde_json::to_string(&self.to_input()).unwrap_or_default()
    }

    /// The stored form of the secrets: a JSON array of texts.
    pub fn secrets_to_stored(&self) -> String {
        let texts: Vec<_> = self.secrets.iter().map(SourceSecret::expose).collect();
        serde_json::to_string(&texts).unwrap_or_default()
    }

    /// Reads the stored forms.
    ///
    /// # Errors
    /// [`UnreadableSource`] says what cannot be used.
    pub fn from_stored(settings: &str, secrets: &str) -> Result<Self, UnreadableSource> {
        let mut input: SourceInput = serde_json::from_str(settings)
            .map_err(|_| UnreadableSource("they are not in a form that is known".to_owned()))?;
        input.secrets = serde_json::from_str(secrets)
            .map_err(|_| UnreadableSource("the secrets are not a list of texts".to_owned()))?;
        Self::parse(input).map_err(|faults| {
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            UnreadableSource(faults.join("; "))
        })
    }

    /// What can be used of stored forms that [`Self::from_stored`] refuses: the rest is as if it
    /// had not been set. What cannot be used must not be served with it.
    pub fn salvaged(name: SourceName, settings: &str, secrets: &str) -> Self {
        let mut input: SourceInput = serde_json::from_str(settings).unwrap_or_default();
        input.secrets = serde_json::from_str(secrets).unwrap_or_default();
        let kind = SourceKind::from_str(&input.kind).unwrap_or_default();
        // Those that refused it have told what is wrong.
        Self::read(input, name, kind, &mut Vec::new())
    }
}

fn noted<T, E: std::fmt::Display>(
    pointer: &str,
    parsed: Result<T, E>,
    faults: &mut Vec<InvalidSource>,
) -> Option<T> {
    parsed.map_err(|error| faults.push(InvalidSource::new(pointer, error.to_string()))).ok()
}

fn duration(
    pointer: &str,
    seconds: Option<u64>,
    least: u64,
    most: Duration,
    faults: &mut Vec<InvalidSource>,
) -> Option<Duration> {
    let seconds = seconds?;
    if (least..=most.as_secs()).contains(&seconds) {
        return Some(Duration::from_secs(seconds));
    }
    let detail = format!("must be from {least} to {} seconds", most.as_secs());
    faults.push(InvalidSource::new(pointer, detail));
    None
}

fn secrets(texts: &[String], faults: &mut Vec<InvalidSource>) -> Vec<SourceSecret> {
    if texts.len() > SECRETS_MAX {
        let detail = format!("may have at most {SECRETS_MAX} entries");
        faults.push(InvalidSource::new("/secrets", detail));
    }
    let texts = &texts[..texts.len().min(SECRETS_MAX)];
    for (index, text) in texts.iter().enumerate() {
        let detail = match text.len() {
            0 => "must not be empty".to_owned(),
            length if length > SECRET_BYTES_MAX => format!("has at most {SECRET_BYTES_MAX} bytes"),
            _ => continue,
        };
        faults.push(InvalidSource::new(format!("/secrets/{index}"), detail));
    }
    texts.iter().map(|text| SourceSecret::new(text)).collect()
}

fn dedupe(rule: &Value, faults: &mut Vec<InvalidSource>) -> Option<DedupeRule> {
    let members = rule.as_object().filter(|members| members.len() == 1);
    let header = members.and_then(|members| members.get("header")).and_then(Value::as_str);
    if let Some(name) = header {
        let detail = "must be the name of a header";
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| detail);
        return noted("/dedupe/header", name, faults).map(DedupeRule::Header);
    }
    let Some(list) = members.and_then(|members| members.get("pointers")).and_then(Value::as_array)
    else {
        let detail = "must be {\"header\": name} or {\"pointers\": [JSON pointer, …]}";
        faults.push(InvalidSource::new("/dedupe", detail));
        return None;
    };
    if list.is_empty() || list.len() > POINTERS_MAX {
        let detail = format!("must have 1 to {POINTERS_MAX} entries");
        faults.push(InvalidSource::new("/dedupe/pointers", detail));
        return None;
    }
    let mut pointers = Vec::with_capacity(list.len());
    for (index, text) in list.iter().enumerate() {
        let text = text.as_str().unwrap_or("\u{0}");
        let pointer = JsonPointer::from_str(text);
        pointers.extend(noted(&format!("/dedupe/pointers/{index}"), pointer, faults));
    }
    (pointers.len() == list.len()).then_some(DedupeRule::Pointers(pointers))
}
