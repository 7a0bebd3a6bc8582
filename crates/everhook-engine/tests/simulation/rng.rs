//! Chance that comes from the seed alone.

/// A stream of numbers (SplitMix64). Streams of one seed with different names are independent, so
/// that a change in one part of the simulation does not disturb the others.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of this name.
    pub(crate) fn new(seed: u64, stream: &str) -> Self {
        let mut rng = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        for byte in stream.bytes() {
            rng.0 ^= rng.next().wrapping_add(u64::from(byte));
        }
        rng
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A stream of its own for somebody else.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// A number from `low` to `high`, both inclusive.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = high.abs_diff(low).saturating_add(1);
        low + i64::try_from(self.next() % span).unwrap_or(0)
    }

    /// A place in a list of this length, which is not empty.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.next() % length.max(1) as u64).unwrap_or(0)
    }

    /// True so often in a hundred times.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }

    /// One of a list.
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.place(list.len())]
    }
}
