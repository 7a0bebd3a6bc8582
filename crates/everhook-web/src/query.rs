//! Query parameters: every one known, there once, and well-formed, or the request is refused.

use std::borrow::Cow;

use everhook_domain::time::Timestamp;
use everhook_store::{Page, PageRequest};
use serde::Serialize;

use crate::cursor::CursorScope;
use crate::problem::{Problem, ProblemKind};

/// Entries of a page where none is asked for.
pub const LIMIT_DEFAULT: usize = 50;
/// The most entries of a page.
pub const LIMIT_MAX: usize = 250;
/// The most rows that are looked at for one page; a page may then be short and have a next one.
pub const SCAN_LIMIT: usize = 50_000;
/// As much of an unknown name as a message repeats, in characters.
const NAME_SHOWN_MAX: usize = 64;

/// The parameters of a request.
#[derive(Debug)]
pub struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    problems: Vec<String>,
}

impl<'a> Query<'a> {
    /// Reads the query of a URL, in which only `known` names may be.
    pub fn parse(raw: Option<&'a str>, known: &[&str]) -> Self {
        let raw = raw.unwrap_or_default();
        let pairs: Vec<_> = form_urlencoded::parse(raw.as_bytes()).collect();
        let mut problems = Vec::new();
        for (place, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_ref()) {
                let shown: String = name.escape_default().take(NAME_SHOWN_MAX).collect();
                let rule = match known {
                    [] => "none is expected here".to_owned(),
                    known => format!("known are {}", known.join(", ")),
                };
                problems.push(format!("unknown parameter '{shown}': {rule}"));
                break;
            }
            if pairs[..place].iter().any(|(before, _)| before == name) {
                problems.push(format!("{name} is there more than once"));
            }
        }
        Self { pairs, problems }
    }

    /// A parameter's text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_ref())
    }

    /// A parameter's value; what is wrong with it is told by [`Query::check`].
    pub fn value<T, E: ToString>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = parse(self.text(name)?);
        parsed.map_err(|error| self.problems.push(format!("{name}: {}", error.to_string()))).ok()
    }

    /// A parameter that is a time.
    pub fn time(&mut self, name: &str) -> Option<Timestamp> {
        self.value(name, |text| {
            Timestamp::parse(text).map_err(|error| match text.contains(' ') {
                // `+` in a query is a space.
                true => format!("{error} (write the + of an offset as %2B)"),
                false => error.to_string(),
            })
        })
    }

    /// How many entries are asked for.
    pub fn limit(&mut self) -> usize {
        let limit = self.value("limit", |text| {
            let number = text.parse::<usize>().ok().filter(|n| (1..=LIMIT_MAX).contains(n));
            number.ok_or_else(|| format!("must be a whole number from 1 to {LIMIT_MAX}"))
        });
        limit.unwrap_or(LIMIT_DEFAULT)
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// `invalid-parameter` with everything that is wrong.
    pub fn check(&self) -> Result<(), Problem> {
        if self.problems.is_empty() {
            return Ok(());
        }
        Err(Problem::new(ProblemKind::InvalidParameter, self.problems.join("; ")))
    }

    /// Which part of a list is asked for, when all is well.
    ///
    /// # Errors
    /// As [`Query::check`], and `invalid-cursor`.
    pub fn page(&mut self, scope: &CursorScope) -> Result<PageRequest, Problem> {
        let limit = self.limit();
        self.check()?;
        let after = self.text("cursor").map(|cursor| scope.decode(cursor)).transpose()?;
        Ok(PageRequest { limit, after, scan_limit: SCAN_LIMIT })
    }
}

/// A part of a list as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct ShownPage<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

impl<T> ShownPage<T> {
    /// Shows each item of a page.
    pub(crate) fn new<'i, I>(
        page: &'i Page<I>,
        scope: &CursorScope,
        show: impl Fn(&'i I) -> T,
    ) -> Self {
        Self {
            data: page.items.iter().map(show).collect(),
            next_cursor: page.next.map(|position| scope.encode(position)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        for (raw, expected) in [
            (None, Ok(50)),
            (Some(""), Ok(50)),
            (Some("limit=1"), Ok(1)),
            (Some("limit=250"), Ok(250)),
            (Some("limit=0"), Err("limit: must be a whole number from 1 to 250")),
            (Some("limit=251"), Err("limit: must be a whole number from 1 to 250")),
            (Some("limit="), Err("limit: must be a whole number from 1 to 250")),
            (Some("limit=-1"), Err("limit: must be a whole number from 1 to 250")),
            (Some("limit=1&limit=2"), Err("limit is there more than once")),
            (Some("x=1"), Err("unknown parameter 'x': known are limit, from")),
            (Some("%0a=1"), Err("unknown parameter '\\n': known are limit, from")),
            (Some("from=x"), Err("from: not an RFC 3339 time such as 2026-01-31T12:00:00.000Z")),
        ] {
            let mut query = Query::parse(raw, &["limit", "from"]);
            query.time("from");
            let limit = query.limit();
            let found = query.check().map(|()| limit);
            let expected = expected.map_err(ToOwned::to_owned);
            assert_eq!(found.map_err(|problem| problem.detail().to_owned()), expected, "{raw:?}");
        }
    }

    #[test]
    fn a_plus_that_became_a_space_is_explained() {
        let mut query = Query::parse(Some("from=2026-01-31T12:00:00+01:00"), &["from"]);
        assert_eq!(query.time("from"), None);
        let problem = query.check().expect_err("not a time");
        assert!(problem.detail().contains("%2B"), "{}", problem.detail());
        let mut query = Query::parse(Some("from=2026-01-31T12:00:00%2B01:00"), &["from"]);
        assert_eq!(
            query.time("from").map(|at| at.to_string()).as_deref(),
            Some("2026-01-31T11:00:00.000Z")
        );
    }
}
