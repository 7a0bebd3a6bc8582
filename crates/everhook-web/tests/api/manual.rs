//! What the manual for receiving says of the kinds of sources.

use everhook_domain::inbound::SourceKind;
use everhook_domain::source::SourceOptions;

#[test]
fn every_kind_has_its_line_with_its_window_and_its_options() {
    let manual = include_str!("../../../../docs/receiving.md");
    let (_, kinds) = manual.split_once("\n## Kinds\n").expect("a section");
    let (kinds, _) = kinds.split_once("\n## ").expect("another section");
    let mut lines = kinds.lines().filter(|line| line.starts_with("| `"));
    for kind in SourceKind::all() {
        let begin = format!("| `{kind}` |");
        let line = lines.clone().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("{kind} has no line"));
        let hours = kind.window(&SourceOptions::default()).as_secs() / 3_600;
        let window = line.rsplit(" | ").next().expect("a cell");
        assert!(window.starts_with(&format!("{hours} h")), "{kind}: {hours} h");
        for option in kind.own_options() {
            let named = [format!("`{option}`"), format!("`{option}: ")];
            assert!(named.iter().any(|name| line.contains(name)), "{kind}: {option}");
        }
    }
    assert_eq!(lines.by_ref().count(), SourceKind::all().count(), "no other kinds");
}
