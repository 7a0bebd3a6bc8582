//! The options of a source: those that every kind has, and those of its kind.

use std::collections::BTreeMap;

use http::HeaderName;
use serde_json::{Map, Value};

use super::InvalidSource;
use crate::inbound::SourceKind;

/// The largest body that a source takes if nothing else is set, in bytes.
pub const BODY_MAX: usize = 25 * 1_024 * 1_024;

/// The options that every kind has.
pub const COMMON_OPTIONS: [&str; 7] =
    ["body_max", "answer", "reject_status", "empty", "content_encoding", "forward", "replay_guard"];

/// The longest text of an option that is part of a header or of what is signed, in bytes.
const SHORT_BYTES_MAX: usize = 64;

/// What is answered in place of the kind's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerOption {
    /// 200 to 299.
    pub status: u16,
    /// Its media type; `None`: no `Content-Type`.
    pub content_type: Option<String>,
    /// Its bytes, as text.
    pub body: String,
}

/// What becomes of a verified request without a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyBody {
    /// It is an event like any other.
    #[default]
    Accept,
    /// It is answered 2xx and not stored.
    Ignore,
    /// It is answered 400.
    Reject,
}

/// What a signature is over where the sender compresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentEncoding {
    /// The bytes on the wire.
    #[default]
    Wire,
    /// The bytes before compression.
    Decoded,
}

/// How an item of an array is forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forward {
    /// In an array (or the kind's envelope) of one.
    #[default]
    Array,
    /// Bare.
    Item,
}

/// What stops a captured request from being sent again under another ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayGuard {
    /// The signed timestamp, where there is one; else the ID wins.
    #[default]
    SignedTimestamp,
    /// The bytes alone: the same body twice within the window runs once, whatever its ID.
    Body,
}

/// The options of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceOptions {
    /// The largest body, in bytes.
    pub body_max: usize,
    /// What is answered for what is accepted and for duplicates; `None`: as the kind has it.
    pub answer: Option<AnswerOption>,
    /// What is answered where the signature does not verify: 401, 400 or 403.
    pub reject_status: u16,
    /// What becomes of a request without a body.
    pub empty: EmptyBody,
    /// What the signature is over.
    pub content_encoding: ContentEncoding,
    /// How items of arrays are forwarded.
    pub forward: Forward,
    /// What stops replays.
    pub replay_guard: ReplayGuard,
    /// Those that only its kind has.
    own: BTreeMap<String, Value>,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            body_max: BODY_MAX,
            answer: None,
            reject_status: 401,
            empty: EmptyBody::default(),
            content_encoding: ContentEncoding::default(),
            forward: Forward::default(),
            replay_guard: ReplayGuard::default(),
            own: BTreeMap::new(),
        }
    }
}

impl SourceOptions {
    /// Reads the options of a source of this kind. What is wrong is noted, all of it.
    pub fn parse(
        mut input: Map<String, Value>,
        kind: SourceKind,
        faults: &mut Vec<InvalidSource>,
    ) -> Self {
        let mut reader = Reader { input: &mut input, faults };
        let default = Self::default();
        let mut options = Self {
            body_max: reader.body_max(),
            answer: reader.answer(),
            reject_status: reader.reject_status(),
            empty: reader.word(
                "empty",
                &[
                    ("accept", EmptyBody::Accept),
                    ("ignore", EmptyBody::Ignore),
                    ("reject", EmptyBody::Reject),
                ],
                default.empty,
            ),
            content_encoding: reader.word(
                "content_encoding",
                &[("wire", ContentEncoding::Wire), ("decoded", ContentEncoding::Decoded)],
                default.content_encoding,
            ),
            forward: reader.word(
                "forward",
                &[("array", Forward::Array), ("item", Forward::Item)],
                default.forward,
            ),
            replay_guard: reader.word(
                "replay_guard",
                &[("timestamp", ReplayGuard::SignedTimestamp), ("body", ReplayGuard::Body)],
                default.replay_guard,
            ),
            own: BTreeMap::new(),
        };
        for (name, value) in input {
            if kind.own_options().contains(&name.as_str()) {
                options.own.insert(name, value);
            } else {
                let known = [&COMMON_OPTIONS, kind.own_options()].concat().join(", ");
                let detail = format!("there is no such option for this kind; there are {known}");
                faults.push(InvalidSource::new(pointer(&name), detail));
            }
        }
        options
    }

    /// The value of an option of the kind.
    pub fn own(&self, name: &str) -> Option<&Value> {
        self.own.get(name)
    }

    /// The text of an option of the kind, if it is a text.
    pub fn own_text(&self, name: &str) -> Option<&str> {
        self.own(name)?.as_str()
    }

    /// What the word of an option of the kind stands for; `default` without one. What is wrong is
    /// noted.
    pub(crate) fn own_word<T: Copy>(
        &self,
        name: &str,
        words: &[(&str, T)],
        default: T,
        faults: &mut Vec<InvalidSource>,
    ) -> T {
        let Some(value) = self.own(name) else { return default };
        one_of(value, words).unwrap_or_else(|detail| {
            faults.push(InvalidSource::new(pointer(name), detail));
            default
        })
    }

