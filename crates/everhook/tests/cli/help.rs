//! Help texts are part of the contract: they are compared with files under `tests/golden`.
//!
//! After a change that is meant, write them anew with `EVERHOOK_GOLDEN=write cargo test -p
//! everhook`.

use std::path::Path;

use crate::process::{ended, everhook};

/// In `docs/cli.md`: below it is the help of every command.
const GENERATED: &str = "<!-- From here on made from the help texts, by the tests. -->";

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
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let text = std::fs::read_to_string(&page).expect("readable");
    let (intro, _) = text.split_once(GENERATED).expect("the line after which it is made");
    let mut made = format!("{intro}{GENERATED}\n");
    let mut left = vec![vec![]];
    while let Some(command) = left.pop() {
        let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
        let typed = [&["everhook"], args.as_slice()].concat().join(" ");
        let name = [&["help"], args.as_slice()].concat().join("-");
        args.push("--help");
        let (code, help, stderr) = ended(&mut everhook(&args));
        assert_eq!((code, stderr.as_str()), (0, ""), "{typed}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{typed} is too wide");
        check_golden(&format!("{name}.txt"), &help);
        made += &format!("\n## {typed}\n\n```text\n{}\n```\n", help.trim_end());
        let below = subcommands(&help).into_iter().rev();
        left.extend(below.map(|name| [command.as_slice(), &[name]].concat()));
    }
    check_golden("../../../../docs/cli.md", &made);
}

/// The commands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // What goes on in the next line stands further to the right.
    let listed = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    listed.filter(|name| !name.is_empty()).map(str::to_owned).collect()
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
