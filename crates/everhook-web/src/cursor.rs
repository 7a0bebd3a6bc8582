//! Cursors: where a list goes on, opaque to the caller.
//!
//! A cursor is a version, a position and a short hash of the list, the tenant and the filters, in
//! base64url (RFC 4648 §5). The hash is no protection (a position tells nothing, and every read is
//! the tenant's own) but it makes a cursor of another list, tenant or filter an error instead of a
//! page that looks right.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use everhook_domain::tenant::TenantId;
use everhook_store::Position;
use sha2::{Digest, Sha256};

use crate::problem::{Problem, ProblemKind};

const VERSION: u8 = 1;
const CHECK_LEN: usize = 8;
const LEN: usize = 1 + 16 + CHECK_LEN;

/// What a cursor belongs to.
#[derive(Clone, Copy, Debug)]
pub struct CursorScope([u8; CHECK_LEN]);

impl CursorScope {
    /// The scope of a list of this kind, of this tenant, under these filters.
    pub fn new(list: &str, tenant: &TenantId, filters: &[Option<&str>]) -> Self {
        let mut hash = Sha256::new();
        let mut part = |text: Option<&str>| {
            // One more than the length, so that an absent filter is not an empty one.
            hash.update(text.map_or(0, |text| text.len() as u64 + 1).to_be_bytes());
            hash.update(text.unwrap_or_default());
        };
        part(Some(list));
        part(Some(tenant.as_str()));
        filters.iter().for_each(|filter| part(*filter));
        let digest = hash.finalize();
        let mut check = [0; CHECK_LEN];
        check.copy_from_slice(&digest[..CHECK_LEN]);
        Self(check)
    }

    /// The cursor for a position.
    pub fn encode(&self, position: Position) -> String {
        let mut bytes = [0; LEN];
        bytes[0] = VERSION;
        bytes[1..17].copy_from_slice(&position.0.to_be_bytes());
        bytes[17..].copy_from_slice(&self.0);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The position in a cursor.
    ///
    /// # Errors
    /// `invalid-cursor` when it is none, or belongs to another list, tenant or filter.
    pub fn decode(&self, cursor: &str) -> Result<Position, Problem> {
        let invalid = || {
            Problem::new(
                ProblemKind::InvalidCursor,
                "the cursor is not one that this list gave for these filters; send next_cursor \
                 as it was answered, with the same filters, or start again without a cursor",
            )
        };
        let mut bytes = [0; LEN];
        match URL_SAFE_NO_PAD.decode_slice(cursor, &mut bytes) {
            Ok(LEN) if bytes[0] == VERSION && bytes[17..] == self.0 => {
                let mut position = [0; 16];
                position.copy_from_slice(&bytes[1..17]);
                Ok(Position(u128::from_be_bytes(position)))
            }
            Ok(_) | Err(_) => Err(invalid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cursor_works_only_where_it_came_from() {
        let tenant = TenantId::default_tenant();
        let other: TenantId = "other".parse().expect("legal");
        let scope = CursorScope::new("events", &tenant, &[Some("a"), None]);
        let cursor = scope.encode(Position(7));
        assert_eq!(scope.decode(&cursor), Ok(Position(7)));
        for wrong in [
            CursorScope::new("deliveries", &tenant, &[Some("a"), None]),
            CursorScope::new("events", &other, &[Some("a"), None]),
            CursorScope::new("events", &tenant, &[None, Some("a")]),
            CursorScope::new("events", &tenant, &[Some("a"), Some("")]),
            CursorScope::new("events", &tenant, &[Some("a")]),
        ] {
            let problem = wrong.decode(&cursor).expect_err("another scope");
            assert_eq!(problem.kind(), ProblemKind::InvalidCursor);
        }
        for bad in ["", "x", "ä", &cursor[1..], &format!("{cursor}A"), &format!("{cursor}=")] {
            assert!(scope.decode(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn positions_round_trip(position: u128) {
            let scope = CursorScope::new("events", &TenantId::default_tenant(), &[]);
            let cursor = scope.encode(Position(position));
            prop_assert_eq!(scope.decode(&cursor), Ok(Position(position)));
        }

        #[test]
        fn any_text_is_answered(text in ".{0,64}") {
            let scope = CursorScope::new("events", &TenantId::default_tenant(), &[]);
            prop_assert!(scope.decode(&text).is_err());
        }
    }
}
