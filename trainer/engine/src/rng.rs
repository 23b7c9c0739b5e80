//! A small generator of our own, so that a seed gives the same adapter on every platform and version.

/// SplitMix64 (Steele, Lea, Flood 2014, <https://doi.org/10.1145/2660193.2660195>): one word of state, passes BigCrush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

// === impl SplitMix64 ===

impl SplitMix64 {
    /// The generator that starts at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// One of many generators under a seed. `stream` is mixed in, not added, so that neighbours do not overlap.
    pub const fn stream(seed: u64, stream: u64) -> Self {
        let mut outer = Self::new(seed);
        let mut inner = Self::new(stream ^ GOLDEN);
        Self::new(outer.next_u64() ^ inner.next_u64())
    }

    /// The seed from which [`SplitMix64::new`] makes this generator.
    pub const fn seed(&self) -> u64 {
        self.state
    }

    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`, 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `[low, high)`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_sequence() {
        let mut rng = SplitMix64::new(1_234_567);
        let first = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, published);
    }

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, stream| SplitMix64::stream(seed, stream).next_u64();
        assert_eq!(first(7, 1), first(7, 1));
        assert_ne!(first(7, 1), first(7, 2));
        assert_ne!(first(7, 1), first(8, 1));
    }

    #[test]
    fn uniform_fills_its_interval() {
        let mut rng = SplitMix64::new(3);
        let draws: Vec<f64> = (0..10_000).map(|_| rng.uniform(-0.5, 0.5)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!(draws.iter().all(|x| (-0.5..0.5).contains(x)));
        assert!(mean.abs() < 0.02, "mean {mean}");
    }
}
