use std::sync::atomic::{AtomicU8, Ordering};

use super::*;

const STORED: &str = r#"{"url":"http://user:hunter2@a/","subscription":{}}"#;

fn key(byte: u8) -> MasterKey {
    MasterKey::parse(&STANDARD.encode([byte; KEY_BYTES])).expect("legal")
}

fn sealer(current: u8, old: &[u8]) -> Sealer {
    let drawn = AtomicU8::new(0);
    let entropy: Entropy = Arc::new(move |bytes| bytes.fill(drawn.fetch_add(1, Ordering::Relaxed)));
    Sealer::new(key(current), old.iter().copied().map(key).collect(), entropy)
}

fn owned<T>(tenant: &str, endpoint: u128, test: impl FnOnce(Owner<'_>) -> T) -> T {
    let tenant = tenant.parse().expect("legal");
    let owned = Owned::Endpoint(EndpointId::from_bits(endpoint));
    test(Owner { tenant: &tenant, owned })
}

/// What a stored value opens as, for the endpoint 1 of the tenant `a`; `None` if it is damaged.
fn opened(sealer: &Sealer, stored: &str) -> Result<Option<String>, MissingKey> {
    owned("a", 1, |owner| sealer.open(owner, SETTINGS, stored)).map(|opened| match opened {
        Opened::Text(text) => Some(text),
        Opened::Damaged => None,
    })
}

fn sealed(sealer: &Sealer) -> String {
    owned("a", 1, |owner| sealer.seal(owner, SETTINGS, STORED.to_owned())).expect("sealed")
}

#[test]
fn case_089_what_a_keys_file_may_hold() {
    use InvalidMasterKey::{Empty, Encoding, Length, WhiteSpace};
    let base64 = STANDARD.encode([7; 32]);
    let hex = "07".repeat(32);
    for text in [
        base64.clone(),
        base64.trim_end_matches('=').to_owned(),
        format!("{base64}\n"),
        format!("{base64}\r\n"),
        hex.clone(),
        format!("{hex}\n"),
    ] {
        assert_eq!(MasterKey::parse(&text).expect("legal").id(), key(7).id(), "{text:?}");
    }
    assert_ne!(key(7).id(), key(8).id());
    for (text, expected) in [
        (String::new(), Empty),
        ("\n".to_owned(), Empty),
        (format!("{base64} "), WhiteSpace),
        (format!(" {base64}"), WhiteSpace),
        (format!("{base64}\n\n"), WhiteSpace),
        (format!("{base64}\n{base64}\n"), WhiteSpace),
        ("not-a-key!".to_owned(), Encoding),
        ("07".repeat(16), Length(24)),
        (STANDARD.encode([7; 16]), Length(16)),
        (STANDARD.encode([7; 33]), Length(33)),
    ] {
        assert_eq!(MasterKey::parse(&text).map(drop), Err(expected), "{text:?}");
    }
}

#[test]
fn a_value_opens_under_its_key_and_in_its_place_only() {
    let sealer = sealer(1, &[]);
    let stored = sealed(&sealer);
    assert!(stored.starts_with(&sealer.current_mark().expect("a key")), "{stored}");
    assert_ne!(sealed(&sealer), stored, "every value has a salt of its own");
    assert_eq!(opened(&sealer, &stored), Ok(Some(STORED.to_owned())));
    for (tenant, endpoint, column) in [("a", 2, SETTINGS), ("b", 1, SETTINGS), ("a", 1, SECRETS)] {
        let elsewhere = owned(tenant, endpoint, |owner| sealer.open(owner, column, &stored));
        assert!(matches!(elsewhere, Ok(Opened::Damaged)), "{tenant} {endpoint} {column}");
    }
    let (source, tenant) = (Owned::Source(SourceId::from_bits(1)), "a".parse().expect("legal"));
    let owner = Owner { tenant: &tenant, owned: source };
    assert!(matches!(sealer.open(owner, SETTINGS, &stored), Ok(Opened::Damaged)));
    let body = MARK.len() + 2 * KEY_ID_BYTES + 1;
    for place in body..stored.len() {
        let mut broken = stored.clone().into_bytes();
        broken[place] = if broken[place] == b'A' { b'B' } else { b'A' };
        let broken = String::from_utf8(broken).expect("ASCII");
        assert_eq!(opened(&sealer, &broken), Ok(None), "byte {place}");
        assert_eq!(opened(&sealer, &stored[..place]), Ok(None), "cut at {place}");
    }
}

#[test]
fn without_the_key_it_is_said_which_one_is_needed() {
    let stored = sealed(&sealer(1, &[]));
    let needed = key(1).id;
    for (other, given) in [
        (Sealer::default(), "no master key is given".to_owned()),
        (sealer(2, &[3]), format!("have the ids {}, {}", key(2).id, key(3).id)),
    ] {
        let why = opened(&other, &stored).expect_err("a missing key").to_string();
        assert!(why.contains(&needed) && why.contains(&given), "{why}");
    }
    assert_eq!(opened(&sealer(2, &[1]), &stored), Ok(Some(STORED.to_owned())));
}

#[test]
fn renewing_takes_what_is_open_or_sealed_under_an_older_key() {
    let (old, new) = (sealer(1, &[]), sealer(2, &[1]));
    let secrets = "[]";
    let mark = new.current_mark().expect("a key");
    for settings in [STORED.to_owned(), sealed(&old)] {
        let renewed = owned("a", 1, |owner| new.renew(owner, [&settings, secrets]));
        let [settings, secrets] = renewed.expect("sealed").expect("not damaged");
        assert!(settings.starts_with(&mark) && secrets.starts_with(&mark));
        assert_eq!(opened(&new, &settings), Ok(Some(STORED.to_owned())));
        let damaged = settings.replace(&mark, &format!("{mark}AAAA"));
        let renewed = owned("a", 1, |owner| new.renew(owner, [&damaged, &secrets]));
        assert!(matches!(renewed, Ok(None)));
    }
}

#[test]
fn what_is_damaged_is_for_its_owner_to_tell() {
    let sealer = sealer(1, &[]);
    let damaged = format!("{}AAAA", sealer.current_mark().expect("a key"));
    let read = owned("a", 1, |owner| sealer.read(owner, [&damaged, &damaged]));
    assert_eq!(read, Ok([String::new(), String::new()]));
}

#[test]
fn nothing_of_a_key_is_shown() {
    let shown = format!("{:?} {:?}", key(7), sealer(1, &[2]));
    assert!(shown.contains(key(1).id()) && shown.contains(key(2).id()), "{shown}");
    assert!(!shown.contains("0707") && !shown.contains("7, 7"), "{shown}");
}
