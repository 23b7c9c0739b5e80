//! Sixty everyday questions, and an order for each seed.

use std::sync::LazyLock;

/// The questions are what people ask a small assistant on an ordinary day.
pub static QUESTIONS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| include_str!("questions.txt").lines().collect());

/// Returns the questions in the order of `seed`: Fisher-Yates with `SplitMix64`.
pub fn shuffled(seed: u64) -> Vec<&'static str> {
    let mut order = QUESTIONS.to_vec();
    let mut state = seed;
    for i in (1..order.len()).rev() {
        let j = split_mix(&mut state) % (i as u64 + 1);
        order.swap(i, usize::try_from(j).expect("below 60"));
    }
    order
}

/// Returns the next number of Vigna's `SplitMix64`.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
