//! Whose keys they are: what stands in front of us says so, or else the credentials do.

use everhook_idempotency::{Account, AccountOf};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use sha2::{Digest, Sha256};

use super::ProxySettings;

/// The account of everybody who sends no credentials, where that is allowed.
const ANYBODY: &str = "anonymous";

/// Finds the account of a request by these settings.
pub(super) fn account_of(settings: &ProxySettings) -> AccountOf {
    let (header, anonymous) = (settings.account_header.clone(), settings.anonymous);
    let tenant = settings.tenant.clone();
    AccountOf::request(move |parts| {
        let id = account(&parts.headers, header.as_ref(), anonymous)?;
        Some(Account::new(id).in_tenant(tenant.clone()))
    })
}

/// Each way to find it has a beginning of its own, so that no name passes for another's hash. A
/// header that is there twice names nobody: two readers would not agree which one counts.
fn account(headers: &HeaderMap, named: Option<&HeaderName>, anonymous: bool) -> Option<String> {
    let values = |name: &HeaderName| -> Vec<&HeaderValue> {
        headers.get_all(name).iter().filter(|value| !value.is_empty()).collect()
    };
    match named.map(values).as_deref() {
        Some([name]) => return Some(format!("account {}", text(name))),
        None | Some([]) => {}
        Some(_) => return None,
    }
    match &*values(&header::AUTHORIZATION) {
        [credentials] => {
            let hash = Sha256::digest(credentials.as_bytes());
            Some(
                hash.iter()
                    .fold("authorization ".to_owned(), |id, byte| id + &format!("{byte:02x}")),
            )
        }
        [] => anonymous.then(|| ANYBODY.to_owned()),
        _ => None,
    }
}

/// Each byte as the character of its number, so that different values stay different.
fn text(value: &HeaderValue) -> String {
    value.as_bytes().iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str =
        "authorization 63a25a26464c310e30f3e4f90b7f2153a2aac6e236fd9d9e8782bd4139df0c26";

    #[test]
    fn case_020_021_whose_keys_they_are() {
        let check = |lines: &[(&str, &str)], expected: [Option<&str>; 3]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                let name = HeaderName::from_bytes(name.as_bytes()).expect("legal");
                headers.append(name, HeaderValue::from_str(value).expect("legal"));
            }
            let named = HeaderName::from_static("x-account");
            let found = [
                account(&headers, None, false),
                account(&headers, Some(&named), false),
                account(&headers, Some(&named), true),
            ];
            assert_eq!(found.each_ref().map(Option::as_deref), expected, "{lines:?}");
        };
        let credentials = ("authorization", "Bearer t");
        check(&[], [None, None, Some(ANYBODY)]);
        check(&[credentials], [Some(HASH); 3]);
        let seven = Some("account 7");
        check(&[("x-account", "7"), credentials], [Some(HASH), seven, seven]);
        check(&[("x-account", "7")], [None, seven, seven]);
        check(&[("x-account", "")], [None, None, Some(ANYBODY)]);
        check(&[("x-account", "7"), ("x-account", "8"), credentials], [Some(HASH), None, None]);
        check(&[credentials, credentials], [None; 3]);
        let name = Some("account authorization 7e");
        check(&[("x-account", "authorization 7e")], [None, name, name]);
    }
}
