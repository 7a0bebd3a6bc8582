//! Reading foreign JSON: one pass over the bytes, everything that is wrong at once, and nothing the
//! sender wrote lost on the way.
//!
//! An object is read into its members with their values still raw, so that a value keeps its
//! spelling, unknown and repeated members are seen, and a value of the wrong type is an entry with
//! a pointer instead of the end of the reading. What is not JSON at all is refused with its place.
//!
//! Bounded: nesting by [`DEPTH_MAX`] before anything recurses, members and items by what the reader
//! asks for, so that a body cannot make many times its size of memory.

mod shape;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use shape::Items;

use crate::problem::{FieldErrors, Problem, ProblemKind, pointer};

/// How deep the arrays and objects of a body may be nested.
pub const DEPTH_MAX: usize = 128;
/// More members than this are not read, only counted; no object of ours has as many.
pub(crate) const MEMBERS_MAX: usize = 64;

/// The members of an object, values still raw, in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct Object<'a> {
    pub(crate) members: Vec<(Cow<'a, str>, &'a RawValue)>,
    /// Members beyond [`MEMBERS_MAX`].
    pub(crate) unread: usize,
}

/// Reads a whole body, which must be an object.
///
/// # Errors
/// `malformed-json` with line, column and byte; `invalid` when it is no object.
fn read(body: &[u8]) -> Result<Object<'_>, Problem> {
    let Some(first) = body.iter().find(|byte| !byte.is_ascii_whitespace()) else {
        let detail = "the body is empty: a JSON object is expected";
        return Err(Problem::new(ProblemKind::MalformedJson, detail));
    };
    if let Some(at) = too_deep(body) {
        let place = Place::of_offset(body, at);
        let detail = format!("more than {DEPTH_MAX} arrays and objects are nested {place}");
        return Err(Problem::new(ProblemKind::MalformedJson, detail));
    }
    let malformed = |error| malformed(body, &error);
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    if *first == b'{' {
        let object = Object::deserialize(&mut deserializer).map_err(malformed)?;
        deserializer.end().map_err(malformed)?;
        return Ok(object);
    }
    let value = <&RawValue>::deserialize(&mut deserializer).map_err(malformed)?;
    deserializer.end().map_err(malformed)?;
    Err(not_an_object("", kind_of(value)))
}

/// Where the nesting passes [`DEPTH_MAX`], if it does. Right for any JSON; for what is none, it
/// tells at least of every nesting that a reader would follow.
fn too_deep(body: &[u8]) -> Option<usize> {
    let opens = |byte: &&u8| matches!(byte, b'[' | b'{');
    // Nearly every body ends here, at many gigabytes a second.
    if body.iter().filter(opens).count() <= DEPTH_MAX {
        return None;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in body.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(at);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// A place in a body, as people and editors count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    column: usize,
    byte: usize,
}

impl Place {
    /// The place of the byte at `offset`.
    fn of_offset(body: &[u8], offset: usize) -> Self {
        let before = &body[..offset.min(body.len())];
        let line_at = before.iter().rposition(|b| *b == b'\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.iter().filter(|b| **b == b'\n').count();
        Self { line, column: before.len() - line_at + 1, byte: before.len() }
    }

    /// The place that the parser names: its columns count bytes from one, and are zero for the
    /// line break itself.
    fn of_error(body: &[u8], error: &serde_json::Error) -> Self {
        let lines_before = error.line().saturating_sub(1);
        let line_at = match lines_before.checked_sub(1) {
            None => 0,
            Some(nth) => body
                .iter()
                .enumerate()
                .filter(|(_, b)| **b == b'\n')
                .nth(nth)
                .map_or(body.len(), |(newline, _)| newline + 1),
        };
        let byte = (line_at + error.column().saturating_sub(1)).min(body.len());
        Self { line: error.line(), column: error.column(), byte }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at line {}, column {} (byte {})", self.line, self.column, self.byte)
    }
}

fn malformed(body: &[u8], error: &serde_json::Error) -> Problem {
    let place = Place::of_error(body, error);
    // The parser's words are fixed texts; only what a visitor says could hold payload.
    let what = match error.classify() {
        serde_json::error::Category::Data | serde_json::error::Category::Io => {
            Cow::from("a JSON value was expected")
        }
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof => {
            let text = error.to_string();
            plain(text.split(" at line ").next().unwrap_or_default())
        }
    };
    Problem::new(ProblemKind::MalformedJson, format!("{what} {place}"))
}

/// The parser's words in plainer ones, where it knows less of the reader than we do.
fn plain(words: &str) -> Cow<'static, str> {
    match words {
        "expected value" => Cow::from("a value was expected"),
        "expected ident" => Cow::from("true, false or null was expected"),
        "invalid unicode code point" => Cow::from("the text is not UTF-8"),
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            Cow::from("a name escapes half of a surrogate pair")
        }
        _ => Cow::from(match words.strip_prefix("EOF while parsing") {
            Some(inside) => format!("the text ends inside{inside}"),
            None => words.to_owned(),
        }),
    }
}

/// The members of one object being taken out by name.
#[derive(Debug)]
pub(crate) struct Members<'a> {
    object: Object<'a>,
    base: Cow<'static, str>,
    known: &'static [&'static str],
}

