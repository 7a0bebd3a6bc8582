//! The command line: `--name value` pairs and `--name` switches, each known or refused.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// What was typed after the command. Each value is taken by name; [`Args::finish`] refuses what
/// nobody took, so that a mistyped option is never ignored.
#[derive(Debug, Default)]
pub struct Args {
    values: BTreeMap<String, Option<String>>,
}

impl Args {
    /// Reads `--name value`, `--name=value` and `--name`.
    ///
    /// # Errors
    /// A word that is no option, or an option that is given twice.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut values = BTreeMap::new();
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--") else {
                bail!("`{word}` was not expected; options begin with `--`");
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, words.next_if(|next| !next.starts_with("--"))),
            };
            if values.insert(name.to_owned(), value).is_some() {
                bail!("`--{name}` is given twice");
            }
        }
        Ok(Self { values })
    }

    /// The value of `--name`, or `default` where it is absent.
    ///
    /// # Errors
    /// The option has no value, or one of another type.
    pub fn value<T>(&mut self, name: &str, default: T) -> Result<T>
    where
        T: FromStr,
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        match self.values.remove(name) {
            None => Ok(default),
            Some(None) => bail!("`--{name}` needs a value"),
            Some(Some(text)) => {
                text.parse().with_context(|| format!("`--{name} {text}` is not understood"))
            }
        }
    }

    /// The text of `--name`, if it is there.
    ///
    /// # Errors
    /// The option has no value.
    pub fn text(&mut self, name: &str) -> Result<Option<String>> {
        match self.values.remove(name) {
            None => Ok(None),
            Some(None) => bail!("`--{name}` needs a value"),
            Some(text) => Ok(text),
        }
    }

    /// Whether the switch `--name` is there.
    ///
    /// # Errors
    /// The switch has a value.
    pub fn switch(&mut self, name: &str) -> Result<bool> {
        match self.values.remove(name) {
            None => Ok(false),
            Some(None) => Ok(true),
            Some(Some(value)) => bail!("`--{name}` takes no value, and was given `{value}`"),
        }
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// Options that nobody took.
    pub fn finish(self) -> Result<()> {
        let left: Vec<String> = self.values.keys().map(|name| format!("`--{name}`")).collect();
        if left.is_empty() { Ok(()) } else { bail!("unknown: {}", left.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::Args;

    fn parse(line: &str) -> anyhow::Result<Args> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_and_switches_are_read() {
        let mut args = parse("--seeds 12 --list --only=a,b").unwrap();
        assert_eq!(args.value("seeds", 1_u64).unwrap(), 12);
        assert_eq!(args.value("other", 7_u64).unwrap(), 7);
        assert!(args.switch("list").unwrap());
        assert_eq!(args.text("only").unwrap().as_deref(), Some("a,b"));
        args.finish().unwrap();
    }

    #[test]
    fn nothing_is_ignored() {
        assert!(parse("word").is_err());
        assert!(parse("--a 1 --a 2").is_err());
        assert!(parse("--sedes 1").unwrap().finish().is_err());
        assert!(parse("--seeds many").unwrap().value("seeds", 1_u64).is_err());
        assert!(parse("--seeds").unwrap().value("seeds", 1_u64).is_err());
        assert!(parse("--list yes").unwrap().switch("list").is_err());
    }
}
