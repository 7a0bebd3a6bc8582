//! Everything that was written about each setting, lowest layer first.
//!
//! The built-in default file names every setting there is; what other layers name beyond that is a
//! problem, told with the name that was probably meant.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Origin, Problem, nearest};
use super::raw::Raw;

/// The built-in default file: the defaults and the manual.
pub(crate) const DEFAULT_FILE: &str = include_str!("default.toml");
/// What every variable of ours begins with.
pub(crate) const VARIABLE_PREFIX: &str = "EVERHOOK_";

/// Kubernetes sets variables that begin so for a service named `everhook`.
const KUBERNETES: [&str; 2] = ["EVERHOOK_SERVICE_", "EVERHOOK_PORT"];

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The value.
    pub(crate) raw: Raw,
    /// Where.
    pub(crate) origin: Origin,
}

/// What was written about each setting, lowest layer first.
#[derive(Debug)]
pub(crate) struct Layers {
    settings: BTreeMap<String, Vec<Written>>,
    problems: Vec<Problem>,
}

/// The variable that sets a key: `delivery.timeout` is `EVERHOOK_DELIVERY_TIMEOUT`.
pub(crate) fn variable_of(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.replace('.', "_").to_ascii_uppercase())
}

impl Layers {
    /// The lowest layer: the built-in default file.
    pub(crate) fn with_defaults() -> Self {
        let mut layers = Self { settings: BTreeMap::new(), problems: Vec::new() };
        let entries = layers.parse(DEFAULT_FILE, &|line| Origin::Default { line });
        layers.settings = entries.into_iter().map(|(key, written)| (key, vec![written])).collect();
        layers
    }

    /// Adds a configuration file.
    pub(crate) fn add_file(&mut self, path: &Path, text: &str) {
        let origin = |line| Origin::File { path: path.to_owned(), line };
        for (key, written) in self.parse(text, &origin) {
            match self.settings.get_mut(&key) {
                Some(values) => values.push(written),
                None => self.unknown_key(&key, &written.origin),
            }
        }
    }

    /// Adds the variables that begin with [`VARIABLE_PREFIX`], without those in `others`, which
    /// have a meaning of their own.
    pub(crate) fn add_variables(&mut self, variables: &[(OsString, OsString)], others: &[&str]) {
        let names: BTreeMap<String, String> =
            self.settings.keys().map(|key| (variable_of(key), key.clone())).collect();
        for (name, value) in variables {
            let name = name.to_string_lossy();
            if others.contains(&name.as_ref()) {
                continue;
            }
            match names.get(name.as_ref()) {
                Some(key) => self.add_variable(&name, key, value),
                None => {
                    let known = names.keys().map(String::as_str).chain(others.iter().copied());
                    self.problems.push(unknown_variable(&name, nearest(&name, known)));
                }
            }
        }
    }

    fn add_variable(&mut self, name: &str, key: &str, value: &OsStr) {
        match value.to_str() {
            Some(text) => {
                self.add(key, Raw::Text(text.to_owned()), Origin::Variable(name.to_owned()));
            }
            None => self.problems.push(Problem::new(
                name,
                "its value is not UTF-8 text",
                "set it to plain text",
            )),
        }
    }

    /// Adds an option of the command line.
    pub(crate) fn add_flag(&mut self, flag: &'static str, key: &str, value: &str) {
        self.add(key, Raw::Text(value.to_owned()), Origin::Flag(flag));
    }

    fn add(&mut self, key: &str, raw: Raw, origin: Origin) {
        self.settings.entry(key.to_owned()).or_default().push(Written { raw, origin });
    }

    /// Everything that was written about a key, lowest layer first.
    pub(crate) fn written(&self, key: &str) -> &[Written] {
        self.settings.get(key).map_or(&[], Vec::as_slice)
    }

