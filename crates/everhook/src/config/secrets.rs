//! The section `[secrets]`.

use std::path::PathBuf;
use std::time::Duration;

use super::problem::Problem;
use super::reader::Reader;
use super::rule;
use super::settings::path;

const DAYS_90: Duration = Duration::from_secs(90 * 86_400);
const OLD_KEYS: &str = "secrets.master_key_files_old";

/// `[secrets]`
#[derive(Clone, Debug)]
pub(crate) struct Secrets {
    /// How long an old secret goes on signing.
    pub(crate) overlap: Duration,
    /// The file with the key that seals secrets in the store.
    pub(crate) master_key_file: Option<PathBuf>,
    /// Files with the keys before it.
    pub(crate) master_key_files_old: Vec<PathBuf>,
}

/// Reads the section; `None` when a value is wrong.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Secrets> {
    let overlap = reader.read("secrets.overlap", &rule::duration(Duration::ZERO..=DAYS_90));
    let master_key_file = reader.read("secrets.master_key_file", &rule::optional(path()));
    let several = "paths; relative ones count from the working directory";
    let master_key_files_old = reader.read(OLD_KEYS, &rule::list(several, path()));
    let secrets = Secrets {
        overlap: overlap?,
        master_key_file: master_key_file?,
        master_key_files_old: master_key_files_old?,
    };
    check(reader, &secrets);
    Some(secrets)
}

/// Settings that are legal one by one and not together.
fn check(reader: &mut Reader<'_>, secrets: &Secrets) {
    if secrets.master_key_file.is_none() && !secrets.master_key_files_old.is_empty() {
        let place = reader.origin(OLD_KEYS).map(ToString::to_string).unwrap_or_default();
        let todo = "name the key to seal under as well: what was sealed is not stored open again";
        let what = format!("{OLD_KEYS} has no secrets.master_key_file beside it");
        reader.problems.push(Problem::new(place, what, todo));
    }
}
