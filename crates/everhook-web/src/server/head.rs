//! What HTTP/1.1 asks of the head of a request and hyper leaves to us: that it cannot be read in
//! two ways, by us and by a proxy before us.

use http::{HeaderMap, StatusCode, Version, header};

use crate::problem::{Problem, ProblemKind};

/// Checks the number of hosts (RFC 9112 §3.2) and the transfer coding (§6.1).
///
/// # Errors
/// `invalid-header`: 400, or 501 for a coding that is not undone here.
pub(super) fn check(version: Version, headers: &HeaderMap) -> Result<(), Problem> {
    let problem = |detail| Problem::new(ProblemKind::InvalidHeader, detail);
    let hosts = headers.get_all(header::HOST).iter().count();
    if hosts > 1 || (hosts == 0 && version >= Version::HTTP_11) {
        return Err(problem("send one Host header"));
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_chunked =
        |coding: &http::HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_none_or(is_chunked) && codings.next().is_none() {
        return Ok(());
    }
    let detail = "of all transfer codings only chunked is read; send it without the others";
    Err(problem(detail).answered(StatusCode::NOT_IMPLEMENTED))
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn heads_that_can_be_read_in_two_ways_are_refused() {
        let check = |version, lines: &[(&str, &str)], expected: u16| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                headers.append(name, HeaderValue::from_str(value).unwrap());
            }
            let found = check(version, &headers).err();
            let found = found.map_or(200, |problem| problem.into_response().status().as_u16());
            assert_eq!(found, expected, "{version:?} {lines:?}");
        };
        let (old, new, host) = (Version::HTTP_10, Version::HTTP_11, ("host", "a.test"));
        check(new, &[host], 200);
        check(new, &[], 400);
        check(old, &[], 200);
        check(old, &[host, host], 400);
        check(new, &[host, host], 400);
        check(new, &[host, ("host", "b.test")], 400);
        let coding = |text| ("transfer-encoding", text);
        check(new, &[host, coding("chunked")], 200);
        check(new, &[host, coding("Chunked")], 200);
        for other in ["gzip, chunked", "gzip", "identity", "chunked, chunked", "xchunked", ""] {
            check(new, &[host, coding(other)], 501);
        }
        check(new, &[host, coding("gzip"), coding("chunked")], 501);
        check(new, &[host, coding("chunked"), coding("chunked")], 501);
    }
}
