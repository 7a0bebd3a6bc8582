//! `everhook config`: what would be in effect, and everything that is wrong, at once.

use serde_json::Value;

use crate::help::check_golden;
use crate::process::{TOKEN, TempDir, ended, everhook};

fn with_file(text: &str) -> (TempDir, String) {
    let dir = TempDir::new();
    std::fs::create_dir(&dir.0).expect("free");
    let path = dir.0.join("everhook.toml");
    std::fs::write(&path, text).expect("writable");
    let path = path.to_str().expect("text").to_owned();
    (dir, path)
}

/// In `docs/configuration.md`: below it is the default file.
const GENERATED: &str = "<!-- From here on made from the default file, by the tests. -->";

#[test]
fn the_page_of_the_book_holds_the_default_file() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let text = std::fs::read_to_string(page).expect("readable");
    let (intro, _) = text.split_once(GENERATED).expect("the line after which it is made");
    let file = include_str!("../../src/config/default.toml");
    let made = format!("{intro}{GENERATED}\n\n```toml\n{}\n```\n", file.trim_end());
    check_golden("../../../../docs/configuration.md", &made);
}

#[test]
fn the_default_file_is_printed_as_it_is() {
    let (code, text, _) = ended(&mut everhook(&["config", "default"]));
    assert_eq!((code, text.as_str()), (0, include_str!("../../src/config/default.toml")));
}

#[test]
fn what_is_in_effect_and_from_where() {
    let (_dir, path) = with_file("[delivery]\ntimeout = \"5s\"\n");
    let mut command = everhook(&["config", "check", "--config", &path]);
    command.env("EVERHOOK_LOG_FORMAT", "json").env("EVERHOOK_ADMIN_TOKEN", TOKEN);
    let (code, text, stderr) = ended(&mut command);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let line = |setting: &str, from: &str| {
        let found = text.lines().find(|line| line.starts_with(setting)).expect(setting);
        assert!(found.ends_with(&format!(" # {from}")), "{found}");
    };
    line("timeout = \"5s\"", &format!("{path}:2"));
    line("format = \"json\"", "EVERHOOK_LOG_FORMAT");
    line("lease = \"15s\"", "default");
    assert!(text.ends_with("\n# EVERHOOK_ADMIN_TOKEN: set, not shown\n"), "{text}");
    assert!(!text.contains(TOKEN), "secrets are not shown");
}

#[test]
fn the_same_for_scripts() {
    let mut command = everhook(&["config", "check", "--json"]);
    let (code, text, _) = ended(command.env("EVERHOOK_RETRY_SCHEDULE", "0s,1s"));
    let checked: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &checked["ok"]), (0, &Value::Bool(true)));
    let settings = checked["settings"].as_array().expect("a list");
    let schedule = settings.iter().find(|setting| setting["key"] == "retry.schedule");
    let schedule = schedule.expect("it is there");
    assert_eq!(schedule["value"], serde_json::json!(["0s", "1s"]));
    assert_eq!(schedule["layer"], "variable");
    assert_eq!(schedule["where"], "EVERHOOK_RETRY_SCHEDULE");
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_code_2() {
    let (_dir, path) = with_file("[delivery]\ntimeout = 5\n[evnts]\n");
    for (args, json) in [(&["config", "check"][..], false), (&["config", "check", "--json"], true)]
    {
        let mut command = everhook(args);
        command
            .env("EVERHOOK_CONFIG", &path)
            .env("EVERHOOK_LOG_LEVL", "info")
            .env("EVERHOOK_ADMIN_TOKEN", "too short");
        let (code, text, stderr) = ended(&mut command);
        assert_eq!(code, 2);
        assert!(stderr.starts_with("everhook: the configuration has 4 problems:\n"), "{stderr}");
        for expected in [
            &format!("{path}:2: delivery.timeout = 5 has no unit"),
            &format!("{path}:3: there is no section [evnts]"),
            "did you mean [events]?",
            "EVERHOOK_LOG_LEVL: there is no such variable",
            "did you mean EVERHOOK_LOG_LEVEL?",
            "EVERHOOK_ADMIN_TOKEN has 9 characters",
        ] {
            assert!(stderr.contains(expected), "{expected} is missing in {stderr}");
        }
        assert!(!stderr.contains("too short"), "secrets are not shown");
        if json {
            let checked: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(checked["ok"], false);
            assert_eq!(checked["problems"].as_array().map(Vec::len), Some(4));
        }
    }
}

#[test]
fn a_missing_file_is_told() {
    let mut command = everhook(&["config", "check", "--config", "/nowhere/at/all.toml"]);
    let (code, _, stderr) = ended(&mut command);
    assert_eq!(code, 2);
    assert!(stderr.contains("--config: /nowhere/at/all.toml cannot be read"), "{stderr}");
}
