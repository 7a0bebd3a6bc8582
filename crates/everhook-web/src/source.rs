//! From an owner's bytes to a source's settings, and what of a source is shown.
//!
//! Shown is never a secret, nor a password in a URL. A mask that comes back is refused, so that
//! reading, editing and sending back cannot replace the real value with it.

mod shown;

use std::borrow::Cow;

use everhook_domain::source::{SECRETS_MAX, SourceInput, SourceSecret, SourceSettings};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::endpoint::{MASK, MASK_REFUSED};
use crate::json::{self, Members};
use crate::problem::{FieldErrors, Problem};

pub(crate) use shown::ShownSource;

const MEMBERS: &[&str] =
    &["name", "kind", "secrets", "window_s", "tolerance_s", "public_url", "dedupe", "options"];

/// Harmless wherever a secret is expected; keeps the others' places.
const PLACEHOLDER: &str = "x";

/// Reads the body of `POST /api/v1/sources`.
///
/// # Errors
/// `malformed-json`, `duplicate-member`, or `invalid` with everything that is wrong.
pub fn parse_source(body: &[u8]) -> Result<SourceSettings, Problem> {
    read(body, None)
}

/// Reads the body of `PATCH /api/v1/sources/{id}`: a member that is there replaces the current
/// value, `null` sets it back to what it is when left out at creation (RFC 7396). `options` are
/// merged one by one; `secrets` and `dedupe` are replaced as wholes.
///
/// # Errors
/// As [`parse_source`].
pub fn parse_source_patch(
    body: &[u8],
    current: &SourceSettings,
) -> Result<SourceSettings, Problem> {
    read(body, Some(current))
}

fn read(body: &[u8], current: Option<&SourceSettings>) -> Result<SourceSettings, Problem> {
    let members = Members::of_body(body, MEMBERS)?;
    let mut errors = FieldErrors::default();
    members.refuse_unknown(&mut errors);
    let mut input = current.map(as_asked_for).unwrap_or_default();
    if current.is_none() {
        members.required("name", &mut errors);
        members.required("kind", &mut errors);
    }
    let mut reader = Reader { members, errors };
    reader.member("name", &mut input.name, |value| json::text(value).map(Cow::into_owned));
    reader.member("kind", &mut input.kind, |value| json::text(value).map(Cow::into_owned));
    reader.clearable("window_s", &mut input.window_s, |value| seconds(value).map(Some));
    reader.clearable("tolerance_s", &mut input.tolerance_s, |value| seconds(value).map(Some));
    reader.clearable("public_url", &mut input.public_url, |value| public_url(value).map(Some));
    reader.clearable("dedupe", &mut input.dedupe, |value| any(value).map(Some));
    reader.secrets(&mut input.secrets);
    reader.options(&mut input.options);
    let mut errors = reader.errors;
    let settings = SourceSettings::parse(input);
    for fault in settings.as_ref().err().into_iter().flatten() {
        // What is not even of the right type was told already.
        if !errors.has_at(&fault.pointer) {
            errors.add_at(&fault.pointer, fault.detail.clone());
        }
    }
    errors.check()?;
    settings.map_err(|_| Problem::internal())
}

fn as_asked_for(current: &SourceSettings) -> SourceInput {
    let secrets = current.secrets.iter().map(|secret| SourceSecret::expose(secret).to_owned());
    SourceInput { secrets: secrets.collect(), ..current.to_input() }
}

struct Reader<'a> {
    members: Members<'a>,
    errors: FieldErrors,
}

impl<'a> Reader<'a> {
    /// A member that is as it was, or has to be something.
    fn member<T>(
        &mut self,
        name: &str,
        place: &mut T,
        parse: impl FnOnce(&'a RawValue) -> Result<T, Cow<'static, str>>,
    ) {
        let Some(value) = self.members.get(name) else { return };
        match parse(value) {
            Ok(value) => *place = value,
            Err(detail) => self.errors.add("", name, detail),
        }
    }

    /// As [`Self::member`]; `null` is as if it had been left out at creation.
    fn clearable<T: Default>(
        &mut self,
        name: &str,
        place: &mut T,
        parse: impl FnOnce(&'a RawValue) -> Result<T, Cow<'static, str>>,
    ) {
        self.member(name, place, |value| match json::is_null(value) {
            true => Ok(T::default()),
            false => parse(value),
        });
    }

    fn secrets(&mut self, place: &mut Vec<String>) {
        let mut items = Vec::new();
        self.clearable("secrets", &mut items, json::items::<SECRETS_MAX>);
        if self.members.get("secrets").is_none() {
            return;
        }
        *place = (0..)
            .zip(items)
            .map(|(index, value): (usize, _)| {
                let text = json::text(value).map(Cow::into_owned);
                text.unwrap_or_else(|detail| {
                    self.errors.add_at(&format!("/secrets/{index}"), detail);
                    PLACEHOLDER.to_owned()
                })
            })
            .collect();
    }

    fn options(&mut self, place: &mut Map<String, Value>) {
        let Some(value) = self.members.get("options") else { return };
        if json::is_null(value) {
            place.clear();
            return;
        }
        match serde_json::from_str::<Map<String, Value>>(value.get()) {
            Ok(options) => {
                for (name, value) in options {
                    match value {
                        Value::Null => drop(place.remove(&name)),
                        value => drop(place.insert(name, value)),
                    }
                }
            }
            Err(_) => {
                let kind = json::kind_of(value);
                self.errors.add("", "options", format!("must be an object, not {kind}"));
            }
        }
    }
}

fn seconds(value: &RawValue) -> Result<u64, Cow<'static, str>> {
    let number = value.get().parse().ok();
    number.ok_or_else(|| Cow::from("must be a whole number of seconds"))
}

fn public_url(value: &RawValue) -> Result<String, Cow<'static, str>> {
    let text = json::text(value)?;
    if text.split(['/', '?']).nth(2).is_some_and(|authority| authority.contains(MASK)) {
        return Err(Cow::from(MASK_REFUSED));
    }
    Ok(text.into_owned())
}

