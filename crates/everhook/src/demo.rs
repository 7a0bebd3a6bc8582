//! The demo: a story that plays on a real server, against a receiver of its own.
//!
//! It is the first thing that most people see, and a test of the whole product: it has no inside
//! knowledge, and its end is an error unless everything that it promises was seen.

pub(crate) mod api;
pub(crate) mod receiver;
pub(crate) mod screen;
pub(crate) mod story;
pub(crate) mod summary;
