//! Help texts are part of the contract: they are compared with files under `tests/golden`.
//!
//! After a change that is meant, write them anew with `EVERHOOK_GOLDEN=write cargo test -p
//! everhook`.

use std::path::Path;

use crate::process::{ended, everhook};

/// Compares a text with its golden file, or writes that.
pub(crate) fn check_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("EVERHOOK_GOLDEN").is_some_and(|mode| mode == "write") {
        std::fs::write(&path, text).expect("writable");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{name} has changed; see this module's documentation");
}

#[test]
fn help_of_every_command() {
    for (name, args) in [
        ("help.txt", &["--help"][..]),
        ("help-serve.txt", &["serve", "--help"]),
        ("help-proxy.txt", &["proxy", "--help"]),
        ("help-demo.txt", &["demo", "--help"]),
        ("help-send.txt", &["send", "--help"]),
        ("help-replay.txt", &["replay", "--help"]),
        ("help-listen.txt", &["listen", "--help"]),
        ("help-check.txt", &["check", "--help"]),
        ("help-config.txt", &["config", "--help"]),
        ("help-config-check.txt", &["config", "check", "--help"]),
        ("help-config-default.txt", &["config", "default", "--help"]),
        ("help-completions.txt", &["completions", "--help"]),
        ("help-man.txt", &["man", "--help"]),
    ] {
        let (code, text, stderr) = ended(&mut everhook(args));
        assert_eq!((code, stderr.as_str()), (0, ""), "{name}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{name} is too wide");
        check_golden(name, &text);
    }
}

#[test]
fn version() {
    let (code, text, _) = ended(&mut everhook(&["--version"]));
    assert_eq!((code, text), (0, format!("everhook {}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn what_is_typed_wrong_is_told_with_code_2() {
    for (args, expected) in [
        (&["serv"][..], "similar subcommand"),
        (&["serve", "--datadir", "x"], "'--data-dir'"),
        (&["send"], "<TYPE>"),
        (&["demo", "--listen", "localhost"], "invalid socket address"),
        (&["demo", "--json", "--keep-running"], "cannot be used with"),
    ] {
        let (code, _, stderr) = ended(&mut everhook(args));
        assert_eq!(code, 2, "{args:?}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}
