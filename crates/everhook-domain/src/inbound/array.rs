//! Bodies that are JSON arrays: one event an item.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json::{Array, ITEMS_MAX, Object};
use super::provider::Found;
use crate::source::{Forward, SourceOptions};

/// What stands around an item that goes on alone: before it, and after it.
pub(super) type Envelope<'e> = (&'e [u8], &'e [u8]);

/// The events of an array, each read by `read`; `None` if the body is no array. One of too many
/// items is kept whole: no provider sends it, and each item would be a receipt.
pub(super) fn events<'a>(
    body: &'a [u8],
    options: &SourceOptions,
    read: impl Fn(&Object<'a>) -> Found<'a>,
) -> Option<Vec<Found<'a>>> {
    Some(match Array::parse(body)? {
        Array::Items(items) => split(&items, (b"[", b"]"), options, read),
        Array::TooMany => {
            vec![Found::unreadable(&format!("the array has more than {ITEMS_MAX} items"))]
        }
    })
}

/// The events of the items of an array, each read by `read`. An item that is no object is kept and
/// not run.
///
/// An item goes on in an envelope of its own, or bare if the source is set so. An array that has
/// only one goes on as it came, so that the provider's signature fits it still.
pub(super) fn split<'a>(
    items: &[&'a RawValue],
    envelope: Envelope<'_>,
    options: &SourceOptions,
    read: impl Fn(&Object<'a>) -> Found<'a>,
) -> Vec<Found<'a>> {
    let only = items.len() == 1;
    let event = |item: &&'a RawValue| {
        let bytes = item.get().as_bytes();
        let found = match Object::parse(bytes) {
            Some(object) => read(&object),
            None => Found::unreadable("the item is not a JSON object"),
        };
        let body = match options.forward {
            Forward::Item => Some(Cow::Borrowed(bytes)),
            Forward::Array if only => None,
            Forward::Array => Some(Cow::Owned([envelope.0, bytes, envelope.1].concat())),
        };
        Found { body, item: Some(Cow::Borrowed(bytes)), ..found }
    };
    items.iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(body: &'a [u8], options: &SourceOptions) -> Option<Vec<Found<'a>>> {
        let read = |object: &Object<'a>| Found {
            key: object.scalar("id").into_iter().collect(),
            ..Found::default()
        };
        events(body, options, read)
    }

    #[test]
    fn each_item_is_an_event_with_its_own_bytes() {
        let (body, mut options) = (
            b"\xef\xbb\xbf[ {\"id\": 1.0,\"a\":\"\\u001B\"} ,2,\r\n{\"id\":\"x\"}]\r\n",
            SourceOptions::default(),
        );
        let items = found(body, &options).unwrap();
        let bodies: Vec<_> = items.iter().map(|found| found.body.as_deref().unwrap()).collect();
        let expected: [&[u8]; 3] =
            [b"[{\"id\": 1.0,\"a\":\"\\u001B\"}]", b"[2]", b"[{\"id\":\"x\"}]"];
        assert_eq!(bodies, expected);
        let keys: Vec<_> = items.iter().map(|found| found.key.join(" ")).collect();
        assert_eq!(keys, ["1.0", "", "x"]);
        let unreadable: Vec<_> = items.iter().map(|found| found.unreadable.is_some()).collect();
        assert_eq!(unreadable, [false, true, false]);
        options.forward = Forward::Item;
        let items = found(body, &options).unwrap();
        assert!(items.iter().all(|found| found.body == found.item));
        assert_eq!(items[2].body.as_deref(), Some(&b"{\"id\":\"x\"}"[..]));
    }

    #[test]
    fn one_goes_on_as_it_came_and_none_is_none() {
        let options = SourceOptions::default();
        assert_eq!(found(b" [{\"id\":1}] ", &options).unwrap()[0].body, None);
        assert_eq!(found(b" [ ] ", &options), Some(Vec::new()));
        for body in [&b"{}"[..], b"", b"[1,", b"[{\"id\":1}] x", b"null"] {
            assert_eq!(found(body, &options), None, "{body:?}");
        }
    }

    #[test]
    fn more_items_than_anybody_sends_are_one_that_is_kept() {
        let options = SourceOptions::default();
        let array = |items: usize| ["[", &"1,".repeat(items - 1), "1]"].concat();
        for items in [10_000, ITEMS_MAX] {
            assert_eq!(found(array(items).as_bytes(), &options).unwrap().len(), items);
        }
        let kept = [Found::unreadable("the array has more than 20000 items")];
        // What follows is not looked at.
        for text in [array(ITEMS_MAX + 1), format!("[{}!", "1,".repeat(ITEMS_MAX + 1))] {
            assert_eq!(found(text.as_bytes(), &options).unwrap(), kept);
        }
    }
}
