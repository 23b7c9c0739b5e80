//! Which bytes of a file are present: a sorted list of disjoint half-open ranges.

use std::ops::Range;

/// The ranges are disjoint, sorted, and never touch each other.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Spans(Vec<Range<u64>>);

impl Spans {
    /// Adds a range, joined with its neighbours.
    pub(crate) fn add(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let mut joined = new;
        self.0.retain(|old| {
            let apart = old.end < joined.start || joined.end < old.start;
            if !apart {
                joined = joined.start.min(old.start)..joined.end.max(old.end);
            }
            apart
        });
        let place = self.0.partition_point(|old| old.start < joined.start);
        self.0.insert(place, joined);
    }

    /// Returns the parts of `wanted` that are missing, in order.
    pub(crate) fn missing(&self, wanted: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = wanted.start;
        for span in &self.0 {
            if at >= wanted.end {
                break;
            }
            if span.end <= at {
                continue;
            }
            if span.start > at {
                gaps.push(at..span.start.min(wanted.end));
            }
            at = at.max(span.end);
        }
        if at < wanted.end {
            gaps.push(at..wanted.end);
        }
        gaps
    }

    /// Returns how many bytes of `wanted` are missing.
    pub(crate) fn missing_bytes(&self, wanted: Range<u64>) -> u64 {
        self.missing(wanted)
            .iter()
            .map(|gap| gap.end - gap.start)
            .sum()
    }
}

/// Joins ranges that are at most `gap` bytes apart, because one more request costs more than the bytes in between.
pub(crate) fn coalesce(mut ranges: Vec<Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap) => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "lists of ranges are what this is about"
)]
mod tests {
    use super::*;

    fn spans(ranges: &[Range<u64>]) -> Spans {
        let mut spans = Spans::default();
        for range in ranges {
            spans.add(range.clone());
        }
        spans
    }

    #[test]
    fn joins_what_touches_or_overlaps() {
        assert_eq!(spans(&[10..20, 30..40, 20..30]), spans(&[10..40]));
        assert_eq!(spans(&[10..20, 15..35, 0..5]).0, vec![0..5, 10..35]);
        assert_eq!(spans(&[5..5]), Spans::default());
    }

    #[test]
    fn names_every_gap_once() {
        let have = spans(&[10..20, 30..40]);
        assert_eq!(have.missing(0..50), vec![0..10, 20..30, 40..50]);
        assert_eq!(have.missing(12..18), vec![]);
        assert_eq!(have.missing(15..32), vec![20..30]);
        assert_eq!(have.missing(20..25), vec![20..25]);
        assert_eq!(have.missing_bytes(0..50), 30);
    }

    /// Compares the spans with a plain set of numbers, in many small random cases.
    #[test]
    fn agrees_with_a_set() {
        let mut seed = 1_u64;
        let mut next = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % limit
        };
        for _ in 0..500 {
            let mut spans = Spans::default();
            let mut set = std::collections::BTreeSet::new();
            for _ in 0..6 {
                let start = next(40);
                let range = start..start + next(8);
                set.extend(range.clone());
                spans.add(range);
            }
            let missing: Vec<u64> = spans.missing(0..50).into_iter().flatten().collect();
            let expected: Vec<u64> = (0..50).filter(|byte| !set.contains(byte)).collect();
            assert_eq!(missing, expected, "{spans:?}");
        }
    }

    #[test]
    fn coalesces_over_small_gaps_only() {
        assert_eq!(
            coalesce(vec![50..60, 0..10, 12..20], 5),
            vec![0..20, 50..60]
        );
        assert_eq!(coalesce(vec![0..100, 10..20], 0), vec![0..100]);
    }
}
