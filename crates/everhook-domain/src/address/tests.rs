use super::*;
use proptest::prelude::*;

/// Judges the address under the allowed blocks; `""` means that it passes.
fn check(allow: &[&str], address: &str, expected: &str) {
    let allow = allow.iter().map(|block| block.parse().expect("a block")).collect();
    let address: IpAddr = address.parse().expect("an address");
    let reason = AddressGuard::new(allow).judge(address).err().map_or("", |blocked| blocked.reason);
    assert_eq!(reason, expected, "{address}");
}

#[test]
fn public_addresses_pass() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2001:db7:ffff::",
        "2001:db9::",
        "2003::1",
        "2606:4700:4700::1111",
        "2a00:1450:4001:82a::2004",
        "3ffe:ffff::",
        "3fff:1000::",
    ] {
        check(&[], address, "");
    }
}

#[test]
fn ipv4_special_addresses_are_refused() {
    for (address, expected) in [
        ("0.0.0.0", UNSPECIFIED),
        ("0.0.0.1", "an address of \"this network\""),
        ("0.255.255.255", "an address of \"this network\""),
        ("10.0.0.0", PRIVATE),
        ("10.255.255.255", PRIVATE),
        ("100.64.0.0", "a shared carrier address"),
        ("100.127.255.255", "a shared carrier address"),
        ("100.100.100.200", METADATA),
        ("127.0.0.1", LOOPBACK),
        ("127.255.255.255", LOOPBACK),
        ("169.254.0.0", LINK_LOCAL),
        ("169.254.169.253", LINK_LOCAL),
        ("169.254.169.254", METADATA),
        ("169.254.170.2", METADATA),
        ("168.63.129.16", METADATA),
        ("172.16.0.0", PRIVATE),
        ("172.31.255.255", PRIVATE),
        ("192.0.0.8", PROTOCOL),
        ("192.0.0.192", METADATA),
        ("192.0.2.1", DOCUMENTATION),
        ("192.88.99.1", SIX_TO_FOUR),
        ("192.168.0.0", PRIVATE),
        ("192.168.255.255", PRIVATE),
        ("198.18.0.0", BENCHMARK),
        ("198.19.255.255", BENCHMARK),
        ("198.51.100.7", DOCUMENTATION),
        ("203.0.113.7", DOCUMENTATION),
        ("224.0.0.1", MULTICAST),
        ("239.255.255.255", MULTICAST),
        ("240.0.0.0", "a reserved address"),
        ("255.255.255.254", "a reserved address"),
        ("255.255.255.255", "the broadcast address"),
    ] {
        check(&[], address, expected);
    }
}

#[test]
fn ipv6_special_addresses_are_refused() {
    for (address, expected) in [
        ("::", UNSPECIFIED),
        ("::1", LOOPBACK),
        ("::2", "an IPv4-compatible address"),
        ("::127.0.0.1", "an IPv4-compatible address"),
        ("::ffff:127.0.0.1", MAPPED),
        ("::ffff:8.8.8.8", MAPPED),
        ("::ffff:0:127.0.0.1", "an IPv4-translated address"),
        ("64:ff9b::8.8.8.8", NAT64),
        ("64:ff9b:1::1", NAT64),
        ("64:ff9b:2::1", "a reserved address"),
        ("100::", DISCARD),
        ("100:0:0:1::", "a reserved address"),
        ("2001::1", "a Teredo address"),
        ("2001:1::1", PROTOCOL),
        ("2001:2::1", BENCHMARK),
        ("2001:1f::1", ORCHID),
        ("2001:2f::1", ORCHID),
        ("2001:30::1", PROTOCOL),
        ("2001:1ff:ffff::", PROTOCOL),
        ("2001:db8::1", DOCUMENTATION),
        ("2002:7f00:1::", SIX_TO_FOUR),
        ("3fff::1", DOCUMENTATION),
        ("3fff:fff:ffff::", DOCUMENTATION),
        ("4000::1", "a reserved address"),
        ("5f00::1", "a segment identifier (SRv6)"),
        ("200::1", "a reserved address"),
        ("fc00::1", PRIVATE),
        ("fdff:ffff::1", PRIVATE),
        ("fd00:ec2::254", METADATA),
        ("fd20:ce::254", METADATA),
        ("fe80::1", LINK_LOCAL),
        ("febf:ffff::", LINK_LOCAL),
        ("fec0::1", "a site-local address"),
        ("fe00::1", "a reserved address"),
        ("ff02::1", MULTICAST),
    ] {
        check(&[], address, expected);
    }
}

#[test]
fn the_operator_allows_blocks_and_nothing_beside_them() {
    check(&["10.1.0.0/16"], "10.1.2.3", "");
    check(&["10.1.0.0/16"], "10.2.2.3", PRIVATE);
    check(&["127.0.0.1"], "127.0.0.1", "");
    check(&["127.0.0.1"], "127.0.0.2", LOOPBACK);
    check(&["::1"], "::1", "");
    check(&["127.0.0.0/8"], "::1", LOOPBACK);
    check(&["fd00::/8", "10.0.0.0/8"], "fd12::1", "");
    check(&["0.0.0.0/0"], "169.254.169.254", "");
    check(&["0.0.0.0/0"], "fd00::1", PRIVATE);
}

#[test]
fn the_address_inside_counts_only_where_the_connection_goes_to_it() {
    check(&["127.0.0.0/8"], "::ffff:127.0.0.1", "");
    check(&["::ffff:127.0.0.0/104"], "::ffff:127.0.0.1", "");
    check(&["::ffff:127.0.0.0/104"], "127.0.0.1", LOOPBACK);
    check(&["10.0.0.0/8"], "::ffff:127.0.0.1", MAPPED);
    check(&["10.0.0.0/8"], "::10.0.0.1", "an IPv4-compatible address");
    check(&["10.0.0.0/8"], "64:ff9b::10.0.0.1", NAT64);
    check(&["10.0.0.0/8"], "2002:a00:1::", SIX_TO_FOUR);
    check(&["64:ff9b::/96"], "64:ff9b::10.0.0.1", "");
    check(&["2002::/16"], "2002:a00:1::", "");
}

