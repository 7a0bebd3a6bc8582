//! What two requests with one key are compared by.

use super::multipart;
use crate::digest::Parts;

/// What a request is compared by when its key is seen again: SHA-256 of a version, the content
/// type and the raw body. A multipart body is taken by its parts, since its boundary is drawn anew
/// for each try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

/// The rule by which fingerprints are made. Goes into each, so that a later rule cannot be taken
/// for this one, and is stored beside it where the rule may change while records live.
pub const RULE: u8 = 1;

/// How deep parts may be multipart themselves; what lies deeper is taken raw.
const DEPTH_MAX: usize = 4;

impl Fingerprint {
    /// The fingerprint of a request.
    pub fn new(content_type: &[u8], body: &[u8]) -> Self {
        let mut hash = Parts::default();
        let rule = RULE.to_string();
        match multipart::parse(content_type, body) {
            Some(message) => {
                hash.part(format!("{rule} multipart").as_bytes());
                feed(&mut hash, &message, DEPTH_MAX);
            }
            None => {
                for bytes in [rule.as_bytes(), content_type, body] {
                    hash.part(bytes);
                }
            }
        }
        Self(hash.finish())
    }
}

fn feed(hash: &mut Parts, message: &multipart::Message<'_>, depth: usize) {
    hash.part(&message.content_type);
    hash.part(&(message.parts.len() as u64).to_be_bytes());
    for one in &message.parts {
        let nested = (depth > 0).then(|| multipart::parse(one.content_type(), one.body)).flatten();
        hash.part(&(one.headers.len() as u64).to_be_bytes());
        for (name, value) in &one.headers {
            hash.part(name.as_bytes());
            // The nested boundary stands in this value; what is left of it comes below.
            let skip = nested.is_some() && name == multipart::CONTENT_TYPE;
            hash.part(if skip { b"" } else { value });
        }
        match nested {
            Some(nested) => feed(hash, &nested, depth - 1),
            None => hash.part(one.body),
        }
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    const FORM: &str = "multipart/form-data; boundary=@";

    /// `@` in both texts is replaced by the boundary.
    fn print(boundary: &str, content_type: &str, body: &str) -> Fingerprint {
        let set = |text: &str| text.replace('\n', "\r\n").replace('@', boundary);
        Fingerprint::new(set(content_type).as_bytes(), set(body).as_bytes())
    }

    #[test]
    fn the_plain_form_is_fixed() {
        let hex: String = Fingerprint::new(b"application/json", b"{}").0[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // Stored fingerprints depend on it: another value needs another rule.
        let mut hash = Sha256::new();
        for bytes in [&b"1"[..], b"application/json", b"{}"] {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        }
        let expected: [u8; 32] = hash.finalize().into();
        let expected: String = expected[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }

    #[test]
    fn parts_are_compared_and_boundaries_are_not() {
        let one = "--@\nContent-Disposition: form-data; name=\"a\"\n\nx\n--@--\n";
        let same = |content_type: &str, body: &str| {
            print("aaa", FORM, one) == print("zz-9", content_type, body)
        };
        for (content_type, body, right) in [
            (FORM, one, true),
            ("Multipart/Form-Data;BOUNDARY=\"@\"", one, true),
            (FORM, "--@  \ncontent-disposition:form-data; name=\"a\"\n\nx\n--@--", true),
            ("multipart/mixed; boundary=@", one, false),
            (FORM, &one.replace("\nx\n", "\ny\n"), false),
            (FORM, &one.replace("\"a\"", "\"b\""), false),
            (FORM, &one.replace("name=\"a\"", "name=\"a\"; filename=\"f\""), false),
            (FORM, &one.replace("\n\nx", "\nContent-Type: text/plain\n\nx"), false),
            (FORM, &one.replace("--@--", "--@\n\n\n--@--"), false),
            (FORM, &one.replace("--@--", ""), false),
            (FORM, &format!("before\n{one}"), false),
            (FORM, &format!("{one}after"), false),
            (FORM, &format!("{one}\n"), true),
        ] {
            assert_eq!(same(content_type, body), right, "{content_type}\n{body}");
        }
    }

    #[test]
    fn a_nested_boundary_is_none_of_the_request_either() {
        let body = "--@\nContent-Type: multipart/mixed; boundary=in@\n\n\
                    --in@\n\nx\n--in@--\n\n--@--\n";
        assert_eq!(print("a", FORM, body), print("b", FORM, body));
        assert_ne!(print("a", FORM, body), print("b", FORM, &body.replace("\nx\n", "\ny\n")));
    }

    #[test]
    fn content_cannot_move_from_one_part_to_the_next() {
        let two = |a: &str, b: &str| print("q", FORM, &format!("--@\n\n{a}\n--@\n\n{b}\n--@--\n"));
        assert_ne!(two("ab", "c"), two("a", "bc"));
        assert_ne!(two("a", "b"), two("b", "a"));
    }

    #[test]
    fn what_cannot_be_read_as_multipart_is_compared_raw() {
        for (content_type, body) in [
            ("multipart/form-data", "--@\n\nx\n--@--"),
            (FORM, "nothing of the kind"),
            (FORM, "--@\nno colon\n\nx\n--@--"),
        ] {
            assert_ne!(print("a", content_type, body), print("b", content_type, body), "{body}");
            assert_eq!(print("a", content_type, body), print("a", content_type, body));
        }
    }
}
