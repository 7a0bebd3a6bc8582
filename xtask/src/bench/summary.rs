//! Percentiles.

use serde_json::{Value, json};

/// Median, 99th percentile and worst of some durations, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many there were.
    pub count: usize,
    /// The median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The worst.
    pub max_ms: f64,
}

impl Summary {
    /// Summarises durations in microseconds.
    pub fn of(mut durations_us: Vec<u64>) -> Self {
        durations_us.sort_unstable();
        let Some(max) = durations_us.last() else { return Self::default() };
        let at = |percent: usize| {
            let rank = (durations_us.len() * percent).div_ceil(100).max(1);
            milliseconds(durations_us[rank - 1])
        };
        Self {
            count: durations_us.len(),
            p50_ms: at(50),
            p99_ms: at(99),
            max_ms: milliseconds(*max),
        }
    }

    /// As it stands in the report.
    pub fn json(&self) -> Value {
        json!({"count": self.count, "p50": self.p50_ms, "p99": self.p99_ms, "max": self.max_ms})
    }
}

fn milliseconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64() * 1e3
}

/// The part of a total that falls to each.
#[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^52")]
pub fn per(total: u64, count: u64) -> f64 {
    total as f64 / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let summary = Summary::of((1..=200).map(|ms| ms * 1000).rev().collect());
        assert_eq!(summary, Summary { count: 200, p50_ms: 100.0, p99_ms: 198.0, max_ms: 200.0 });
        assert_eq!(Summary::of(vec![5000]).p99_ms, 5.0);
        assert_eq!(Summary::of(Vec::new()).count, 0);
    }
}
