//! The isolation unit: everything belongs to one tenant, and nothing reaches across.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{Id, kind};
use crate::time::Timestamp;

/// Longest name of a tenant, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A tenant's id: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(Arc<str>);

/// The text is not a tenant id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a tenant id: expected 1 to 64 characters of a-z, 0-9, _ and -")]
pub struct InvalidTenantId;

impl TenantId {
    /// The tenant that exists from the start.
    pub fn default_tenant() -> Self {
        Self(Arc::from("default"))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the tenant that exists from the start, which cannot be deleted: requests that
    /// name no tenant are its.
    pub fn is_default(&self) -> bool {
        *self == Self::default_tenant()
    }
}

/// The id of a tenant whose maker chose none.
impl From<Id<kind::Tenant>> for TenantId {
    fn from(id: Id<kind::Tenant>) -> Self {
        Self(Arc::from(id.to_string()))
    }
}

/// What people call a tenant: 1 to 255 bytes without control characters. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantName(Arc<str>);

/// The text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {NAME_BYTES_MAX} bytes, not all of them blank, and no control characters")]
pub struct InvalidTenantName;

impl TenantName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TenantName {
    type Err = InvalidTenantName;

    fn from_str(text: &str) -> Result<Self, InvalidTenantName> {
        let blank = text.trim().is_empty();
        if blank || text.len() > NAME_BYTES_MAX || text.contains(char::is_control) {
            return Err(InvalidTenantName);
        }
        Ok(Self(Arc::from(text)))
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// What people call it.
    pub name: TenantName,
    /// When it was made.
    pub created_at: Timestamp,
}

impl FromStr for TenantId {
    type Err = InvalidTenantId;

    fn from_str(text: &str) -> Result<Self, InvalidTenantId> {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if (1..=64).contains(&text.len()) && text.bytes().all(legal) {
            Ok(Self(Arc::from(text)))
        } else {
            Err(InvalidTenantId)
        }
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for TenantId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TenantId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_and_illegal() {
        for good in ["default", "a", "0-_z", &"x".repeat(64)] {
            assert!(good.parse::<TenantId>().is_ok(), "{good}");
        }
        for bad in ["", "A", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert!(bad.parse::<TenantId>().is_err(), "{bad}");
        }
        let chosen = TenantId::from(Id::from_parts(1, 2, 3, 0));
        assert!(chosen.as_str().starts_with("ten_"), "{chosen}");
        assert_eq!(chosen.as_str().parse(), Ok(chosen.clone()));
    }

    #[test]
    fn names() {
        for good in ["A", "Bücher & Söhne", &"x".repeat(NAME_BYTES_MAX)] {
            assert_eq!(good.parse::<TenantName>().as_ref().map(TenantName::as_str), Ok(good));
        }
        for bad in ["", " ", "a\nb", "a\0", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(bad.parse::<TenantName>(), Err(InvalidTenantName), "{bad:?}");
        }
    }
}