impl<'a> Members<'a> {
    /// The object at the pointer `base`, which may have the members `known`.
    ///
    /// # Errors
    /// `duplicate-member`, with the pointer.
    pub(crate) fn new(
        object: Object<'a>,
        base: impl Into<Cow<'static, str>>,
        known: &'static [&'static str],
    ) -> Result<Self, Problem> {
        let base = base.into();
        for (place, (name, _)) in object.members.iter().enumerate() {
            if object.members[..place].iter().any(|(before, _)| before == name) {
                let pointer = pointer(&base, name);
                let detail = format!("the member {pointer} is there twice; send it once");
                return Err(Problem::new(ProblemKind::DuplicateMember, detail));
            }
        }
        Ok(Self { object, base, known })
    }

    /// The object of a whole body.
    ///
    /// # Errors
    /// `malformed-json`, `duplicate-member`, or `invalid` when it is no object.
    pub(crate) fn of_body(body: &'a [u8], known: &'static [&'static str]) -> Result<Self, Problem> {
        Self::new(read(body)?, "", known)
    }

    /// The members in the order of the text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.object.members.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// Where the object is.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The value of a member, `null` included.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.object.members.iter().find(|(found, _)| found == name).map(|(_, value)| *value)
    }

    /// The value of a member that may be left out; `null` is as good as left out.
    pub(crate) fn optional(&self, name: &str) -> Option<&'a RawValue> {
        self.get(name).filter(|value| !is_null(value))
    }

    /// The value of a member that must be there.
    pub(crate) fn required(&self, name: &str, errors: &mut FieldErrors) -> Option<&'a RawValue> {
        let value = self.get(name);
        if value.is_none() {
            errors.add(&self.base, name, "is missing");
        }
        value
    }

    /// What is read from a member that must be there; nothing once what is wrong was noted.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        errors: &mut FieldErrors,
        read: impl Fn(&'a RawValue) -> Result<T, Cow<'static, str>>,
    ) -> Option<T> {
        let read = read(self.required(name, errors)?);
        read.map_err(|detail| errors.add(&self.base, name, detail)).ok()
    }

    /// The same of a member that may be left out.
    pub(crate) fn read_optional<T>(
        &self,
        name: &str,
        errors: &mut FieldErrors,
        read: impl Fn(&'a RawValue) -> Result<T, Cow<'static, str>>,
    ) -> Option<T> {
        let read = read(self.optional(name)?);
        read.map_err(|detail| errors.add(&self.base, name, detail)).ok()
    }

    /// Notes every member that is not known.
    pub(crate) fn refuse_unknown(&self, errors: &mut FieldErrors) {
        for (name, _) in &self.object.members {
            if !self.known.contains(&name.as_ref()) {
                errors.add(&self.base, name, self.unknown());
            }
        }
        self.refuse_unread(errors);
    }

    /// Notes it if there are more members than were read.
    pub(crate) fn refuse_unread(&self, errors: &mut FieldErrors) {
        if self.object.unread > 0 {
            let detail = format!("has {} more members than are read", self.object.unread);
            errors.add_at(&self.base, detail);
        }
    }

    fn unknown(&self) -> Cow<'static, str> {
        match self.known {
            [] => Cow::from("unknown member; nothing is expected here"),
            known => Cow::from(format!("unknown member; known are {}", known.join(", "))),
        }
    }
}

/// What is at `base` should have been an object.
pub(crate) fn not_an_object(base: &str, kind: &'static str) -> Problem {
    let mut errors = FieldErrors::default();
    errors.add_at(base, format!("must be an object, not {kind}"));
    match errors.check() {
        Err(problem) => problem,
        Ok(()) => Problem::internal(),
    }
}

/// Whether a value is `null`.
pub(crate) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// What a value is, for messages.
pub(crate) fn kind_of(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        Some(_) | None => "a number",
    }
}

/// The text of a string.
///
/// # Errors
/// What the value is instead.
pub(crate) fn text<'a>(value: &'a RawValue) -> Result<Cow<'a, str>, Cow<'static, str>> {
    let raw = value.get();
    let Some(inside) = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return Err(Cow::from(format!("must be a string, not {}", kind_of(value))));
    };
    if !inside.contains('\\') {
        return Ok(Cow::from(inside));
    }
    serde_json::from_str::<String>(raw)
        .map(Cow::from)
        .map_err(|_| Cow::from("must be text: it escapes half of a surrogate pair"))
}

/// A whole number within `range`.
///
/// # Errors
/// What is right instead.
pub(crate) fn whole_number(
    value: &RawValue,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, Cow<'static, str>> {
    value.get().parse::<u32>().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        Cow::from(format!("must be a whole number from {} to {}", range.start(), range.end()))
    })
}

/// The items of an array, at most `MAX`.
///
/// # Errors
/// What is right instead.
pub(crate) fn items<const MAX: usize>(
    value: &RawValue,
) -> Result<Vec<&RawValue>, Cow<'static, str>> {
    if !value.get().starts_with('[') {
        return Err(Cow::from(format!("must be an array, not {}", kind_of(value))));
    }
    match serde_json::from_str::<Items<'_, MAX>>(value.get()) {
        Ok(items) if items.total == items.first.len() => Ok(items.first),
        Ok(items) => Err(Cow::from(format!("has {} entries, at most {MAX} may be", items.total))),
        Err(_) => Err(Cow::from("must be an array")),
    }
}

/// The members of an object.
///
/// # Errors
/// What the value is instead.
pub(crate) fn object(value: &RawValue) -> Result<Object<'_>, Cow<'static, str>> {
    if !value.get().starts_with('{') {
        return Err(Cow::from(format!("must be an object, not {}", kind_of(value))));
    }
    // The text is known to be JSON; only a name can still be none.
    serde_json::from_str(value.get())
        .map_err(|_| Cow::from("has a name that escapes half of a surrogate pair"))
}
