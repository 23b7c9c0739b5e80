//! Free pages, given out so that a sequence's pages follow one another as long as possible: attention
//! reads a run of pages in one call.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct PageAllocator {
    /// First page of each free run, and its length.
    runs: BTreeMap<usize, usize>,
    n_free: usize,
}

impl PageAllocator {
    pub(super) fn new(n_pages: usize) -> Self {
        let whole = (n_pages > 0).then_some((0, n_pages));
        Self {
            runs: whole.into_iter().collect(),
            n_free: n_pages,
        }
    }

    pub(super) fn n_free(&self) -> usize {
        self.n_free
    }

    /// The page after `last` where that is free, else one with room behind it; `None` when all are taken.
    pub(super) fn allocate(&mut self, last: Option<usize>) -> Option<usize> {
        let next = last.map(|page| page + 1);
        let page = match next.filter(|page| self.runs.contains_key(page)) {
            Some(page) => page,
            None => self.roomiest()?,
        };
        self.cut(page);
        Some(page)
    }

    pub(super) fn free(&mut self, page: usize) {
        let (mut start, mut len) = (page, 1);
        let before = self.runs.range(..page).next_back();
        if let Some((&s, &n)) = before.filter(|&(&s, &n)| s + n == page) {
            (start, len) = (s, n + 1);
        }
        len += self.runs.remove(&(page + 1)).unwrap_or(0);
        self.runs.insert(start, len);
        self.n_free += 1;
    }

    /// Takes the middle of the longest free run, because a sequence may be growing into its beginning.
    fn roomiest(&self) -> Option<usize> {
        // Takes the first of equally long runs.
        let longest = self.runs.iter().rev().max_by_key(|&(_, &len)| len);
        longest.map(|(&start, &len)| if start == 0 { 0 } else { start + len / 2 })
    }

    fn cut(&mut self, page: usize) {
        let Some((&start, &len)) = self.runs.range(..=page).next_back() else {
            return;
        };
        self.runs.remove(&start);
        if page > start {
            self.runs.insert(start, page - start);
        }
        if start + len > page + 1 {
            self.runs.insert(page + 1, start + len - page - 1);
        }
        self.n_free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sequence_grows_in_one_run_and_another_begins_where_there_is_room() {
        let mut pages = PageAllocator::new(100);
        let first = pages.allocate(None).unwrap();
        let second = pages.allocate(None).unwrap();
        assert_eq!((first, second), (0, 50));
        assert_eq!(pages.allocate(Some(first)), Some(1));
        assert_eq!(pages.allocate(Some(second)), Some(51));
        for last in 1..49 {
            assert_eq!(pages.allocate(Some(last)), Some(last + 1));
        }
        assert_eq!(pages.allocate(Some(49)), Some(76), "50 is taken");
    }

    #[test]
    fn neighbours_given_back_become_one_run() {
        let mut pages = PageAllocator::new(4);
        for last in [None, Some(0), Some(1), Some(2)] {
            assert!(pages.allocate(last).is_some());
        }
        assert_eq!(pages.allocate(Some(3)), None);
        for page in [1, 3, 2, 0] {
            pages.free(page);
        }
        assert_eq!(pages.runs, [(0, 4)].into());
    }

    proptest! {
        #[test]
        fn no_page_is_given_twice_and_none_is_lost(steps in prop::collection::vec(0..40_usize, 1..300)) {
            let mut pages = PageAllocator::new(30);
            let mut held: Vec<usize> = Vec::new();
            for step in steps {
                if step < held.len() {
                    pages.free(held.swap_remove(step));
                } else if let Some(page) = pages.allocate(held.last().copied()) {
                    prop_assert!(!held.contains(&page) && page < 30);
                    held.push(page);
                } else {
                    prop_assert_eq!(held.len(), 30);
                }
                prop_assert_eq!(pages.n_free() + held.len(), 30);
            }
        }
    }
}