#[test]
fn the_sentence_names_the_address_and_the_way_out() {
    let judged = |text: &str| {
        let judged = AddressGuard::default().judge(text.parse().expect("an address"));
        judged.expect_err("blocked").to_string()
    };
    assert_eq!(
        judged("10.0.0.1"),
        "10.0.0.1 is a private address; security.allow_targets can allow it"
    );
    assert_eq!(
        judged("::ffff:169.254.169.254"),
        "::ffff:169.254.169.254 is an IPv4-mapped address; security.allow_targets can allow it"
    );
}

#[test]
fn text_forms_of_a_block() {
    use InvalidCidr::{Address, HostBits, Prefix};
    for (text, expected) in [
        ("10.0.0.0/8", Ok("10.0.0.0/8")),
        ("10.0.0.1", Ok("10.0.0.1/32")),
        ("0.0.0.0/0", Ok("0.0.0.0/0")),
        ("FD00:0::/8", Ok("fd00::/8")),
        ("::1", Ok("::1/128")),
        ("::/0", Ok("::/0")),
        ("::ffff:10.0.0.0/104", Ok("::ffff:10.0.0.0/104")),
        ("10.0.0.1/8", Err(HostBits(Cidr::v4([10, 0, 0, 0], 8)))),
        ("0.0.0.1/0", Err(HostBits(Cidr::v4([0, 0, 0, 0], 0)))),
        ("fd00::1/8", Err(HostBits(Cidr::v6([0xfd00, 0, 0, 0, 0, 0, 0, 0], 8)))),
        ("10.0.0.0/33", Err(Prefix(32))),
        ("::/129", Err(Prefix(128))),
        ("10.0.0.0/", Err(Prefix(32))),
        ("10.0.0.0/+8", Err(Prefix(32))),
        ("10.0.0.0/-1", Err(Prefix(32))),
        ("10.0.0.0/255.0.0.0", Err(Prefix(32))),
        ("10.0.0.0/8/8", Err(Prefix(32))),
        ("10.0.0", Err(Address)),
        ("010.0.0.1", Err(Address)),
        ("0x7f.0.0.1", Err(Address)),
        ("fe80::1%eth0", Err(Address)),
        ("[::1]", Err(Address)),
        ("localhost", Err(Address)),
        (" 10.0.0.0/8", Err(Address)),
        ("", Err(Address)),
    ] {
        let parsed = text.parse::<Cidr>().map(|block| block.to_string());
        assert_eq!(parsed, expected.map(str::to_owned), "{text}");
    }
    assert_eq!(
        "10.0.0.1/8".parse::<Cidr>().expect_err("host bits").to_string(),
        "the address has bits set beyond its prefix length: write 10.0.0.0/8, or leave out the \
         length"
    );
}

fn addresses() -> impl Strategy<Value = IpAddr> {
    let v4 = any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    let v6 = any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)));
    // Addresses close to the edges of the listed blocks, which chance would not find.
    let near = (0..SPECIAL.len(), any::<u128>(), -2..2_i32).prop_map(|(row, low, step)| {
        let (block, _) = SPECIAL[row];
        match block.network {
            IpAddr::V4(v4) => {
                let free = u32::MAX.checked_shr(u32::from(block.prefix)).unwrap_or(0);
                let inside = v4.to_bits() | (low as u32 & free);
                IpAddr::V4(Ipv4Addr::from_bits(inside.wrapping_add_signed(step)))
            }
            IpAddr::V6(v6) => {
                let free = u128::MAX.checked_shr(u32::from(block.prefix)).unwrap_or(0);
                let inside = v6.to_bits() | (low & free);
                IpAddr::V6(Ipv6Addr::from_bits(inside.wrapping_add_signed(step.into())))
            }
        }
    });
    prop_oneof![v4, v6, near]
}

/// What the standard library knows of these kinds, as a second opinion.
fn certainly_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_broadcast()
                || v4.is_documentation()
                || v4.is_multicast()
                || v4.is_unspecified()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || v6.to_ipv4().is_some()
        }
    }
}

proptest! {
    #[test]
    fn agrees_with_the_standard_library(address in addresses()) {
        if certainly_special(address) {
            prop_assert!(AddressGuard::default().judge(address).is_err());
        }
    }

    #[test]
    fn an_allowed_address_passes_and_its_block_round_trips(
        address in addresses(),
        cut in 0..=128u8,
    ) {
        let prefix = cut.min(bits(address));
        let block = Cidr { network: masked(address, prefix), prefix };
        prop_assert_eq!(block.to_string().parse::<Cidr>(), Ok(block));
        prop_assert!(block.contains(address));
        prop_assert!(AddressGuard::new(vec![block]).judge(address).is_ok());
    }

    #[test]
    fn a_mapped_address_is_never_freer_than_the_one_inside(
        inner: u32,
        block: u32,
        cut in 0..=32u8,
    ) {
        let inner = Ipv4Addr::from_bits(inner);
        let network = masked(IpAddr::V4(Ipv4Addr::from_bits(block)), cut);
        let guard = AddressGuard::new(vec![Cidr { network, prefix: cut }]);
        if guard.judge(IpAddr::V6(inner.to_ipv6_mapped())).is_ok() {
            prop_assert!(guard.judge(IpAddr::V4(inner)).is_ok());
        }
    }
}
