//! The outermost level of a JSON text: the members of an object or the items of an array. Values
//! inside stay raw. Only the first so many are kept, the rest is read over and counted.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{MEMBERS_MAX, Object};

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut object = Object::default();
                while object.members.len() < MEMBERS_MAX {
                    match map.next_entry::<Name<'de>, &'de RawValue>()? {
                        Some((Name(name), value)) => object.members.push((name, value)),
                        None => return Ok(object),
                    }
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    object.unread += 1;
                }
                Ok(object)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// A member's name, borrowed where it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// The first `MAX` items of an array, and how many it has in all.
#[derive(Debug)]
pub(super) struct Items<'a, const MAX: usize> {
    pub(super) first: Vec<&'a RawValue>,
    pub(super) total: usize,
}

impl<'de, const MAX: usize> Deserialize<'de> for Items<'de, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sequence<const MAX: usize>;

        impl<'de, const MAX: usize> Visitor<'de> for Sequence<MAX> {
            type Value = Items<'de, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut first = Vec::new();
                while first.len() < MAX {
                    match seq.next_element()? {
                        Some(item) => first.push(item),
                        None => return Ok(Items { total: first.len(), first }),
                    }
                }
                let mut total = first.len();
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    total += 1;
                }
                Ok(Items { first, total })
            }
        }

        deserializer.deserialize_seq(Sequence)
    }
}
