//! Versions of what can be changed, in `ETag` and `If-Match` (RFC 9110 §8.8.3, §13.1.1).

use axum::response::Response;
use everhook_store::Refusal;
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;

use crate::answer::Rendered;
use crate::problem::{Problem, ProblemKind};

/// How often a change that names no version is made anew because another came in between. Each time
/// one of the others has succeeded, so this is more than can be under way.
const CHANGE_TRIES: u32 = 10_000;

/// Makes a change of what is there until it holds: `attempt` gives `None` if another came in
/// between.
///
/// # Errors
/// Those of `attempt`; `changed`.
pub(super) async fn until_it_holds<T, F>(attempt: impl Fn() -> F) -> Result<T, Problem>
where
    F: Future<Output = Result<Option<T>, Problem>>,
{
    for _ in 0..CHANGE_TRIES {
        if let Some(done) = attempt().await? {
            return Ok(done);
        }
    }
    Err(Problem::from(Refusal::VersionChanged))
}

/// A 200 with the thing and its version.
pub(super) fn shown(version: u64, thing: &impl Serialize) -> Response {
    Rendered::json(StatusCode::OK, thing).versioned(version).into_response()
}

/// The version in `If-Match`; `None` where any is right.
///
/// # Errors
/// `invalid-header`.
pub(super) fn expected(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value.to_str().unwrap_or_default().trim(),
        (Some(_), Some(_)) => "",
    };
    if value == "*" {
        return Ok(None);
    }
    let digits = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    digits.parse().map(Some).map_err(|_| {
        let detail = "If-Match must be one version, as in the header ETag of what it is about";
        Problem::new(ProblemKind::InvalidHeader, detail)
    })
}

/// It has another version now.
pub(super) fn stale(current: u64) -> Problem {
    Problem::from(Refusal::Stale { current })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_change_is_made_anew_until_it_holds() {
        for (others, expected) in [(0, true), (1_000, true), (CHANGE_TRIES, false)] {
            let tries = Cell::new(0);
            let attempt = || async {
                tries.set(tries.get() + 1);
                Ok((tries.get() > others).then_some(()))
            };
            let result = until_it_holds(attempt).await;
            assert_eq!(result.is_ok(), expected, "{others}");
            assert_eq!(tries.get(), CHANGE_TRIES.min(others + 1));
        }
    }
}
