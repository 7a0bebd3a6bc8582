//! Forms: bodies and queries of the type `application/x-www-form-urlencoded`, and bodies of the
//! type `multipart/form-data`, which can hold files.

use std::borrow::Cow;

use super::InboundRequest;
use super::mime::{self, Entity};

/// The most fields of a form that are read, one by one as a list: as many as parts of a body. Some
/// signatures are among the fields, so this is what anybody can make us keep.
const FIELDS_MAX: usize = mime::PARTS_MAX;

/// Whether the body is a form without files.
pub(super) fn is_body_of(request: &InboundRequest<'_>) -> bool {
    request.media_type() == "application/x-www-form-urlencoded"
}

/// The fields in their order, decoded (WHATWG URL §5.1).
fn fields(text: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(text)
}

/// All fields in their order; `None` if they are more than [`FIELDS_MAX`].
pub(super) fn all_fields(text: &[u8]) -> Option<Vec<(Cow<'_, str>, Cow<'_, str>)>> {
    let fields: Vec<_> = fields(text).take(FIELDS_MAX + 1).collect();
    (fields.len() <= FIELDS_MAX).then_some(fields)
}

/// The first field of this name, if it is not empty.
pub(super) fn field<'a>(text: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let value = fields(text).find_map(|(other, value)| (other == name).then_some(value))?;
    (!value.is_empty()).then_some(value)
}

/// Why a body is not read as a form.
pub(super) const NO_FORM: &str = "the body is not a form, or one of more than 1,000 fields";

/// The fields and files of a body, in their order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Form<'a>(Vec<Field<'a>>);

/// A field, or a file.
#[derive(Debug, PartialEq, Eq)]
struct Field<'a> {
    name: Cow<'a, str>,
    value: Cow<'a, [u8]>,
    is_file: bool,
}

impl<'a> Form<'a> {
    /// Reads the body as what its media type says; `None` if that is no form, or one of too many
    /// fields.
    pub(super) fn of_body(request: &InboundRequest<'a>) -> Option<Self> {
        if is_body_of(request) {
            let field = |(name, value)| {
                let value = match value {
                    Cow::Borrowed(text) => Cow::Borrowed(str::as_bytes(text)),
                    Cow::Owned(text) => Cow::Owned(String::into_bytes(text)),
                };
                Field { name, value, is_file: false }
            };
            return Some(Self(all_fields(request.body)?.into_iter().map(field).collect()));
        }
        if request.media_type() != "multipart/form-data" {
            return None;
        }
        let content_type = request.described("content-type")?;
        let boundary = mime::parameter(content_type.as_bytes(), "boundary")?;
        let parts = mime::parts(request.body, &boundary)?;
        Some(Self(parts.into_iter().filter_map(part).collect()))
    }

    /// The first field of this name that is not empty.
    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        let fits = |field: &&Field<'_>| field.name == name && !field.value.is_empty();
        self.0.iter().find(fits).map(|field| &*field.value)
    }

    /// As [`Self::bytes`]; what is no UTF-8 becomes the sign for that.
    pub(super) fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.bytes(name).map(String::from_utf8_lossy)
    }

    /// The files, in their order.
    pub(super) fn files(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(|field| field.is_file).map(|field| &*field.value)
    }
}

/// A part as RFC 7578 §4.2 has it; one without a name is nothing.
fn part(bytes: &[u8]) -> Option<Field<'_>> {
    let entity = Entity::parse(bytes);
    let disposition = entity.first("content-disposition")?;
    let name = mime::parameter(&disposition, "name")?;
    let is_file = mime::parameter(&disposition, "filename").is_some()
        || mime::parameter(&disposition, "filename*").is_some();
    let name = String::from_utf8_lossy(&name).into_owned();
    Some(Field { name: Cow::Owned(name), value: Cow::Borrowed(entity.body()), is_file })
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method};

    use super::*;

    type Fields<'f> = &'f [(&'f str, &'f [u8], bool)];

    fn check(content_type: &str, body: &[u8], expected: Option<Fields<'_>>) {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_str(content_type).unwrap());
        let request =
            InboundRequest { method: &Method::POST, target: "/", headers: &headers, body };
        let found = Form::of_body(&request).map(|form| form.0);
        let found = found.as_ref().map(|fields| {
            let field = |field: &'_ Field<'_>| {
                (field.name.to_string(), field.value.to_vec(), field.is_file)
            };
            fields.iter().map(field).collect::<Vec<_>>()
        });
        let expected = expected.map(|fields| {
            let field =
                |field: &(&str, &[u8], bool)| (field.0.to_owned(), field.1.to_vec(), field.2);
            fields.iter().map(field).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "{content_type}");
    }

    #[test]
    fn both_kinds_of_forms() {
        let urlencoded = "Application/X-WWW-Form-Urlencoded; charset=utf-8";
        check(
            urlencoded,
            b"a=1&b=%C3%A4+x&a=",
            Some(&[("a", b"1", false), ("b", "ä x".as_bytes(), false), ("a", b"", false)]),
        );
        check(urlencoded, b"", Some(&[]));
        let most: Vec<_> = [("a", &b""[..], false)].repeat(FIELDS_MAX);
        check(urlencoded, "a&".repeat(FIELDS_MAX).as_bytes(), Some(&most));
        check(urlencoded, "a&".repeat(FIELDS_MAX + 1).as_bytes(), None);
        let body = b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n\r\n--x\r\n\
            content-disposition: form-data; name=\"f\"; filename=\"n;ame\"\r\n\
            Content-Type: image/png\r\n\r\n\xff\xd8\r\n--x\r\n\r\nno name\r\n--x--\r\n";
        let fields: &[(&str, &[u8], bool)] = &[("a", b"1\r\n", false), ("f", b"\xff\xd8", true)];
        check("multipart/form-data; boundary=x", body, Some(fields));
        check("multipart/form-data; boundary=\"x\"", body, Some(fields));
        for other in ["multipart/form-data", "multipart/form-data; boundary=y", "text/plain"] {
            check(other, body, None);
        }
    }
}
