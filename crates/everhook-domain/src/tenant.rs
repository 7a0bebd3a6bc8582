//! The isolation unit: everything belongs to one tenant, and nothing reaches across.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    }
}
