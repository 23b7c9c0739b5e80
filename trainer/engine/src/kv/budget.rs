//! The default budget for keys and values.

/// The budget if the system does not report its free memory.
const UNKNOWN: usize = 1 << 30;

/// Half of `free`, at most what two whole contexts need (1 GiB is always sensible), so that training and the
/// rest of the machine keep the other half.
pub(crate) fn default_budget(free: Option<usize>, position_bytes: usize, context: usize) -> usize {
    let enough = (2 * context).saturating_mul(position_bytes).max(1 << 30);
    free.map_or(UNKNOWN, |free| free / 2).min(enough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_contexts_are_enough_and_half_of_what_is_free_the_most() {
        assert_eq!(default_budget(Some(8 << 30), 1, 8), 1 << 30);
        assert_eq!(default_budget(Some(8 << 30), 1 << 20, 1 << 10), 2 << 30);
        assert_eq!(default_budget(Some(8 << 30), 1 << 20, 1 << 20), 4 << 30);
        assert_eq!(default_budget(None, 1 << 20, 1 << 20), UNKNOWN);
    }
}
