//! A source's own rule of what identifies an event.

use http::HeaderName;

use crate::subscription::JsonPointer;

/// The most pointers of a rule.
pub const POINTERS_MAX: usize = 16;

/// What identifies an event, in place of the kind's rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DedupeRule {
    /// The value of this header.
    Header(HeaderName),
    /// The values of these parts of the body (of an array: of each item) together.
    Pointers(Vec<JsonPointer>),
}
