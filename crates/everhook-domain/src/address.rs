//! Which IP addresses may be connected to.
//!
//! Refused is every address that is not globally reachable, by the IANA special-purpose address
//! registries (RFC 6890, RFC 8190), and every address that leads to another one inside it:
//! IPv4-mapped, IPv4-compatible, NAT64, 6to4, Teredo. Of IPv6 only `2000::/3` is given out for
//! global use, so whatever lies outside it is refused without being listed.
//!
//! What is judged is the parsed address, never its text: odd spellings cannot get past. A literal
//! address is judged when an endpoint is saved, the addresses of a name each time one of them is
//! connected to, so a name that changes its mind is caught as well. The only exceptions are those
//! that the operator lists.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A block of addresses: a network and the length of its prefix (RFC 4632 §3.1, RFC 4291 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

/// The text is not a block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCidr {
    /// The part before the slash.
    #[error(
        "not an IP address or block such as 10.0.0.0/8, 192.168.1.7 or fd00::/8 (names cannot be \
         listed)"
    )]
    Address,
    /// The part after the slash.
    #[error("the prefix length after '/' must be a whole number from 0 to {0}")]
    Prefix(u8),
    /// The address has bits set beyond the prefix; holds what was probably meant.
    #[error(
        "the address has bits set beyond its prefix length: write {0}, or leave out the length"
    )]
    HostBits(Cidr),
}

impl Cidr {
    const fn v4(octets: [u8; 4], prefix: u8) -> Self {
        let [a, b, c, d] = octets;
        Self { network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
    }

    const fn v6(segments: [u16; 8], prefix: u8) -> Self {
        let [a, b, c, d, e, f, g, h] = segments;
        Self { network: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), prefix }
    }

    /// Whether the address lies in the block. An IPv4 block holds no IPv6 address, nor the other
    /// way round.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differs = network.to_bits() ^ address.to_bits();
                differs.checked_shr(32 - u32::from(self.prefix)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differs = network.to_bits() ^ address.to_bits();
                differs.checked_shr(128 - u32::from(self.prefix)).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The address with all bits after the prefix cleared.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidCidr::Address)?;
        let longest = bits(address);
        let prefix = match length {
            None => longest,
            Some(digits) => Some(digits)
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|digits| digits.parse::<u8>().ok())
                .filter(|prefix| *prefix <= longest)
                .ok_or(InvalidCidr::Prefix(longest))?,
        };
        let network = masked(address, prefix);
        let block = Self { network, prefix };
        if network == address { Ok(block) } else { Err(InvalidCidr::HostBits(block)) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// An address that may not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {reason}; security.allow_targets can allow it")]
pub struct Blocked {
    /// The address.
    pub address: IpAddr,
    /// What it is: `a private address`.
    pub reason: &'static str,
}

/// Judges addresses: public ones pass, and those that the operator allows.
#[derive(Clone, Debug, Default)]
pub struct AddressGuard {
    allow: Vec<Cidr>,
}

impl AddressGuard {
    /// A guard that lets pass, besides public addresses, those in the given blocks.
    pub const fn new(allow: Vec<Cidr>) -> Self {
        Self { allow }
    }

    /// A guard that lets every address pass: for where the operator has said to connect to.
    pub fn open() -> Self {
        Self { allow: vec![Cidr::v4([0; 4], 0), Cidr::v6([0; 8], 0)] }
    }

    /// Whether this address may be connected to.
    ///
    /// # Errors
    /// [`Blocked`] says what the address is; fit to be shown.
    pub fn judge(&self, address: IpAddr) -> Result<(), Blocked> {
        match special(address) {
            Some(reason) if !self.allows(address) => Err(Blocked { address, reason }),
            Some(_) | None => Ok(()),
        }
    }

    /// A connection to an IPv4-mapped address goes to the IPv4 address inside, so a block that
    /// holds that one allows it too. Relays stand between us and the address inside any other
    /// kind: only the outer address counts there.
    fn allows(&self, address: IpAddr) -> bool {
        let inner = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map(IpAddr::V4),
        };
        let holds = |block: &Cidr| {
            block.contains(address) || inner.is_some_and(|inner| block.contains(inner))
        };
        self.allow.iter().any(holds)
    }
}

/// What the address is, unless it is a public unicast address.
fn special(address: IpAddr) -> Option<&'static str> {
    let listed = SPECIAL.iter().find(|(block, _)| block.contains(address));
    let unlisted = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(_) => (!GLOBAL_V6.contains(address)).then_some("a reserved address"),
    };
    listed.map(|(_, reason)| *reason).or(unlisted)
}

/// All of IPv6 that is given out for global use (RFC 4291 §2.4, IANA IPv6 address space).
const GLOBAL_V6: Cidr = Cidr::v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

