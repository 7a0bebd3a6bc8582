//! `everhook demo`: it shows what it promises, within its time, and leaves nothing behind.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::{TempDir, ended, everhook};

#[test]
fn everything_promised_is_seen_within_ten_seconds() {
    let temp = TempDir::new();
    std::fs::create_dir(&temp.0).expect("free");
    let began = Instant::now();
    let (code, text, stderr) = ended(everhook(&["demo"]).env("TMPDIR", &temp.0));
    assert_eq!(code, 0, "{text}\n{stderr}");
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    for expected in [
        "accepted    order.created",
        "duplicate   order.created",
        "attempt 1   invoice.created  to flaky   503",
        "attempt 2   invoice.created  to flaky   200  signature verified",
        "attempt 3   refund.created   to broken  500",
        "dead        refund.created   to broken: exhausted after 3 attempts",
        "attempt 4   refund.created   to broken  200  signature verified",
        "6 events accepted, 1 duplicate, 6 delivered, 4 retries, 1 dead, 1 replayed",
        "Next:",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours outside a terminal");
    let left = std::fs::read_dir(&temp.0).expect("there").count();
    assert_eq!(left, 0, "the temporary directory is removed");
}

#[test]
fn the_summary_for_scripts() {
    let data_dir = TempDir::new();
    let (code, text, stderr) =
        ended(&mut everhook(&["demo", "--json", "--data-dir", data_dir.arg()]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let summary: Value = serde_json::from_str(&text).expect("JSON and nothing else");
    assert_eq!(summary["ok"], true, "{summary}");
    assert!(data_dir.0.join("everhook.db").exists(), "a directory that was asked for is kept");

    let again = ended(&mut everhook(&["demo", "--data-dir", data_dir.arg()]));
    assert_eq!(again.0, 2, "it is in nobody's way");
    assert!(again.2.contains("is not empty"), "{}", again.2);
}