    /// Every key that there is.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.settings.keys().map(String::as_str)
    }

    /// Takes the problems found so far.
    pub(crate) fn take_problems(&mut self) -> Vec<Problem> {
        std::mem::take(&mut self.problems)
    }

    /// All `section.key` entries of a TOML text; broken syntax becomes problems.
    fn parse(&mut self, text: &str, origin: &dyn Fn(usize) -> Origin) -> Vec<(String, Written)> {
        let at = |span: &Range<usize>| origin(line_of(text, span.start));
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let place = at(&error.span().unwrap_or(0..0));
            let what = format!("this is not TOML: {}", error.message());
            self.problems.push(Problem::new(place, what, "correct the line; see https://toml.io"));
        }
        if !errors.is_empty() {
            return Vec::new();
        }
        let mut entries = Vec::new();
        for (section, value) in document.get_ref() {
            let name = section.get_ref().as_ref();
            match value.get_ref() {
                DeValue::Table(keys) if self.knows_section(name) => {
                    let written = |key: &Spanned<_>, value: &Spanned<DeValue<'_>>| Written {
                        raw: raw_of(value.get_ref()),
                        origin: at(&key.span()),
                    };
                    entries.extend(keys.iter().map(|(key, value)| {
                        (format!("{name}.{}", key.get_ref()), written(key, value))
                    }));
                }
                DeValue::Table(_) => self.unknown_section(name, &at(&section.span())),
                _ => self.unknown_key(name, &at(&section.span())),
            }
        }
        entries
    }

    /// Whether there is such a section; while the default file is read, there is every one.
    fn knows_section(&self, name: &str) -> bool {
        self.settings.is_empty() || self.sections().any(|section| section == name)
    }

    fn sections(&self) -> impl Iterator<Item = &str> {
        self.keys().filter_map(|key| Some(key.split_once('.')?.0))
    }

    fn unknown_section(&mut self, name: &str, origin: &Origin) {
        let todo = match nearest(name, self.sections()) {
            Some(meant) => format!("did you mean [{meant}]?"),
            None => "remove it".to_owned(),
        };
        self.problems.push(Problem::new(origin, format!("there is no section [{name}]"), todo));
    }

    fn unknown_key(&mut self, key: &str, origin: &Origin) {
        let last_part = |known: &&str| known.rsplit('.').next() == key.rsplit('.').next();
        let meant = nearest(key, self.keys()).or_else(|| self.keys().find(last_part));
        let todo = match (self.knows_section(key) && !self.settings.is_empty(), meant) {
            (true, _) => format!("{key} is a section: write [{key}] and its settings below it"),
            (false, Some(meant)) => format!("did you mean {meant}?"),
            (false, None) => "remove it".to_owned(),
        };
        self.problems.push(Problem::new(origin, format!("there is no setting {key}"), todo));
    }
}

fn unknown_variable(name: &str, meant: Option<&str>) -> Problem {
    let todo = match meant {
        _ if KUBERNETES.iter().any(|start| name.starts_with(start)) => {
            "Kubernetes sets it for a service named everhook: give the pod enableServiceLinks: \
             false, or the service another name"
                .to_owned()
        }
        Some(meant) => format!("did you mean {meant}? Otherwise unset it"),
        None => format!("unset it: variables that begin with {VARIABLE_PREFIX} are settings"),
    };
    Problem::new(name, "there is no such variable", todo)
}

/// The line, counted from 1, of a byte position.
fn line_of(text: &str, position: usize) -> usize {
    let before = text.as_bytes().iter().take(position);
    1 + before.filter(|byte| **byte == b'\n').count()
}