const METADATA: &str = "a cloud metadata address";
const UNSPECIFIED: &str = "the unspecified address";
const PRIVATE: &str = "a private address";
const LOOPBACK: &str = "a loopback address";
const LINK_LOCAL: &str = "a link-local address";
const PROTOCOL: &str = "an address reserved for protocol assignments";
const DOCUMENTATION: &str = "a documentation address";
const BENCHMARK: &str = "a benchmarking address";
const MULTICAST: &str = "a multicast address";
const MAPPED: &str = "an IPv4-mapped address";
const NAT64: &str = "a NAT64 address";
const SIX_TO_FOUR: &str = "a 6to4 address";
const ORCHID: &str = "an identifier, not an address";
const DISCARD: &str = "a discard-only address";

/// The refused blocks; the first that holds an address names it, so narrower ones stand first.
///
/// The IANA IPv4 and IPv6 special-purpose address registries (RFC 6890, RFC 8190) except what they
/// call globally reachable, multicast, and the addresses at which clouds serve credentials to the
/// machine itself. `192.0.0.0/24` and `2001::/23` are refused whole: the few addresses in them that
/// are globally reachable belong to protocols that are not HTTP.
static SPECIAL: [(Cidr, &str); 47] = [
    (Cidr::v4([169, 254, 169, 254], 32), METADATA),
    // Amazon's credentials for containers, and for pods.
    (Cidr::v4([169, 254, 170, 2], 32), METADATA),
    (Cidr::v4([169, 254, 170, 23], 32), METADATA),
    // Alibaba's, Oracle's and Azure's; the last of these looks public, but ends in the host.
    (Cidr::v4([100, 100, 100, 200], 32), METADATA),
    (Cidr::v4([192, 0, 0, 192], 32), METADATA),
    (Cidr::v4([168, 63, 129, 16], 32), METADATA),
    (Cidr::v4([0, 0, 0, 0], 32), UNSPECIFIED),
    (Cidr::v4([0, 0, 0, 0], 8), "an address of \"this network\""),
    (Cidr::v4([10, 0, 0, 0], 8), PRIVATE),
    (Cidr::v4([100, 64, 0, 0], 10), "a shared carrier address"),
    (Cidr::v4([127, 0, 0, 0], 8), LOOPBACK),
    (Cidr::v4([169, 254, 0, 0], 16), LINK_LOCAL),
    (Cidr::v4([172, 16, 0, 0], 12), PRIVATE),
    (Cidr::v4([192, 0, 0, 0], 24), PROTOCOL),
    (Cidr::v4([192, 0, 2, 0], 24), DOCUMENTATION),
    (Cidr::v4([192, 88, 99, 0], 24), SIX_TO_FOUR),
    (Cidr::v4([192, 168, 0, 0], 16), PRIVATE),
    (Cidr::v4([198, 18, 0, 0], 15), BENCHMARK),
    (Cidr::v4([198, 51, 100, 0], 24), DOCUMENTATION),
    (Cidr::v4([203, 0, 113, 0], 24), DOCUMENTATION),
    (Cidr::v4([224, 0, 0, 0], 4), MULTICAST),
    (Cidr::v4([255, 255, 255, 255], 32), "the broadcast address"),
    (Cidr::v4([240, 0, 0, 0], 4), "a reserved address"),
    // Amazon's and Google's.
    (Cidr::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), METADATA),
    (Cidr::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128), METADATA),
    (Cidr::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), METADATA),
    (Cidr::v6([0, 0, 0, 0, 0, 0, 0, 0], 128), UNSPECIFIED),
    (Cidr::v6([0, 0, 0, 0, 0, 0, 0, 1], 128), LOOPBACK),
    (Cidr::v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "an IPv4-compatible address"),
    (Cidr::v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), MAPPED),
    (Cidr::v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), "an IPv4-translated address"),
    (Cidr::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), NAT64),
    (Cidr::v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), NAT64),
    (Cidr::v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), DISCARD),
    (Cidr::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "a Teredo address"),
    (Cidr::v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), BENCHMARK),
    (Cidr::v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28), ORCHID),
    (Cidr::v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28), ORCHID),
    (Cidr::v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), PROTOCOL),
    (Cidr::v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), DOCUMENTATION),
    (Cidr::v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), SIX_TO_FOUR),
    (Cidr::v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), DOCUMENTATION),
    (Cidr::v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "a segment identifier (SRv6)"),
    (Cidr::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), PRIVATE),
    (Cidr::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), LINK_LOCAL),
    (Cidr::v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "a site-local address"),
    (Cidr::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), MULTICAST),
];

#[cfg(test)]
mod tests;
