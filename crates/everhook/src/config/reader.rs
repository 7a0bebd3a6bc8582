//! Takes settings out of the layers by their rules, and keeps account of it.

use super::layers::{Layers, Written};
use super::problem::{Origin, Problem};
use super::rule::Rule;

/// A setting in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effective {
    /// Its name: `delivery.timeout`.
    pub(crate) key: &'static str,
    /// Its value as TOML.
    pub(crate) value: String,
    /// What it may be.
    pub(crate) allowed: String,
    /// Which layer it comes from.
    pub(crate) origin: Origin,
}

/// Takes settings out of the layers.
pub(crate) struct Reader<'a> {
    layers: &'a Layers,
    /// What is wrong with the values.
    pub(crate) problems: Vec<Problem>,
    /// What was read, in that order.
    pub(crate) effective: Vec<Effective>,
}

impl<'a> Reader<'a> {
    /// A reader that has read nothing.
    pub(crate) fn new(layers: &'a Layers) -> Self {
        Self { layers, problems: Vec::new(), effective: Vec::new() }
    }

    /// The value of the highest layer that has one. A wrong value is a problem in every layer, also
    /// in one that another covers: it would take effect the day that the other goes.
    pub(crate) fn read<T: 'static>(&mut self, key: &'static str, rule: &Rule<T>) -> Option<T> {
        let mut last = None;
        for Written { raw, origin } in self.layers.written(key) {
            match rule.read(raw) {
                Ok(value) => last = Some((value, origin)),
                Err(wrong) => {
                    let what = format!("{key} = {raw} {wrong}");
                    let todo = format!("allowed: {}", rule.allowed);
                    self.problems.push(Problem::new(origin, what, todo));
                    last = None;
                }
            }
        }
        let (value, origin) = last?;
        self.effective.push(Effective {
            key,
            value: rule.show(&value),
            allowed: rule.allowed.clone(),
            origin: origin.clone(),
        });
        Some(value)
    }

    /// Where the value in effect was written: the origin of the highest layer.
    pub(crate) fn origin(&self, key: &str) -> Option<&'a Origin> {
        self.layers.written(key).last().map(|written| &written.origin)
    }
}
