//! `everhook check`: each flaw fails its own row and no other, and what is right passes all.

mod sample;

use everhook_domain::inbound::SourceKind;
use serde_json::Value;

use crate::help::check_golden;
use crate::process::{TempDir, ended, everhook};
use sample::{Design, Flaw, Sample};

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const DOCS: &str = include_str!("../../../../docs/checking.md");
/// What everybody knows is no secret.
const PUBLIC: &str = "dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ==";
/// More than an answer takes on a machine that is busy.
const WITHIN: &str = "5";

/// Runs the command; returns its code, and the names of the rows of each verdict.
async fn tried(args: Vec<String>) -> (i32, Value) {
    let run = move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        ended(&mut everhook(&args))
    };
    let (code, stdout, stderr) = tokio::task::spawn_blocking(run).await.expect("no panic");
    let report = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{code} {stderr}"));
    (code, report)
}

fn args(url: &str, more: &[&str]) -> Vec<String> {
    let hook = format!("{url}/hook");
    let usual = ["check", &hook, "--secret", SECRET, "--within", WITHIN, "--json"];
    usual.iter().chain(more).map(ToString::to_string).collect()
}

fn rows<'a>(report: &'a Value, verdict: &str) -> Vec<&'a str> {
    let rows = report["rows"].as_array().expect("rows").iter();
    rows.filter(|row| row["verdict"] == verdict).filter_map(|row| row["row"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_flaw_fails_its_own_row_and_no_other() {
    for (flaw, row) in [
        (Flaw::CheckThenInsert, "overlap"),
        (Flaw::MarkedBeforeTheEffect, "failure"),
        (Flaw::EffectBeforeDedupe, "crash"),
        (Flaw::ParsedBeforeVerified, "unread"),
        (Flaw::StaleAccepted, "stale-signature"),
        (Flaw::OrderAssumed, "order"),
        (Flaw::DuplicatesRefused, "duplicate"),
        (Flaw::ContentHashAsKey, "same-content"),
        (Flaw::MemoryOnly, "restart"),
        (Flaw::Slow, "slow"),
    ] {
        let (_sample, url) = Sample::start(Design::Flawed(flaw), "message", SECRET).await;
        let (code, report) = tried(args(&url, &["--effects", &format!("{url}/effects")])).await;
        assert_eq!(rows(&report, "fail"), [row], "{flaw:?}: {report:#}");
        assert_eq!(rows(&report, "pass").len(), 15, "{flaw:?}: {report:#}");
        assert_eq!((code, &report["passes"]), (1, &Value::Bool(false)), "{flaw:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_right_passes_every_row_that_its_kind_has() {
    for (design, kind, other) in [
        (Design::OneTransaction, "message", &[][..]),
        (Design::Inbox, "message", &[]),
        (Design::OneTransaction, "stripe", &[]),
        (Design::OneTransaction, "hubspot", &[]),
        // No timestamp is signed.
        (Design::Inbox, "github", &["stale-signature"]),
        // The signature is in the body, and not of it.
        (Design::Inbox, "mailgun", &["changed-body", "unread"]),
    ] {
        let (_sample, url) = Sample::start(design, kind, SECRET).await;
        let more = ["--kind", kind, "--effects", &format!("{url}/effects")];
        let (code, report) = tried(args(&url, &more)).await;
        assert_eq!(rows(&report, "does_not_apply"), other, "{design:?} {kind}: {report:#}");
        assert_eq!(rows(&report, "pass").len(), 16 - other.len(), "{kind}: {report:#}");
        assert_eq!(code, 0, "{design:?} {kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_seen_is_not_tried_and_no_pass() {
    let of_effects = ["overlap", "same-content", "order", "failure", "crash", "restart", "later"];
    let (_sample, url) = Sample::start(Design::OneTransaction, "message", SECRET).await;
    let (code, report) = tried(args(&url, &[])).await;
    assert_eq!((code, rows(&report, "not_tried")), (1, of_effects.to_vec()), "{report:#}");
    assert_eq!(rows(&report, "fail"), [""; 0]);
    for row in [rows(&report, "pass"), rows(&report, "not_tried")].concat() {
        assert!(DOCS.contains(&format!("\n| `{row}` | ")), "docs/checking.md lacks {row}");
    }
    // It tells its effects, but does not fail when it is asked to.
    let (_sample, url) = Sample::start(Design::Silent, "message", SECRET).await;
    let (code, report) = tried(args(&url, &["--effects", &format!("{url}/effects")])).await;
    assert_eq!((code, rows(&report, "not_tried")), (1, of_effects[3..].to_vec()), "{report:#}");
    // Effects that cannot be read are no reason to stop.
    let (code, report) = tried(args(&url, &["--effects", &format!("{url}/nowhere")])).await;
    assert_eq!((code, rows(&report, "fail")), (1, Vec::new()), "{report:#}");
    assert!(rows(&report, "pass").contains(&"unread"), "{report:#}");
    // Another secret: the receiver refuses everything, which is not to be taken for safe.
    let other = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let (_sample, url) = Sample::start(Design::OneTransaction, "message", other).await;
    let (code, report) = tried(args(&url, &[])).await;
    assert_eq!((code, rows(&report, "fail")), (1, vec!["accepted"]), "{report:#}");
    assert_eq!(rows(&report, "not_tried").len(), 15, "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_says_what_to_do() {
    let flaw = Design::Flawed(Flaw::MarkedBeforeTheEffect);
    let (_sample, url) = Sample::start(flaw, "github", SECRET).await;
    let folder = TempDir::new();
    std::fs::create_dir(&folder.0).expect("writable");
    let file = folder.0.join("secret");
    std::fs::write(&file, format!("{SECRET}\n")).expect("writable");
    let run = move || {
        let (hook, effects) = (format!("{url}/hook"), format!("{url}/effects"));
        let secret = format!("@{}", file.display());
        let args = ["check", &hook, "--secret", &secret, "--kind", "github"];
        let more = ["--within", WITHIN, "--effects", &effects];
        ended(&mut everhook(&[&args[..], &more[..]].concat()))
    };
    let (code, stdout, stderr) = tokio::task::spawn_blocking(run).await.expect("no panic");
    check_golden("check.txt", &stdout);
    assert_eq!(code, 1, "{stderr}");
}

#[test]
fn what_cannot_be_tried_is_told() {
    for (args, code, expected) in [
        (&["--kind", "paypal"][..], 2, "of the kind paypal cannot be made"),
        (&["--kind", "cloudevents"], 2, "kinds that can be tried are message,"),
        (&["--kind", "zendesk", "--secret", PUBLIC], 2, "--secret: of the kind zendesk"),
        (&["--secret", "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAAAAAAAAAAA="], 2, "a public key"),
        (&["--kind", "strip"], 2, "--kind: there is no such kind"),
        (&["--effects", "ftp://x"], 2, "--effects: the server's URL must begin with"),
        (&["--within", "0"], 2, "0 is not in 1..=60"),
        (&[], 4, "cannot be reached"),
    ] {
        // Nobody listens on port 1.
        let secret = if args.contains(&"--secret") { &[][..] } else { &["--secret", SECRET] };
        let url = &["check", "http://127.0.0.1:1/hook"][..];
        let (ended, _, stderr) = ended(&mut everhook(&[url, args, secret].concat()));
        assert_eq!(ended, code, "{args:?}: {stderr}");
        assert!(stderr.contains(expected) && !stderr.contains(SECRET), "{args:?}: {stderr}");
    }
}

#[test]
fn the_help_names_the_kinds_that_cannot_be_tried() {
    let args = ["check", "http://127.0.0.1:1/", "--secret", SECRET, "--kind", "none"];
    let (_, _, stderr) = ended(&mut everhook(&args));
    let (_, tried) = stderr.trim().rsplit_once("tried are ").expect("a list");
    let tried: Vec<&str> = tried.split(", ").collect();
    let (_, help, _) = ended(&mut everhook(&["check", "--help"]));
    let (_, told) = help.split_once("Kinds whose webhooks only").expect("a list");
    let (told, _) = told.split_once("The exit code").expect("a list");
    let words: Vec<&str> = told.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    for kind in SourceKind::all().map(SourceKind::as_str) {
        assert_ne!(words.contains(&kind), tried.contains(&kind), "{kind}: {tried:?}");
        assert!(DOCS.contains(&format!("`{kind}`")), "docs/checking.md lacks {kind}");
    }
}
