//! The kinds of sources.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::judgement::Answer;
use super::provider::{PROVIDERS, Provider};
use crate::source::{InvalidSource, SourceOptions, SourceSettings};

/// Who sends, and so what is signed and what identifies an event: a line of the table of providers.
#[derive(Clone, Copy)]
pub struct SourceKind(pub(super) &'static dyn Provider);

/// The text names no kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such kind of source; there are {}", words().join(", "))]
pub struct InvalidSourceKind;

fn words() -> Vec<&'static str> {
    PROVIDERS.iter().map(|provider| provider.facts().word).collect()
}

impl SourceKind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        PROVIDERS.iter().copied().map(Self)
    }

    /// The word used in JSON, SQL and logs.
    pub fn as_str(self) -> &'static str {
        self.0.facts().word
    }

    /// The methods that a source of this kind takes.
    pub fn methods(self) -> &'static [&'static str] {
        self.0.facts().methods
    }

    /// Whether the URL is part of what is signed.
    pub(crate) fn signs_url(self) -> bool {
        self.0.facts().needs_url
    }

    /// The names of the options that only this kind has.
    pub fn own_options(self) -> &'static [&'static str] {
        self.0.facts().options
    }

    /// How long a dedupe key is remembered if nothing else is set.
    pub fn window(self, options: &SourceOptions) -> Duration {
        self.0.window(options)
    }

    /// What is answered for what is accepted (`duplicate`: was seen before), where it is not the
    /// usual JSON.
    pub fn answer(self, duplicate: bool) -> Option<Answer> {
        self.0.answer(duplicate)
    }

    /// Notes what of the settings is not legal for the kind.
    pub(crate) fn check(self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        self.0.check(settings, faults);
    }
}

/// For settings whose kind is not known: the first one, which takes nothing without a secret.
impl Default for SourceKind {
    fn default() -> Self {
        Self(PROVIDERS[0])
    }
}

impl PartialEq for SourceKind {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}
impl Eq for SourceKind {}

impl FromStr for SourceKind {
    type Err = InvalidSourceKind;

    fn from_str(word: &str) -> Result<Self, InvalidSourceKind> {
        Self::all().find(|kind| kind.as_str() == word).ok_or(InvalidSourceKind)
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for SourceKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
