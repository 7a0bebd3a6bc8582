//! What deliveries may weigh in memory: all of them, and those of one lane.
//!
//! A lane may take more while, with it, it holds at most what was free. However many large ones
//! wait in one lane, something is therefore left for the others; a lane that is alone gets half.

/// So many bytes, and how many of them are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    max: usize,
    taken: usize,
}

impl Budget {
    /// So many bytes, none of them taken.
    pub const fn new(max: usize) -> Self {
        Self { max, taken: 0 }
    }

    /// With so many bytes taken besides.
    #[must_use]
    pub const fn with(self, bytes: usize) -> Self {
        Self { max: self.max, taken: self.taken.saturating_add(bytes) }
    }

    /// With so many bytes given back.
    #[must_use]
    pub const fn without(self, bytes: usize) -> Self {
        Self { max: self.max, taken: self.taken.saturating_sub(bytes) }
    }

    /// How many bytes there are in all.
    pub const fn max(self) -> usize {
        self.max
    }

    /// How many bytes are taken.
    pub const fn taken(self) -> usize {
        self.taken
    }

    /// Whether a lane that holds `held` of the bytes that are taken may take `bytes` more. Where
    /// nothing is taken one always goes, however large, so that none is kept for ever.
    pub const fn allows(self, held: usize, bytes: usize) -> bool {
        self.taken == 0 || held.saturating_add(bytes) <= self.max.saturating_sub(self.taken)
    }

    /// Whether waiting makes sense for a lane that holds `held` and wants `bytes` more: it could
    /// have them if nobody else held anything.
    pub const fn is_due(self, held: usize, bytes: usize) -> bool {
        Self::new(self.max).with(held).allows(held, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes whose deliveries weigh so much take whatever they may, in turns; gives what each holds
    /// in the end.
    fn fill(max: usize, lanes: &[usize]) -> Vec<usize> {
        let mut budget = Budget::new(max);
        let mut held = vec![0; lanes.len()];
        loop {
            let before = budget;
            for (held, bytes) in held.iter_mut().zip(lanes) {
                if budget.allows(*held, *bytes) {
                    *held += bytes;
                    budget = budget.with(*bytes);
                }
            }
            if budget == before {
                return held;
            }
        }
    }

    #[test]
    fn a_lane_leaves_as_much_as_it_takes() {
        for (lanes, expected) in [
            (&[10][..], &[50][..]),
            (&[1], &[50]),
            (&[60], &[60]),
            (&[101], &[101]),
            (&[10, 1], &[50, 25]),
            (&[30, 30, 30], &[30, 30, 30]),
            (&[101, 1], &[101, 0]),
        ] {
            assert_eq!(fill(100, lanes), expected, "{lanes:?}");
        }
    }

    #[test]
    fn who_holds_its_part_already_is_not_due() {
        let budget = Budget::new(100).with(90);
        for (held, bytes, expected) in
            [(0, 100, true), (0, 101, true), (10, 80, true), (10, 81, false), (40, 21, false)]
        {
            assert_eq!(budget.is_due(held, bytes), expected, "{held} and {bytes}");
        }
        assert_eq!(budget.without(95).taken(), 0);
    }
}
