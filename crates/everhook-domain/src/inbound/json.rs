//! JSON of providers: members are read when they are asked for, numbers as they are written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::subscription::JsonPointer;

/// The most items of an array that are read. Providers send a few thousand at most; 20,000 are more
/// than any, and few enough to be stored in one transaction.
pub(super) const ITEMS_MAX: usize = 20_000;

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

/// An array.
#[derive(Debug)]
pub(super) enum Array<'a> {
    /// Its items, as they are written.
    Items(Vec<&'a RawValue>),
    /// One of more than [`ITEMS_MAX`] items. What comes after them was not looked at.
    TooMany,
}

impl<'a> Array<'a> {
    /// Reads an array; `None` if it is anything else.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let mut items = Vec::new();
        let mut reader = serde_json::Deserializer::from_slice(without_mark(text));
        let read = reader.deserialize_seq(Collect(&mut items)).and_then(|()| reader.end());
        match read {
            Ok(()) => Some(Self::Items(items)),
            Err(_) if items.len() > ITEMS_MAX => Some(Self::TooMany),
            Err(_) => None,
        }
    }
}

/// Collects items, and gives up at the first that is too many.
struct Collect<'i, 'a>(&'i mut Vec<&'a RawValue>);

impl<'a> Visitor<'a> for Collect<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            self.0.push(item);
            if self.0.len() > ITEMS_MAX {
                return Err(A::Error::custom("too many items"));
            }
        }
        Ok(())
    }
}

/// The items of an array, as they are written; `None` if it is anything else, or too long.
pub(super) fn items(text: &[u8]) -> Option<Vec<&RawValue>> {
    match Array::parse(text)? {
        Array::Items(items) => Some(items),
        Array::TooMany => None,
    }
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
