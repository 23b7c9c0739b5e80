//! The pages of each sequence: found again, set aside, shared when full, given back.

use super::pages::PageAllocator;
use super::radix::{NodeId, RadixTree, WeightsKey};
use super::{PAGE, PositionRun};

#[derive(Debug, Default)]
pub(crate) struct PageTable {
    key: WeightsKey,
    pages: Vec<usize>,
    /// The number of first pages that are in the tree.
    n_shared: usize,
    /// The node of the last of them.
    end: Option<NodeId>,
}

#[derive(Debug)]
pub(crate) struct BlockManager {
    free: PageAllocator,
    tree: RadixTree,
    n_pages: usize,
}

// === impl PageTable ===

impl PageTable {
    pub(crate) fn n_pages(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn n_known(&self) -> usize {
        self.n_shared * PAGE
    }

    /// The pool slot of a position, which must be reserved.
    pub(crate) fn slot(&self, position: usize) -> Option<usize> {
        let page = self.pages.get(position / PAGE)?;
        Some(page * PAGE + position % PAGE)
    }

    pub(crate) fn runs(&self, len: usize) -> Vec<PositionRun> {
        let mut runs: Vec<PositionRun> = Vec::new();
        for (i, page) in self.pages.iter().take(len.div_ceil(PAGE)).enumerate() {
            let (start, n) = (page * PAGE, PAGE.min(len - i * PAGE));
            match runs.last_mut() {
                Some(run) if run.start + run.len == start => run.len += n,
                _ => runs.push(PositionRun { start, len: n }),
            }
        }
        runs
    }
}

// === impl BlockManager ===

impl BlockManager {
    pub(crate) fn new(n_pages: usize) -> Self {
        Self {
            free: PageAllocator::new(n_pages),
            tree: RadixTree::default(),
            n_pages,
        }
    }

    pub(crate) fn n_pages(&self) -> usize {
        self.n_pages
    }

    pub(crate) fn n_available(&self) -> usize {
        self.free.n_free() + self.tree.n_idle()
    }

    pub(crate) fn begin(&mut self, key: WeightsKey, ids: &[u32]) -> PageTable {
        let mut table = PageTable {
            key,
            pages: Vec::new(),
            n_shared: 0,
            end: None,
        };
        self.adopt(&mut table, ids);
        table
    }

    /// Takes over further cached pages of `ids`, at most all but the last id, which has to run to give logits.
    pub(crate) fn adopt(&mut self, table: &mut PageTable, ids: &[u32]) {
        let usable = &ids[..ids.len().saturating_sub(1)];
        while let Some(rest) = usable.get(table.n_known()..)
            && let Some((node, page)) = self.tree.find(table.key, table.end, rest)
        {
            self.tree.hold(node);
            self.share(table, node, page);
        }
    }

    /// Reserves pages for `n_positions` and evicts idle pages for that. Returns false if there are not enough.
    pub(crate) fn reserve(&mut self, table: &mut PageTable, n_positions: usize) -> bool {
        while table.pages.len() * PAGE < n_positions {
            if self.free.n_free() == 0
                && let Some(page) = self.tree.evict()
            {
                self.free.free(page);
            }
            let Some(page) = self.free.allocate(table.pages.last().copied()) else {
                return false;
            };
            table.pages.push(page);
        }
        true
    }

    /// Publishes the pages that are full after `n_cached` positions, so that other sequences can share them.
    pub(crate) fn publish(&mut self, table: &mut PageTable, ids: &[u32], n_cached: usize) {
        while table.n_known() + PAGE <= n_cached {
            let rest = &ids[table.n_known()..];
            // Two sequences may have computed the same page: one of them is enough.
            if let Some((node, page)) = self.tree.find(table.key, table.end, rest) {
                self.tree.hold(node);
                self.share(table, node, page);
                continue;
            }
            let page = table.pages[table.n_shared];
            let Some(node) = self.tree.insert(table.key, table.end, rest, page) else {
                return;
            };
            self.share(table, node, page);
        }
    }

    /// Releases all pages. Pages in the tree stay cached while there is room.
    pub(crate) fn release(&mut self, table: PageTable) {
        let PageTable {
            pages,
            n_shared,
            end,
            ..
        } = table;
        for page in pages.into_iter().skip(n_shared) {
            self.free.free(page);
        }
        if let Some(end) = end {
            self.tree.release(end);
        }
    }

    fn share(&mut self, table: &mut PageTable, node: NodeId, page: usize) {
        match table.pages.get_mut(table.n_shared) {
            Some(own) if *own != page => self.free.free(std::mem::replace(own, page)),
            Some(_) => {}
            None => table.pages.push(page),
        }
        table.n_shared += 1;
        table.end = Some(node);
    }
}

#[cfg(test)]
mod tests;
