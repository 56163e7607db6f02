//! Chance for tests: a small generator with a seed, so that every failure can be repeated.

use chrono::Duration;

pub struct Chance(u64);

impl Chance {
    pub fn of(seed: u64) -> Self {
        // Spread, so that neighbouring seeds differ from the first draw on.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// xorshift64*.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Both ends included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + (self.next() >> 11) % (high - low + 1)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.between(1, many) == 1
    }

    pub fn span(&mut self, low: u64, high: u64) -> Duration {
        Duration::milliseconds(self.between(low * 1_000, high * 1_000) as i64)
    }
}
