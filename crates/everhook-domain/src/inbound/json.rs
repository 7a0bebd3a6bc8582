//! JSON of providers: members are read when they are asked for, numbers as they are written.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::subscription::JsonPointer;

/// An object; of members with the same name the last one counts.
#[derive(Debug)]
pub(super) struct Object<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

/// A name that is borrowed where it has no escapes.
#[derive(serde::Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Object<'a> {
    /// Reads an object; a byte-order mark before it is passed over. `None` if it is anything else.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let members: BTreeMap<Name<'a>, &'a RawValue> =
            serde_json::from_slice(without_mark(text)).ok()?;
        Some(Self(members.into_iter().map(|(name, value)| (name.0, value)).collect()))
    }

    /// A member as it is written.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name).copied()
    }

    /// A member that is an object.
    pub(super) fn object(&self, name: &str) -> Option<Object<'a>> {
        Self::parse(self.raw(name)?.get().as_bytes())
    }

    /// A member that is a text that is not empty, a number or a truth value: the text, or the
    /// others as they are written.
    pub(super) fn scalar(&self, name: &str) -> Option<Cow<'a, str>> {
        scalar(self.raw(name)?)
    }
}

/// The items of an array, as they are written; `None` if it is anything else.
pub(super) fn items(text: &[u8]) -> Option<Vec<&RawValue>> {
    serde_json::from_slice(without_mark(text)).ok()
}

/// A text that is not empty, or a number or truth value as it is written.
pub(super) fn scalar(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => {
            let text: Name<'_> = serde_json::from_str(text).ok()?;
            (!text.0.is_empty()).then_some(text.0)
        }
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(text)),
    }
}

/// The value that a pointer names, as it is written.
pub(super) fn find<'a>(text: &'a [u8], pointer: &JsonPointer) -> Option<&'a RawValue> {
    let whole: &RawValue = serde_json::from_slice(without_mark(text)).ok()?;
    pointer.tokens().iter().try_fold(whole, |value, token| {
        let text = value.get().as_bytes();
        match text.first()? {
            b'{' => Object::parse(text)?.raw(token),
            b'[' => items(text)?.get(crate::subscription::array_index(token)?).copied(),
            _ => None,
        }
    })
}

/// The text without the byte-order mark that some senders put before it.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}
