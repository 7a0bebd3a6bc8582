//! Bodies that are JSON arrays: one event an item.

use std::borrow::Cow;

use super::json::{self, Object};
use super::provider::Found;
use crate::source::{Forward, SourceOptions};

/// The events of an array, each read by `read`; `None` if the body is no array. An item that is no
/// object is kept and not run.
///
/// An item goes on as an array of one, or bare if the source is set so. An array that has only one
/// goes on as it came, so that the provider's signature fits it still.
pub(super) fn events<'a>(
    body: &'a [u8],
    options: &SourceOptions,
    read: impl Fn(&Object<'a>) -> Found<'a>,
) -> Option<Vec<Found<'a>>> {
    let items = json::items(body)?;
    let only = items.len() == 1;
    let event = |item: &'a serde_json::value::RawValue| {
        let bytes = item.get().as_bytes();
        let found = match Object::parse(bytes) {
            Some(object) => read(&object),
            None => Found::unreadable("the item is not a JSON object"),
        };
        let body = match options.forward {
            Forward::Item => Some(Cow::Borrowed(bytes)),
            Forward::Array if only => None,
            Forward::Array => Some(Cow::Owned([b"[", bytes, b"]"].concat())),
        };
        Found { body, item: Some(Cow::Borrowed(bytes)), ..found }
    };
    Some(items.into_iter().map(event).collect())
}
