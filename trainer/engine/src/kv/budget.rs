//! How much memory keys and values may have when nobody says.

use crate::free_memory;

/// Where the system does not say what is free.
const UNKNOWN: usize = 1 << 30;

/// Half of what is free now, at most what two whole contexts need (1 GiB is always sensible), so that
/// training and the rest of the machine keep the other half.
pub(crate) fn default_budget(position_bytes: usize, context: usize) -> usize {
    let enough = (2 * context).saturating_mul(position_bytes).max(1 << 30);
    free_memory::available()
        .map_or(UNKNOWN, |free| free / 2)
        .min(enough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_contexts_are_enough_and_half_of_what_is_free_the_most() {
        let most = default_budget(1 << 60, 8);
        assert!(most > 0 && most < 1 << 60);
        assert!(default_budget(1, 8) <= 1 << 30);
    }
}
