//! The section `[security]`.

use everhook_domain::address::Cidr;

use super::reader::Reader;
use super::rule;

/// `[security]`
#[derive(Clone, Debug)]
pub(crate) struct Security {
    /// Addresses that are allowed although they are not public.
    pub(crate) allow_targets: Vec<Cidr>,
    /// Whether endpoints must have https URLs.
    pub(crate) require_https: bool,
}

/// Reads the section; `None` when a value is wrong.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Security> {
    let blocks = "IP addresses and blocks, such as 10.1.2.0/24, 192.168.1.7 or fd00::/8";
    let block = rule::text::<Cidr>(blocks, "10.1.2.0/24");
    let allow_targets = reader.read("security.allow_targets", &rule::list(blocks, block));
    let require_https = reader.read("security.require_https", &rule::switch());
    Some(Security { allow_targets: allow_targets?, require_https: require_https? })
}
