//! What the manual for receiving says of the kinds of sources.

use everhook_domain::inbound::SourceKind;
use everhook_domain::source::{COMMON_OPTIONS, SourceOptions};

const MANUAL: &str = include_str!("../../../../docs/receiving.md");

#[test]
fn every_kind_has_its_line_with_its_window() {
    let (_, kinds) = MANUAL.split_once("\n## Kinds\n").expect("a section");
    let (kinds, _) = kinds.split_once("\n## ").expect("another section");
    let mut lines = kinds.lines().filter(|line| line.starts_with("| `"));
    for kind in SourceKind::all() {
        let begin = format!("| `{kind}` |");
        let line = lines.clone().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("{kind} has no line"));
        let hours = kind.window(&SourceOptions::default()).as_secs() / 3_600;
        let window = line.rsplit(" | ").next().expect("a cell");
        assert!(window.starts_with(&format!("{hours} h")), "{kind}: {hours} h");
    }
    assert_eq!(lines.by_ref().count(), SourceKind::all().count(), "no other kinds");
}

/// What the lines of the tables of this section begin with: the first `cells` of them.
fn begins(section: &str, cells: usize) -> Vec<String> {
    let (_, rest) = MANUAL.split_once(&format!("\n## {section}\n")).expect("a section");
    let (section, _) = rest.split_once("\n## ").expect("another section");
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    let begin = |line: &str| line.split(" | ").take(cells).collect::<Vec<_>>().join(" | ");
    lines.map(begin).collect()
}

#[test]
fn every_option_has_its_line() {
    let common: Vec<_> = COMMON_OPTIONS.iter().map(|name| format!("| `{name}`")).collect();
    assert_eq!(begins("A source", 1), common);
    let of_kind = |kind: SourceKind| {
        kind.own_options().iter().map(move |name| format!("| `{kind}` | `{name}`"))
    };
    let own: Vec<_> = SourceKind::all().flat_map(of_kind).collect();
    assert_eq!(begins("Options of single kinds", 2), own, "in the order of the kinds");
}
