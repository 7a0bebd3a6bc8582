//! JSON of providers: members are read when they are asked for, numbers as they are written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::subscription::JsonPointer;

/// The most members of an object that is read: what anybody sends is looked into, and each costs
/// more than it has bytes.
const MEMBERS_MAX: usize = 100_000;
/// The most items of an array that are read. Providers send a few thousand at most; 20,000 are more
/// than any, and few enough to be stored in one transaction.
pub(super) const ITEMS_MAX: usize = 20_000;

/// An object; of members with the same name the last one counts.
#[derive(Debug)]
pub(super) struct Object<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

/// A name that is borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Object<'a> {
    /// Reads an object; a byte-order mark before it is passed over. `None` if it is anything else,
    /// or has too many members.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let mut members = BTreeMap::new();
        let mut reader = serde_json::Deserializer::from_slice(without_mark(text));
        let read = reader.deserialize_map(CollectMembers(&mut members));
        read.and_then(|()| reader.end()).ok().map(|()| Self(members))
    }

    /// A member as it is written.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name).copied()
    }

    /// The members and their values as they are written, by name.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
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

/// Collects members, and gives up at the first that is too many.
struct CollectMembers<'m, 'a>(&'m mut BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Visitor<'a> for CollectMembers<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some((name, value)) = members.next_entry::<Name<'a>, _>()? {
            self.0.insert(name.0, value);
            if self.0.len() > MEMBERS_MAX {
                return Err(A::Error::custom("too many members"));
            }
        }
        Ok(())
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
        let read = reader.deserialize_seq(CollectItems(&mut items)).and_then(|()| reader.end());
        match read {
            Ok(()) => Some(Self::Items(items)),
            Err(_) if items.len() > ITEMS_MAX => Some(Self::TooMany),
            Err(_) => None,
        }
    }
}

/// Collects items, and gives up at the first that is too many.
struct CollectItems<'i, 'a>(&'i mut Vec<&'a RawValue>);

impl<'a> Visitor<'a> for CollectItems<'_, 'a> {
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

/// As [`scalar`], and an object or an array as it is written.
pub(super) fn written(value: &RawValue) -> Option<Cow<'_, str>> {
    match value.get().as_bytes().first()? {
        b'{' | b'[' => Some(Cow::Borrowed(value.get())),
        _ => scalar(value),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_more_members_than_anybody_sends_is_not_read() {
        let object = |members: usize| {
            let members: Vec<_> = (0..members).map(|number| format!("\"{number}\":1")).collect();
            format!("{{{}}}", members.join(","))
        };
        for (members, expected) in [(0, true), (MEMBERS_MAX, true), (MEMBERS_MAX + 1, false)] {
            assert_eq!(Object::parse(object(members).as_bytes()).is_some(), expected, "{members}");
        }
        let same = format!("{{{}\"a\":2}}", "\"a\":1,".repeat(MEMBERS_MAX + 1));
        let last = Object::parse(same.as_bytes()).unwrap();
        assert_eq!(last.scalar("a").as_deref(), Some("2"), "the last one counts");
    }
}
