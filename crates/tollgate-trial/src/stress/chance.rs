//! Random choices that a seed repeats.

use std::hash::{BuildHasher, RandomState};

/// SplitMix64.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        Self(name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A new seed.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(0) & 0xffff_ffff
}
