//! The rules of the house that no other tool checks: sizes, words, module docs, names of folders.
//!
//! Nothing is grandfathered. Function length, parameters and `unwrap` are clippy's part.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The most lines of a Rust file.
const FILE_LINES_MAX: usize = 500;
/// The most characters of a line of code.
const LINE_CHARS_MAX: usize = 100;
/// The endings of the files whose lines have that limit.
const CODE: [&str; 8] = ["rs", "sql", "py", "js", "mjs", "ts", "sh", "css"];
/// Words that mean unfinished work. Written in halves, so that this file holds none of them.
const UNFINISHED: [&str; 3] = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("X", "XX")];
/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")];
/// What opens an outgoing socket. Written in halves, for the same reason.
const OUTGOING: [&str; 4] = [
    concat!("TcpStream::", "connect"),
    concat!("Tcp", "Socket"),
    concat!("Udp", "Socket"),
    concat!("UnixStream::", "connect"),
];
/// The only files of the product that may: whatever the server's process connects to is judged by
/// the address guard right before.
const OUTGOING_OWNERS: [&str; 3] = [
    // Behind the guard.
    "crates/everhook-engine/src/http/connect.rs",
    // The command line's own client, which no server runs.
    "crates/everhook/src/client/connection.rs",
    // Listens; connects only in its tests.
    "crates/everhook-lab/src/server.rs",
];

/// Checks every text file that git knows or would add.
///
/// # Errors
/// git is not there, or a file cannot be read.
pub fn files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let own_path = format!("{}/", root.display());
    let mut violations = Vec::new();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let path = root.join(name);
        // A file that was removed is listed until that is committed; a link points elsewhere.
        if !path.is_file() || path.is_symlink() {
            continue;
        }
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {name}"))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        violations.extend(file(name, &text));
        if text.contains(&own_path) {
            violations.push(format!("{name}: names this checkout's own folder; make it relative"));
        }
    }
    Ok(violations)
}

/// Checks one text file, given its path in the tree.
pub fn file(name: &str, text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    let mut found = |line: usize, what: String| violations.push(format!("{name}:{line}: {what}"));
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let chars = line.chars().count();
        if CODE.contains(&ending) && chars > LINE_CHARS_MAX {
            found(number, format!("{chars} characters, {LINE_CHARS_MAX} are allowed; break it"));
        }
        // Lock files hold hashes and names of other people's making.
        if !generated(name) {
            for word in UNFINISHED.iter().filter(|word| has_word(line, word)) {
                found(number, format!("says {word}; finish it, or say plainly what is so and why"));
            }
            for path in MACHINE_PATHS.iter().filter(|path| line.contains(**path)) {
                found(number, format!("holds a path below {path}, which exists on one machine"));
            }
        }
    }
    if ending == "rs" && is_product(name) && !OUTGOING_OWNERS.contains(&name) {
        for (index, line) in text.lines().enumerate() {
            for socket in OUTGOING.iter().filter(|socket| line.contains(**socket)) {
                found(index + 1, format!("{socket} passes by the address guard; go through it"));
            }
        }
    }
    if ending == "rs" {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            found(lines, format!("{lines} lines, {FILE_LINES_MAX} are allowed; split by concept"));
        }
        // A file that holds nothing but the tests of its neighbour says so by its name.
        if !name.ends_with("/tests.rs") && !text.trim_start().starts_with("//!") {
            found(1, "has no module docs; begin with `//!` and its purpose".to_owned());
        }
    }
    violations
}

/// Whether the file is part of what the product is built from, and not of its tests alone.
fn is_product(name: &str) -> bool {
    name.starts_with("crates/") && name.contains("/src/")
}

fn generated(name: &str) -> bool {
    name.ends_with(".lock") || name.ends_with("package-lock.json")
}

/// Whether a line holds this word, not merely these letters.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

/// Checks that each crate is named like its folder and takes the lints of the workspace.
///
/// # Errors
/// A manifest cannot be read.
pub fn manifests(root: &Path) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let manifest = folder.join("Cargo.toml");
        if manifest.is_file() {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            violations.extend(self::manifest(&name, &std::fs::read_to_string(manifest)?));
        }
    }
    Ok(violations)
}

/// Checks one manifest, given the name of its folder.
pub fn manifest(folder: &str, text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    if !text.lines().any(|line| line.trim() == format!("name = \"{folder}\"")) {
        violations.push(format!("crates/{folder}: the crate is not named like its folder"));
    }
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    if lines.next() != Some("workspace = true") {
        violations.push(format!(
            "crates/{folder}: without `[lints] workspace = true` no rule of the house holds there"
        ));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let violations = crate::check::tree().unwrap();
        assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    }

    fn check(name: &str, text: &str, part: &str) {
        let violations = file(name, text);
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].contains(part), "{violations:?}");
    }

    #[test]
    fn planted_violations_are_found() {
        check("a.rs", "fn main() {}\n", "a.rs:1: has no module docs");
        check("a.rs", &("//! A\n".to_owned() + &"\n".repeat(500)), "501 lines");
        check("a.rs", &format!("//! A\n// {}\n", "é".repeat(98)), "a.rs:2: 101 characters");
        check("a.md", &format!("{}: later", UNFINISHED[1]), "finish it");
        for socket in OUTGOING {
            let text = format!("//! A\nlet x = tokio::net::{socket}(a);\n");
            check("crates/everhook-web/src/a.rs", &text, "passes by the address guard");
            assert_eq!(file("crates/everhook-web/tests/a.rs", &text), Vec::<String>::new());
            assert_eq!(file(OUTGOING_OWNERS[0], &text), Vec::<String>::new());
        }
        check("a.toml", &format!("x = \"{}x\"", MACHINE_PATHS[0]), "exists on one machine");
    }

    #[test]
    fn what_only_looks_like_a_violation_passes() {
        assert_eq!(file("a.rs", &format!("//! A\n// {}\n", "é".repeat(97))), Vec::<String>::new());
        assert_eq!(file("a.md", &"long ".repeat(90)), Vec::<String>::new());
        assert_eq!(file("a.md", &format!("{}S and a{}", UNFINISHED[1], UNFINISHED[2])).len(), 0);
        assert_eq!(file("Cargo.lock", &format!("\"{}\"", UNFINISHED[2])).len(), 0);
    }

    #[test]
    fn a_planted_manifest_is_found() {
        let good = "[package]\nname = \"everhook-x\"\n[lints]\nworkspace = true\n";
        assert_eq!(manifest("everhook-x", good), Vec::<String>::new());
        assert_eq!(manifest("x", good).len(), 1);
        assert_eq!(manifest("everhook-x", "name = \"everhook-x\"\n").len(), 1);
    }
}