fn raw_of(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.clone().into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Raw::Other("integer of more than 64 bits"), Raw::Integer),
        DeValue::Boolean(on) => Raw::Switch(*on),
        DeValue::Array(items) => {
            Raw::List(items.iter().map(|item| raw_of(item.get_ref())).collect())
        }
        other => Raw::Other(other.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(file: &str, variables: &[(&str, &str)]) -> Vec<String> {
        let mut layers = Layers::with_defaults();
        layers.add_file(Path::new("a.toml"), file);
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        layers.add_variables(&variables, &["EVERHOOK_TOKEN"]);
        let problems = layers.take_problems();
        problems.iter().map(|p| format!("{}: {}; {}", p.place, p.what, p.todo)).collect()
    }

    #[test]
    fn unknown_names_are_told_with_what_was_meant() {
        let links = "Kubernetes sets it for a service named everhook: give the pod \
                     enableServiceLinks: false, or the service another name";
        let unset = "unset it: variables that begin with EVERHOOK_ are settings";
        for (file, variables, expected) in [
            ("", vec![("EVERHOOK_TOKEN", "x"), ("EVERHOOK_DELIVERY_TIMEOUT", "10s")], vec![]),
            (
                "[delivery]\ntimeout = \"5s\"\ntimout = \"5s\"",
                vec![],
                vec![
                    "a.toml:3: there is no setting delivery.timout; did you mean delivery.timeout?",
                ],
            ),
            (
                "[delivry]\ntimeout = \"5s\"",
                vec![],
                vec!["a.toml:1: there is no section [delivry]; did you mean [delivery]?"],
            ),
            (
                "\nthreads = 3",
                vec![],
                vec!["a.toml:2: there is no setting threads; did you mean server.threads?"],
            ),
            (
                "server = 1",
                vec![],
                vec![
                    "a.toml:1: there is no setting server; server is a section: write [server] \
                     and its settings below it",
                ],
            ),
            (
                "[postgresql]\nurl = \"\"\n[log]\ncolour.red = 1",
                vec![],
                vec![
                    "a.toml:4: there is no setting log.colour; remove it",
                    "a.toml:1: there is no section [postgresql]; remove it",
                ],
            ),
            (
                "",
                vec![("EVERHOOK_DELIVERY_TIMOUT", "5s"), ("EVERHOOK_TOKN", "x"), ("EVERHOOK_", "")],
                vec![
                    "EVERHOOK_DELIVERY_TIMOUT: there is no such variable; did you mean \
                     EVERHOOK_DELIVERY_TIMEOUT? Otherwise unset it",
                    "EVERHOOK_TOKN: there is no such variable; did you mean EVERHOOK_TOKEN? \
                     Otherwise unset it",
                    &format!("EVERHOOK_: there is no such variable; {unset}"),
                ],
            ),
            (
                "",
                vec![("EVERHOOK_SERVICE_HOST", "10.0.0.1"), ("EVERHOOK_PORT", "tcp://10.0.0.1:80")],
                vec![
                    &format!("EVERHOOK_SERVICE_HOST: there is no such variable; {links}"),
                    &format!("EVERHOOK_PORT: there is no such variable; {links}"),
                ],
            ),
        ] {
            let mut found = problems_of(file, &variables);
            let mut expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{file}");
        }
    }

    #[test]
    fn broken_toml_is_told_with_its_line() {
        let found = problems_of("[log]\nlevel = \"info\nformat = json\n", &[]);
        assert!(found.iter().any(|problem| problem.starts_with("a.toml:2: this is not TOML: ")));
        assert!(found.iter().any(|problem| problem.starts_with("a.toml:3: this is not TOML: ")));
        let twice = problems_of("[log]\nlevel = \"info\"\nlevel = \"warn\"\n", &[]);
        assert_eq!(twice.len(), 1, "{twice:?}");
        assert!(twice[0].starts_with("a.toml:3: "), "{twice:?}");
    }

    #[test]
    fn the_highest_layer_stands_last() {
        let mut layers = Layers::with_defaults();
        layers.add_file(Path::new("a.toml"), "[server]\n\nlisten = \"1\"");
        let variables = [("EVERHOOK_SERVER_LISTEN".into(), "2".into())];
        layers.add_variables(&variables, &[]);
        layers.add_flag("--listen", "server.listen", "3");
        let written = layers.written("server.listen");
        let origins: Vec<_> = written[1..].iter().map(|w| w.origin.to_string()).collect();
        assert_eq!(origins, ["a.toml:3", "EVERHOOK_SERVER_LISTEN", "--listen"]);
        assert_eq!(written[0].origin.layer(), "default");
        assert_eq!(layers.take_problems(), []);
    }
}
