//! Random choices that follow from a seed, on every machine and with every version.

/// A sequence of random numbers: SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub struct SeededDraw {
    state: u64,
}

// === impl SeededDraw ===

impl SeededDraw {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        let below = self.next() % n as u64;
        usize::try_from(below).expect("it is below a usize")
    }

    pub fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}
