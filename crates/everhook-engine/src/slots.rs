//! How many attempts may be under way, and who may have the next place.
//!
//! A lane may hold at most as many slots as it leaves free. However many lanes are slow, some slots
//! are therefore always left for one that has none, and a lane that is alone gets all that it may
//! have. Failing lanes share a quarter by the same rule.

/// The part of all slots that failing lanes share: one in so many.
const FAILING_PART: usize = 4;

/// The slots of a node and how many of them are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    max: usize,
    taken: usize,
    taken_by_failing: usize,
}

impl Slots {
    /// So many slots, all free.
    pub(crate) const fn new(max: usize) -> Self {
        Self { max, taken: 0, taken_by_failing: 0 }
    }

    /// Adds what a lane holds.
    pub(crate) fn add(&mut self, held: usize, failing: bool) {
        self.taken += held;
        if failing {
            self.taken_by_failing += held;
        }
    }

    /// Takes away what a lane held.
    pub(crate) fn remove(&mut self, held: usize, failing: bool) {
        self.taken = self.taken.saturating_sub(held);
        if failing {
            self.taken_by_failing = self.taken_by_failing.saturating_sub(held);
        }
    }

    /// Whether a lane that holds `held`, which are not counted in `self`, may take one more.
    pub(crate) fn allow(&self, held: usize, failing: bool) -> bool {
        let free = self.max.saturating_sub(self.taken + held);
        let free = if failing {
            let part = (self.max / FAILING_PART).max(1);
            free.min(part.saturating_sub(self.taken_by_failing + held))
        } else {
            free
        };
        held < free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes that take whatever they may, in turns; gives what each holds in the end.
    fn fill(max: usize, lanes: &[(usize, bool)]) -> Vec<usize> {
        let mut slots = Slots::new(max);
        let mut held = vec![0; lanes.len()];
        loop {
            let before = slots.taken;
            for (lane, (limit, failing)) in lanes.iter().enumerate() {
                slots.remove(held[lane], *failing);
                if held[lane] < *limit && slots.allow(held[lane], *failing) {
                    held[lane] += 1;
                }
                slots.add(held[lane], *failing);
            }
            if slots.taken == before {
                return held;
            }
        }
    }

    #[test]
    fn some_are_always_left_for_a_newcomer() {
        for (lanes, each, free) in
            [(1, 64, 448), (7, 64, 64), (8, 57, 56), (63, 8, 8), (300, 1, 212)]
        {
            let held = fill(512, &vec![(64, false); lanes]);
            let taken: usize = held.iter().sum();
            assert!(held.iter().all(|held| (each..=each + 1).contains(held)), "{lanes}: {held:?}");
            assert!(512 - taken >= free.min(each), "{lanes} lanes leave {}", 512 - taken);
        }
    }

    #[test]
    fn failing_lanes_share_a_quarter() {
        let held = fill(512, &[(64, true); 20]);
        assert!(held.iter().sum::<usize>() <= 128, "{held:?}");
        assert!(held.iter().all(|held| *held >= 6), "{held:?}");
        let mut lanes = vec![(64, true); 20];
        lanes.push((64, false));
        assert_eq!(fill(512, &lanes)[20], 64, "a healthy one gets all it may have");
    }

    #[test]
    fn a_single_slot_can_be_used() {
        assert_eq!(fill(1, &[(64, false)]), [1]);
        assert_eq!(fill(1, &[(64, true)]), [1]);
        assert_eq!(fill(1, &[(64, false), (64, false)]).iter().sum::<usize>(), 1);
    }
}