    /// The name of a header that an option of the kind holds. What is wrong is noted.
    pub(crate) fn own_header(&self, name: &str, faults: &mut Vec<InvalidSource>) -> Option<&str> {
        let legal = |text: &str| HeaderName::from_bytes(text.as_bytes()).is_ok();
        self.own_checked(name, legal, "must be the name of a header", faults)
    }

    /// The short text that an option of the kind holds, as part of a header or of what is signed.
    /// What is wrong is noted.
    pub(crate) fn own_short(&self, name: &str, faults: &mut Vec<InvalidSource>) -> Option<&str> {
        let visible = |b: u8| b.is_ascii_graphic() || b == b' ';
        let legal = |text: &str| text.len() <= SHORT_BYTES_MAX && text.bytes().all(visible);
        let detail =
            format!("must be a text of at most {SHORT_BYTES_MAX} visible ASCII characters");
        self.own_checked(name, legal, &detail, faults)
    }

    fn own_checked(
        &self,
        name: &str,
        legal: impl Fn(&str) -> bool,
        detail: &str,
        faults: &mut Vec<InvalidSource>,
    ) -> Option<&str> {
        let text = self.own(name)?.as_str().filter(|text| legal(text));
        if text.is_none() {
            faults.push(InvalidSource::new(pointer(name), detail));
        }
        text
    }

    /// All of them, as JSON that [`Self::parse`] reads: only what differs from the default.
    pub fn to_json(&self) -> Map<String, Value> {
        let default = Self::default();
        let mut json: Map<String, Value> = self.own.clone().into_iter().collect();
        let mut put = |name: &str, differs: bool, value: Value| {
            if differs {
                json.insert(name.to_owned(), value);
            }
        };
        put("body_max", self.body_max != default.body_max, self.body_max.into());
        put(
            "reject_status",
            self.reject_status != default.reject_status,
            self.reject_status.into(),
        );
        let empty = match self.empty {
            EmptyBody::Accept => "accept",
            EmptyBody::Ignore => "ignore",
            EmptyBody::Reject => "reject",
        };
        put("empty", self.empty != default.empty, empty.into());
        let decoded = self.content_encoding == ContentEncoding::Decoded;
        put("content_encoding", decoded, "decoded".into());
        put("forward", self.forward == Forward::Item, "item".into());
        put("replay_guard", self.replay_guard == ReplayGuard::Body, "body".into());
        if let Some(answer) = &self.answer {
            let value = serde_json::json!({
                "status": answer.status,
                "content_type": answer.content_type,
                "body": answer.body,
            });
            put("answer", true, value);
        }
        json
    }
}

fn pointer(name: &str) -> String {
    format!("/options/{}", name.replace('~', "~0").replace('/', "~1"))
}

struct Reader<'a> {
    input: &'a mut Map<String, Value>,
    faults: &'a mut Vec<InvalidSource>,
}

impl Reader<'_> {
    fn fault(&mut self, name: &str, detail: impl Into<String>) {
        self.faults.push(InvalidSource::new(pointer(name), detail));
    }

    fn body_max(&mut self) -> usize {
        let Some(value) = self.input.remove("body_max") else { return BODY_MAX };
        let bytes = value.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
        match bytes {
            Some(bytes) if (1..=BODY_MAX).contains(&bytes) => bytes,
            _ => {
                let detail = format!("must be a number of bytes from 1 to {BODY_MAX}");
                self.fault("body_max", detail);
                BODY_MAX
            }
        }
    }

    fn reject_status(&mut self) -> u16 {
        match self.input.remove("reject_status").as_ref().map(Value::as_u64) {
            None | Some(Some(401)) => 401,
            Some(Some(400)) => 400,
            Some(Some(403)) => 403,
            Some(_) => {
                self.fault("reject_status", "must be 401, 400 or 403");
                401
            }
        }
    }

    fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)], default: T) -> T {
        let Some(value) = self.input.remove(name) else { return default };
        one_of(&value, words).unwrap_or_else(|detail| {
            self.fault(name, detail);
            default
        })
    }

    fn answer(&mut self) -> Option<AnswerOption> {
        let value = self.input.remove("answer")?;
        let answer = read_answer(&value);
        if answer.is_none() {
            let detail = "must be {\"status\": 200 to 299, \"content_type\": a text or null, \
                          \"body\": a text}";
            self.fault("answer", detail);
        }
        answer
    }
}

/// What the word stands for; else what is wrong.
fn one_of<T: Copy>(value: &Value, words: &[(&str, T)]) -> Result<T, String> {
    let found = value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        format!("must be one of {}", words.join(", "))
    })
}

fn read_answer(value: &Value) -> Option<AnswerOption> {
    let members = value.as_object()?;
    let known = |name: &String| matches!(name.as_str(), "status" | "content_type" | "body");
    let status = match members.get("status") {
        None => 200,
        Some(status) => u16::try_from(status.as_u64()?).ok()?,
    };
    let content_type = match members.get("content_type") {
        None | Some(Value::Null) => None,
        Some(text) => {
            let text = text.as_str()?;
            http::HeaderValue::from_str(text).ok()?;
            Some(text.to_owned())
        }
    };
    let body = match members.get("body") {
        None => String::new(),
        Some(text) => text.as_str()?.to_owned(),
    };
    let legal = (200..=299).contains(&status) && members.keys().all(known);
    legal.then_some(AnswerOption { status, content_type, body })
}
