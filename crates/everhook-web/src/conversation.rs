//! From a caller's bytes to what is asked of conversations: nothing invalid goes further.

use std::borrow::Cow;

use everhook_domain::conversation::{
    Assignee, Command, ConversationStatus, MessageBody, NewConversation, Text,
};
use serde_json::value::RawValue;

use crate::json::{self, Members, is_null};
use crate::problem::{FieldErrors, Problem};

/// Reads the body of `POST /api/v1/conversations`.
///
/// # Errors
/// `malformed-json`, `duplicate-member`, or `invalid` with everything that is wrong.
pub fn parse_conversation(body: &[u8]) -> Result<NewConversation, Problem> {
    let mut reader = Reader::new(body, &["subject", "status", "assignee"])?;
    let new = NewConversation {
        subject: reader.optional("subject", text),
        status: reader.optional("status", status).unwrap_or_default(),
        assignee: reader.optional("assignee", text),
    };
    reader.errors.check()?;
    Ok(new)
}

/// Reads the body of `PATCH /api/v1/conversations/{id}`: what is left out stays, `null` is what it
/// is when left out at creation.
///
/// # Errors
/// As [`parse_conversation`].
pub fn parse_conversation_patch(body: &[u8]) -> Result<Command, Problem> {
    let mut reader = Reader::new(body, &["status", "assignee"])?;
    let command = Command::Patch {
        status: reader.patched("status", status).map(Option::unwrap_or_default),
        assignee: reader.patched("assignee", text),
    };
    reader.errors.check()?;
    Ok(command)
}

/// Reads the body of `POST /api/v1/conversations/{id}/transfer`.
///
/// # Errors
/// As [`parse_conversation`].
pub fn parse_transfer(body: &[u8]) -> Result<Command, Problem> {
    let mut reader = Reader::new(body, &["assignee", "status"])?;
    let assignee: Option<Assignee> = reader.required("assignee", text);
    let status = reader.optional("status", status);
    reader.errors.check()?;
    Ok(Command::Transfer { assignee: assignee.ok_or_else(Problem::internal)?, status })
}

/// Reads the body of `POST /api/v1/conversations/{id}/messages`.
///
/// # Errors
/// As [`parse_conversation`].
pub fn parse_message(body: &[u8]) -> Result<Command, Problem> {
    let mut reader = Reader::new(body, &["body"])?;
    let body: Option<MessageBody> = reader.required("body", text);
    reader.errors.check()?;
    Ok(Command::Message { body: body.ok_or_else(Problem::internal)? })
}

/// The members of a body, and what is wrong with them.
struct Reader<'a> {
    members: Members<'a>,
    errors: FieldErrors,
}

type Read<T> = Result<T, Cow<'static, str>>;

impl<'a> Reader<'a> {
    fn new(body: &'a [u8], known: &'static [&'static str]) -> Result<Self, Problem> {
        let members = Members::of_body(body, known)?;
        let mut errors = FieldErrors::default();
        members.refuse_unknown(&mut errors);
        Ok(Self { members, errors })
    }

    /// A member that may be left out; `null` is as good as left out.
    fn optional<T>(&mut self, name: &str, read: fn(&RawValue) -> Read<T>) -> Option<T> {
        let value = self.members.optional(name)?;
        self.noted(name, read(value))
    }

    /// A member that must be there.
    fn required<T>(&mut self, name: &str, read: fn(&RawValue) -> Read<T>) -> Option<T> {
        let value = self.members.required(name, &mut self.errors)?;
        self.noted(name, read(value))
    }

    /// A member that is to be changed where it is there; `null`: to nothing.
    fn patched<T>(&mut self, name: &str, read: fn(&RawValue) -> Read<T>) -> Option<Option<T>> {
        let value = self.members.get(name)?;
        if is_null(value) { Some(None) } else { self.noted(name, read(value)).map(Some) }
    }

    fn noted<T>(&mut self, name: &str, read: Read<T>) -> Option<T> {
        read.map_err(|detail| self.errors.add("", name, detail)).ok()
    }
}

fn text<const MAX: usize>(value: &RawValue) -> Read<Text<MAX>> {
    Text::parse(&json::text(value)?).map_err(|error| Cow::from(error.to_string()))
}

fn status(value: &RawValue) -> Read<ConversationStatus> {
    ConversationStatus::from_word(&json::text(value)?)
        .ok_or(Cow::Borrowed("must be one of open, pending, closed"))
}

#[cfg(test)]
mod tests {
    use everhook_domain::conversation::{
        ASSIGNEE_BYTES_MAX, MESSAGE_BYTES_MAX, SUBJECT_BYTES_MAX, Subject,
    };
    use serde_json::{Value, json};

