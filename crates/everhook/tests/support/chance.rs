//! Chance from a seed, so that a failing run can be told and tried again.

/// The variable that replaces the seed of a suite.
const VARIABLE: &str = "EVERHOOK_KILL_SEED";
const SEED_DEFAULT: u64 = 1;

/// A generator of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

/// The seed of this run: the variable's, else always the same.
#[expect(clippy::disallowed_methods, reason = "a test has no other way to be told a seed")]
pub(crate) fn seed() -> u64 {
    match std::env::var(VARIABLE) {
        Ok(text) => text.parse().expect("EVERHOOK_KILL_SEED is a whole number"),
        Err(_) => SEED_DEFAULT,
    }
}

impl Chance {
    /// The generator of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number from `start` to `end`, both included.
    pub(crate) fn between(&mut self, start: u64, end: u64) -> u64 {
        start + self.below(end - start + 1)
    }
}

/// Spreads a number over 64 bits; the same for the same number.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}
