//! What a build of this crate pulls in.

use std::process::Command;

/// The names of the crates in a build with these features.
fn crates(features: &str) -> Vec<String> {
    let cargo = std::env::var("CARGO").unwrap();
    let tree = Command::new(cargo)
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{lib}"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .args(["--no-default-features", "--features", features])
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let listed = String::from_utf8(tree.stdout).unwrap();
    listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Who only verifies gets no runtime and no database, and nobody gets another's database.
pub(crate) fn a_small_build_stays_small() {
    let heavy = ["tokio", "rusqlite", "tokio_postgres", "redis", "axum_core", "tower_service"];
    for (features, expected) in [
        ("", &[][..]),
        ("memory", &["tokio"]),
        ("sqlite", &["tokio", "rusqlite"]),
        ("postgres", &["tokio", "tokio_postgres"]),
        ("redis", &["tokio", "redis"]),
        ("tower", &["tokio", "tower_service"]),
        ("axum", &["tokio", "axum_core", "tower_service"]),
    ] {
        let crates = crates(features);
        assert!(crates.iter().any(|name| name == "everhook_domain"), "{crates:?}");
        let mut found = heavy.to_vec();
        found.retain(|heavy| crates.iter().any(|name| name == heavy));
        assert_eq!(found, expected, "{features}");
    }
}