    use super::*;

    /// What is wrong with a body: pointers, each with its detail.
    fn refused<T>(parse: fn(&[u8]) -> Result<T, Problem>, body: &Value) -> Vec<(String, String)> {
        let Err(problem) = parse(body.to_string().as_bytes()) else { return Vec::new() };
        let errors = problem.errors().iter();
        errors.map(|error| (error.pointer.clone(), error.detail.to_string())).collect()
    }

    fn check<T>(parse: fn(&[u8]) -> Result<T, Problem>, body: Value, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(pointer, detail)| ((*pointer).to_owned(), (*detail).to_owned()))
            .collect();
        assert_eq!(refused(parse, &body), expected, "{body}");
    }

    #[test]
    fn what_is_wrong_is_told_all_at_once() {
        check(parse_conversation, json!({}), &[]);
        check(
            parse_conversation,
            json!({"subject": "", "status": "done", "assignee": 1, "version": 1}),
            &[
                ("/version", "unknown member; known are subject, status, assignee"),
                ("/subject", "must have 1 to 1000 bytes, and no NUL character"),
                ("/status", "must be one of open, pending, closed"),
                ("/assignee", "must be a string, not a number"),
            ],
        );
        check(
            parse_conversation_patch,
            json!({"subject": "new", "status": 1, "assignee": "a\0"}),
            &[
                ("/subject", "unknown member; known are status, assignee"),
                ("/status", "must be a string, not a number"),
                ("/assignee", "must have 1 to 255 bytes, and no NUL character"),
            ],
        );
        check(parse_transfer, json!({"status": "closed"}), &[("/assignee", "is missing")]);
        check(
            parse_transfer,
            json!({"assignee": null, "status": "x"}),
            &[
                ("/assignee", "must be a string, not null"),
                ("/status", "must be one of open, pending, closed"),
            ],
        );
        check(parse_message, json!({}), &[("/body", "is missing")]);
        check(
            parse_message,
            json!({"body": ["a"], "author": "b"}),
            &[
                ("/author", "unknown member; known are body"),
                ("/body", "must be a string, not an array"),
            ],
        );
    }

    #[test]
    fn lengths_end_where_they_say() {
        for (extra, right) in [(0, true), (1, false)] {
            let text = |max: usize| "x".repeat(max + extra);
            let subject = json!({"subject": text(SUBJECT_BYTES_MAX)});
            let assignee = json!({"assignee": text(ASSIGNEE_BYTES_MAX)});
            let body = json!({"body": text(MESSAGE_BYTES_MAX)});
            assert_eq!(refused(parse_conversation, &subject).is_empty(), right);
            assert_eq!(refused(parse_transfer, &assignee).is_empty(), right);
            assert_eq!(refused(parse_message, &body).is_empty(), right);
        }
    }

    #[test]
    fn what_is_left_out_and_what_is_null() {
        use ConversationStatus::{Closed, Open};
        let new = |body: &str| parse_conversation(body.as_bytes()).expect("legal");
        let subject = Subject::parse("A bill").ok();
        let expected = NewConversation { subject, ..NewConversation::default() };
        assert_eq!(new(r#"{"subject": "A bill", "status": null, "assignee": null}"#), expected);
        let a = Assignee::parse("a").ok();
        for (body, status, assignee) in [
            ("{}", None, None),
            (r#"{"status": "closed"}"#, Some(Closed), None),
            (r#"{"status": null, "assignee": null}"#, Some(Open), Some(None)),
            (r#"{"assignee": "a"}"#, None, Some(a.clone())),
        ] {
            let patch = parse_conversation_patch(body.as_bytes()).expect("legal");
            assert_eq!(patch, Command::Patch { status, assignee }, "{body}");
        }
        let transfer = parse_transfer(br#"{"assignee": "a", "status": null}"#).expect("legal");
        assert_eq!(transfer, Command::Transfer { assignee: a.expect("legal"), status: None });
    }
}
