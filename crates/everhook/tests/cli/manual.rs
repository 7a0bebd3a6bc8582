//! `everhook completions` and `everhook man`: every command is in both.

use crate::process::{TempDir, ended, everhook};

const COMMANDS: [&str; 7] = ["serve", "proxy", "demo", "send", "replay", "listen", "config"];

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, stderr) = ended(&mut everhook(&["completions", shell]));
        assert_eq!((code, stderr.as_str()), (0, ""), "{shell}");
        for command in COMMANDS {
            assert!(script.contains(command), "{shell} does not know {command}");
        }
        assert!(script.contains("dry-run"), "{shell} does not know the options");
    }
    let (code, _, stderr) = ended(&mut everhook(&["completions", "cmd"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("possible values: bash"), "{stderr}");
}

#[test]
fn every_command_has_a_page() {
    let dir = TempDir::new();
    let (code, said, stderr) = ended(&mut everhook(&["man", "--to", dir.arg()]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let mut pages: Vec<String> = std::fs::read_dir(&dir.0)
        .expect("made")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
        .collect();
    pages.sort();
    assert_eq!(said, format!("{} pages written to {}\n", pages.len(), dir.arg()));
    for command in COMMANDS {
        assert!(pages.contains(&format!("everhook-{command}.1")), "{command} is not in {pages:?}");
    }
    assert!(pages.contains(&"everhook.1".to_owned()));
    let page = std::fs::read_to_string(dir.0.join("everhook-config-check.1")).expect("written");
    assert!(page.starts_with(".ie"), "{page}");
    for part in [".TH everhook-config-check 1", ".SH NAME", "\\-\\-config", "Examples:"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }

    let file = dir.0.join("everhook.1").join("below-a-file");
    let to = file.to_str().expect("text");
    let (code, _, stderr) = ended(&mut everhook(&["man", "--to", to]));
    assert_eq!(code, 1);
    assert!(stderr.contains(&format!("{to} cannot be written: ")), "{stderr}");
}
