//! x
use crate::test::{Outcome, Run};
use anyhow::Result;
pub fn part(_: &mut Run) -> Result<Outcome> {
    Ok(Outcome::default())
}
