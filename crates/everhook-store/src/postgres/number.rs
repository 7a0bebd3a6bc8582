//! Ids and numbers between Rust and PostgreSQL.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use everhook_domain::id::Id;
use everhook_domain::key::KeyHash;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// 128 bits as a `uuid`, which sorts as they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Bits(pub(super) u128);

impl<K> From<Id<K>> for Bits {
    fn from(id: Id<K>) -> Self {
        Self(id.bits())
    }
}

impl From<KeyHash> for Bits {
    fn from(key: KeyHash) -> Self {
        Self(u128::from_be_bytes(key.0))
    }
}

impl ToSql for Bits {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Bits {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(u128::from_be_bytes(raw.try_into()?)))
    }

    accepts!(UUID);
}

/// Ids as an array of `uuid`.
pub(super) fn bits<K>(ids: &[Id<K>]) -> Vec<Bits> {
    ids.iter().map(|id| Bits(id.bits())).collect()
}

/// A number of ours as `bigint`; all of them are below 2^63.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A `bigint` of ours; none is negative.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A count as `integer`.
pub(super) fn int(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// An `integer` of ours; none is negative.
pub(super) fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// A code as `smallint`.
pub(super) fn small(code: i64) -> i16 {
    i16::try_from(code).unwrap_or(i16::MAX)
}

/// A length as `bigint`.
pub(super) fn size(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
