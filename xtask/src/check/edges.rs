//! Which crate may depend on which: the picture in `ARCHITECTURE.md`, compared with the manifests.
//!
//! A dependency may skip a level downward; it never goes up and never sideways. What a crate of
//! ours may use from outside is watched where it would pull work across a wall: SQL belongs to the
//! store, I/O stays out of the domain.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Each crate, and the crates of ours that it may depend on. A crate that is not here is refused,
/// so that a new one is drawn before it is built.
const EDGES: &[(&str, &[&str])] = &[
    (
        "everhook",
        &[
            "everhook-web",
            "everhook-engine",
            "everhook-store",
            "everhook-domain",
            "everhook-receiver",
            // Its demo plays an unreliable receiver.
            "everhook-lab",
        ],
    ),
    ("everhook-web", &["everhook-store", "everhook-domain", "everhook-idempotency"]),
    ("everhook-engine", &["everhook-store", "everhook-domain"]),
    ("everhook-store", &["everhook-domain"]),
    ("everhook-receiver", &["everhook-domain"]),
    ("everhook-idempotency", &["everhook-domain"]),
    ("everhook-lab", &["everhook-domain"]),
    ("everhook-domain", &[]),
    ("xtask", &[]),
];

/// Crates that may use the store and the domain in their tests, beside what they may use anyway.
const TESTS_ON_THE_STORE: &[&str] =
    &["everhook-web", "everhook-engine", "everhook-receiver", "everhook-idempotency"];

/// Scripted receivers: for the tests of any crate, and no part of the product but its demo.
const LAB: &str = "everhook-lab";

/// Outside crates that only these of ours may depend on.
const OWNERS: &[(&str, &[&str])] = &[
    ("rusqlite", &["everhook-store", "everhook-receiver", "everhook-idempotency"]),
    ("sqlx", &["everhook-store", "everhook-receiver", "everhook-idempotency"]),
    ("tokio-postgres", &["everhook-store", "everhook-receiver", "everhook-idempotency"]),
    ("redis", &["everhook-receiver", "everhook-idempotency"]),
];

/// Outside crates that the domain never depends on, since it decides and never does.
const NOT_IN_DOMAIN: &[&str] =
    &["tokio", "async-trait", "futures-util", "hyper", "axum", "rusqlite", "rand", "getrandom"];

/// A dependency as a manifest states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The crate whose manifest it is.
    pub from: String,
    /// The crate that it names.
    pub to: String,
    /// Whether it is for tests only.
    pub dev: bool,
    /// Whether it is a crate of this workspace.
    pub ours: bool,
}

/// What is wrong with the edges of this workspace.
///
/// # Errors
/// cargo cannot read the workspace.
pub fn violations() -> Result<Vec<String>> {
    let output = Command::new(crate::workspace::cargo())
        .args(["metadata", "--format-version=1", "--no-deps"])
        .current_dir(crate::workspace::root())
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let (crates, edges) = read(&metadata).context("cargo metadata has another form")?;
    Ok(judge(&crates, &edges))
}

/// The crates of the workspace and all their stated dependencies.
fn read(metadata: &Value) -> Option<(Vec<String>, Vec<Edge>)> {
    let mut crates = Vec::new();
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array()? {
        let from = package["name"].as_str()?;
        crates.push(from.to_owned());
        for dependency in package["dependencies"].as_array()? {
            edges.push(Edge {
                from: from.to_owned(),
                to: dependency["name"].as_str()?.to_owned(),
                dev: dependency["kind"] == "dev",
                ours: dependency["path"].is_string(),
            });
        }
    }
    Some((crates, edges))
}

/// Compares crates and edges with the tables above.
pub fn judge(crates: &[String], edges: &[Edge]) -> Vec<String> {
    let mut violations: Vec<String> = crates
        .iter()
        .filter(|name| allowed(name).is_none())
        .map(|name| format!("{name} is not in the picture; draw it in xtask's edges first"))
        .collect();
    violations.extend(edges.iter().filter_map(refuse));
    violations
}

