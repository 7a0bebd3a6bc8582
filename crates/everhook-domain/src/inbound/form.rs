//! Bodies and queries of the type `application/x-www-form-urlencoded`.

use std::borrow::Cow;

use super::InboundRequest;

/// Whether the body is a form.
pub(super) fn is_body_of(request: &InboundRequest<'_>) -> bool {
    request.media_type() == "application/x-www-form-urlencoded"
}

/// The fields in their order, decoded (WHATWG URL §5.1).
pub(super) fn fields(text: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(text)
}

/// The first field of this name, if it is not empty.
pub(super) fn field<'a>(text: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let value = fields(text).find_map(|(other, value)| (other == name).then_some(value))?;
    (!value.is_empty()).then_some(value)
}
