//! The configuration in effect, for people and for scripts.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::problem::Problems;
use super::reader::Effective;

/// Width of the column of settings, in characters; longer ones push their origin to the right.
const SETTING_COLUMN: usize = 52;

/// The settings as a TOML file, each with the layer that it comes from as a comment.
pub(crate) fn as_text(effective: &[Effective]) -> String {
    let mut text = String::new();
    let mut open = "";
    for Effective { key, value, origin, .. } in effective {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        if section != open {
            let gap = if open.is_empty() { "" } else { "\n" };
            let _infallible = writeln!(text, "{gap}[{section}]");
            open = section;
        }
        let setting = format!("{name} = {value}");
        let _infallible = writeln!(text, "{setting:<SETTING_COLUMN$} # {origin}");
    }
    text
}

/// The settings for scripts.
pub(crate) fn as_json(effective: &[Effective]) -> Value {
    let setting = |Effective { key, value, allowed, origin }: &Effective| {
        json!({
            "key": key,
            "value": json_of(value),
            "layer": origin.layer(),
            "where": origin.to_string(),
            "allowed": allowed,
        })
    };
    json!({ "ok": true, "settings": effective.iter().map(setting).collect::<Vec<_>>() })
}

/// What is wrong, for scripts.
pub(crate) fn problems_as_json(Problems(problems): &Problems) -> Value {
    json!({ "ok": false, "problems": problems })
}

/// The TOML values that rules write (text, numbers, switches, lists of these) are JSON as well.
fn json_of(toml: &str) -> Value {
    serde_json::from_str(toml).unwrap_or_else(|_| Value::from(toml))
}