fn refuse(edge: &Edge) -> Option<String> {
    let Edge { from, to, dev, ours } = edge;
    if *ours {
        let for_tests = *dev
            && (from == to
                || to == LAB
                || (TESTS_ON_THE_STORE.contains(&from.as_str())
                    && ["everhook-store", "everhook-domain"].contains(&to.as_str())));
        let drawn = allowed(from)?.contains(&to.as_str());
        let what = if *dev { "its tests depend" } else { "it depends" };
        return (!drawn && !for_tests)
            .then(|| format!("{from}: {what} on {to}, which goes up or sideways"));
    }
    let owners = OWNERS.iter().find(|(name, _)| name == to).map(|(_, owners)| owners);
    if !dev && owners.is_some_and(|owners| !owners.contains(&from.as_str())) {
        return Some(format!("{from}: depends on {to}, which is the stores' business"));
    }
    (!dev && from == "everhook-domain" && NOT_IN_DOMAIN.contains(&to.as_str()))
        .then(|| format!("{from}: depends on {to}; it decides and never does"))
}

fn allowed(name: &str) -> Option<&'static [&'static str]> {
    EDGES.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_are_as_drawn() {
        let violations = super::violations().unwrap();
        assert!(violations.is_empty(), "\n{}", violations.join("\n"));
    }

    /// `from -> to`, `from ~> to` for tests; a `to` that begins with `everhook` is ours.
    fn check(edge: &str, right: bool) {
        let dev = edge.contains("~>");
        let (from, to) = edge.split_once(if dev { " ~> " } else { " -> " }).unwrap();
        let ours = to.starts_with("everhook") || to == "xtask";
        let edge = Edge { from: from.into(), to: to.into(), dev, ours };
        let violations = judge(&[], &[edge]);
        assert_eq!(violations.is_empty(), right, "{violations:?}");
    }

    #[test]
    fn edges_downward_pass_and_planted_ones_are_found() {
        check("everhook -> everhook-engine", true);
        check("everhook -> everhook-lab", true);
        check("everhook-engine ~> everhook-lab", true);
        check("everhook-engine -> everhook-lab", false);
        check("everhook-lab -> everhook-domain", true);
        check("everhook-lab -> everhook-engine", false);
        check("everhook-web -> everhook-domain", true);
        check("everhook-web -> everhook-engine", false);
        check("everhook-engine -> everhook-web", false);
        check("everhook-web ~> everhook-engine", false);
        check("everhook-receiver ~> everhook-store", true);
        check("everhook-receiver -> everhook-store", false);
        check("everhook-store -> everhook", false);
        check("everhook-store ~> everhook-engine", false);
        check("everhook-store ~> everhook-store", true);
        check("everhook-domain ~> everhook-store", false);
        check("xtask -> everhook-domain", false);
        check("everhook-store -> rusqlite", true);
        check("everhook-idempotency -> redis", true);
        check("everhook-store -> redis", false);
        check("everhook-web -> rusqlite", false);
        check("everhook-web ~> rusqlite", true);
        check("everhook-domain -> tokio", false);
        check("everhook-domain -> serde", true);
    }

    #[test]
    fn a_crate_that_is_not_drawn_is_found() {
        assert_eq!(judge(&["everhook-common".to_owned()], &[]).len(), 1);
        assert_eq!(judge(&["everhook-domain".to_owned()], &[]).len(), 0);
    }

    #[test]
    fn metadata_is_read() {
        let metadata = serde_json::json!({"packages": [{"name": "a", "dependencies": [
            {"name": "b", "kind": null, "path": "x"}, {"name": "c", "kind": "dev"}]}]});
        let (crates, edges) = read(&metadata).unwrap();
        let edge = |to: &str, dev, ours| Edge { from: "a".into(), to: to.into(), dev, ours };
        assert_eq!(crates, ["a"]);
        assert_eq!(edges, [edge("b", false, true), edge("c", true, false)]);
    }
}
