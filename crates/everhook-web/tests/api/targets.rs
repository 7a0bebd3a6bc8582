//! Literal addresses that no endpoint may have, in every spelling: refused on save, with what the
//! address is and what can be done.

use crate::harness::{Api, text};

/// A host, and what it is once it is an address.
const REFUSED: [(&str, &str); 47] = [
    ("127.0.0.1", "127.0.0.1 is a loopback address"),
    ("127.255.255.254", "127.255.255.254 is a loopback address"),
    ("10.1.2.3", "10.1.2.3 is a private address"),
    ("172.31.0.1", "172.31.0.1 is a private address"),
    ("192.168.0.1", "192.168.0.1 is a private address"),
    ("169.254.1.1", "169.254.1.1 is a link-local address"),
    ("169.254.169.254", "169.254.169.254 is a cloud metadata address"),
    ("100.100.100.200", "100.100.100.200 is a cloud metadata address"),
    ("168.63.129.16", "168.63.129.16 is a cloud metadata address"),
    ("100.64.0.1", "100.64.0.1 is a shared carrier address"),
    ("0.0.0.0", "0.0.0.0 is the unspecified address"),
    ("0.1.2.3", "0.1.2.3 is an address of \"this network\""),
    ("224.0.0.1", "224.0.0.1 is a multicast address"),
    ("255.255.255.255", "255.255.255.255 is the broadcast address"),
    ("240.0.0.1", "240.0.0.1 is a reserved address"),
    ("192.0.2.1", "192.0.2.1 is a documentation address"),
    ("198.18.0.1", "198.18.0.1 is a benchmarking address"),
    ("192.0.0.1", "192.0.0.1 is an address reserved for protocol assignments"),
    // One address, written as no person writes it.
    ("2852039166", "169.254.169.254 is a cloud metadata address"),
    ("0xa9fea9fe", "169.254.169.254 is a cloud metadata address"),
    ("0XA9.0xFE.0xA9.0xFE", "169.254.169.254 is a cloud metadata address"),
    ("0251.0376.0251.0376", "169.254.169.254 is a cloud metadata address"),
    ("025177524776", "169.254.169.254 is a cloud metadata address"),
    ("169.254.43518", "169.254.169.254 is a cloud metadata address"),
    ("169.16689662", "169.254.169.254 is a cloud metadata address"),
    ("169.254.169.254.", "169.254.169.254 is a cloud metadata address"),
    ("１６９.２５４.１６９.２５４", "169.254.169.254 is a cloud metadata address"),
    ("169。254．169｡254", "169.254.169.254 is a cloud metadata address"),
    ("%31%36%39.254.169.254", "169.254.169.254 is a cloud metadata address"),
    ("①⑥⑨.254.169.254", "169.254.169.254 is a cloud metadata address"),
    // IPv6, and IPv4 inside it.
    ("[::1]", "::1 is a loopback address"),
    ("[0:0:0:0:0:0:0:1]", "::1 is a loopback address"),
    ("[::]", ":: is the unspecified address"),
    ("[::ffff:169.254.169.254]", "::ffff:169.254.169.254 is an IPv4-mapped address"),
    ("[::ffff:a9fe:a9fe]", "::ffff:169.254.169.254 is an IPv4-mapped address"),
    ("[::169.254.169.254]", "::a9fe:a9fe is an IPv4-compatible address"),
    ("[64:ff9b::169.254.169.254]", "64:ff9b::a9fe:a9fe is a NAT64 address"),
    ("[64:ff9b:1::a9fe:a9fe]", "64:ff9b:1::a9fe:a9fe is a NAT64 address"),
    ("[2002:a9fe:a9fe::]", "2002:a9fe:a9fe:: is a 6to4 address"),
    ("[2001:0:a9fe:a9fe::1]", "2001:0:a9fe:a9fe::1 is a Teredo address"),
    ("[fd00:ec2::254]", "fd00:ec2::254 is a cloud metadata address"),
    ("[fc00::1]", "fc00::1 is a private address"),
    ("[FE80::1]", "fe80::1 is a link-local address"),
    ("[fec0::1]", "fec0::1 is a site-local address"),
    ("[ff02::1]", "ff02::1 is a multicast address"),
    ("[2001:db8::1]", "2001:db8::1 is a documentation address"),
    ("[3fff::1]", "3fff::1 is a documentation address"),
];

#[tokio::test]
async fn what_peers_fail_15_literal_targets_are_refused_on_save_and_on_change() {
    let api = Api::new();
    let path = format!("/api/v1/endpoints/{}", api.endpoint().await);
    for (host, what) in REFUSED {
        for scheme in ["http", "https"] {
            let body = format!(r#"{{"url":"{scheme}://user:pass@{host}:8080/x"}}"#);
            for reply in [api.post("/api/v1/endpoints", &body).await, api.patch(&path, &body).await]
            {
                assert_eq!((reply.status, reply.pointers()), (422, vec!["/url".to_owned()]));
                let detail = text(&reply.json()["errors"][0]["detail"]);
                let expected = format!("{what}; security.allow_targets can allow it");
                assert_eq!(detail, expected, "{body}");
            }
        }
    }
    assert_eq!(api.list("/api/v1/endpoints").await.len(), 1);
}

#[tokio::test]
async fn what_peers_fail_15_what_is_no_address_and_no_name_is_refused_too() {
    let api = Api::new();
    for host in [
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "[::1",
        "::1",
        "[127.0.0.1]",
        "127.0.0.256",
        "4294967296",
        "0x100000000",
        "1.2.3.4.5",
        "127.0.0.1..",
        "09.0.0.1",
        "127.0.0.0x",
        "a.1",
    ] {
        let reply = api.post("/api/v1/endpoints", &format!(r#"{{"url":"http://{host}/"}}"#)).await;
        let url = vec!["/url".to_owned()];
        assert_eq!((reply.status, reply.pointers()), (422, url), "{host}");
    }
    // A name is judged by its addresses, each time one of them is connected to.
    for host in ["localhost", "127.0.0.1.nip.example", "metadata.google.internal"] {
        let reply = api.post("/api/v1/endpoints", &format!(r#"{{"url":"http://{host}/"}}"#)).await;
        assert_eq!(reply.status, 201, "{host}");
    }
}