fn any(value: &RawValue) -> Result<Value, Cow<'static, str>> {
    serde_json::from_str(value.get()).map_err(|_| Cow::from("holds half of a surrogate pair"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pointers of what is wrong, or the settings as they are stored.
    fn check(body: &str, current: Option<&SourceSettings>, expected: Result<&str, &[&str]>) {
        let read = read(body.as_bytes(), current)
            .map(|settings| format!("{} {}", settings.to_stored(), settings.secrets_to_stored()));
        let pointers = read.as_ref().map(String::as_str).map_err(|problem| {
            problem.errors().iter().map(|error| error.pointer.as_str()).collect::<Vec<_>>()
        });
        assert_eq!(pointers, expected.map_err(<[&str]>::to_vec), "{body}");
    }

    #[test]
    fn what_is_asked_for() {
        check(
            r#"{"name":"shop","kind":"stripe","secrets":["whsec_1"]}"#,
            None,
            Ok(r#"{"name":"shop","kind":"stripe"} ["whsec_1"]"#),
        );
        check(
            r#"{"name":"a","kind":"none","secrets":null,"window_s":60,"tolerance_s":0,
                "public_url":"https://a.test/x","dedupe":{"pointers":["/id"]},
                "options":{"empty":"ignore"}}"#,
            None,
            Ok(concat!(
                r#"{"name":"a","kind":"none","window_s":60,"tolerance_s":0,"#,
                r#""public_url":"https://a.test/x","dedupe":{"pointers":["/id"]},"#,
                r#""options":{"empty":"ignore"}} []"#,
            )),
        );
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        check("{}", None, Err(&["/name", "/kind"]));
        check(
            r#"{"name":"A","kind":"x","secrets":"a","window_s":"1","tolerance_s":1.5,"extra":1,
                "public_url":"https://***:***@a.test","dedupe":1,"options":[]}"#,
            None,
            Err(&[
                "/extra",
                "/window_s",
                "/tolerance_s",
                "/public_url",
                "/secrets",
                "/options",
                "/name",
                "/kind",
                "/dedupe",
            ]),
        );
        check(
            r#"{"name":"a","kind":"stripe","secrets":["",7],"options":{"empty":"x","y":1}}"#,
            None,
            Err(&["/secrets/1", "/secrets/0", "/options/empty", "/options/y"]),
        );
        check(r#"{"name":"a","kind":"stripe"}"#, None, Err(&["/secrets"]));
    }

    #[test]
    fn a_patch_merges() {
        let body = br#"{"name":"a","kind":"stripe","secrets":["one","two"],"window_s":60,
            "options":{"empty":"ignore","reject_status":403}}"#;
        let current = read(body, None).expect("legal");
        let current = Some(&current);
        for (patch, expected) in [
            (
                "{}",
                concat!(
                    r#"{"name":"a","kind":"stripe","window_s":60,"#,
                    r#""options":{"empty":"ignore","reject_status":403}} ["one","two"]"#,
                ),
            ),
            (
                r#"{"secrets":["three"],"window_s":null,"options":{"empty":null}}"#,
                r#"{"name":"a","kind":"stripe","options":{"reject_status":403}} ["three"]"#,
            ),
            (
                r#"{"name":"b","options":null}"#,
                r#"{"name":"b","kind":"stripe","window_s":60} ["one","two"]"#,
            ),
        ] {
            check(patch, current, Ok(expected));
        }
        check(r#"{"secrets":null}"#, current, Err(&["/secrets"]));
        check(r#"{"name":null,"kind":null}"#, current, Err(&["/name", "/kind"]));
    }
}
