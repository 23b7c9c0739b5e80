//! The pages of each sequence: found again, set aside, shared when full, given back.

use std::rc::Rc;

use super::pages::PageAllocator;
use super::radix::{NodeId, RadixTree, WeightsKey};
use super::states::{FreeStates, SequenceStates, StateMove, StateSlot};
use super::{PAGE, PositionRun};

#[derive(Debug, Default)]
pub(crate) struct PageTable {
    key: WeightsKey,
    pages: Vec<usize>,
    /// The number of first pages that are in the tree.
    n_shared: usize,
    /// The node of the last of them.
    end: Option<NodeId>,
    states: SequenceStates,
}

#[derive(Debug)]
pub(crate) struct BlockManager {
    free: PageAllocator,
    tree: RadixTree,
    n_pages: usize,
    /// Slots of states, for a model that has some.
    states: Option<FreeStates>,
}

/// Slots that a reply may hold at a time: its state, the one that is written, and that of its last page.
const SLOTS: usize = 3;
/// The fewest slots with which a reply can run, and one that is kept.
pub(crate) const FEWEST_STATES: usize = SLOTS + 1;

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

    /// Between which slots a step from a position takes its states.
    pub(crate) fn states(&self, from: usize) -> StateMove {
        self.states.step(from)
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
            states: None,
        }
    }

    /// The same for a model with states, of which there is room for `n`.
    pub(crate) fn with_states(self, n: usize) -> Self {
        let states = (n > 0).then(|| FreeStates::new(n));
        Self { states, ..self }
    }

    /// Whether another reply beside `n_live` has slots for its states.
    pub(crate) fn has_states(&self, n_live: usize) -> bool {
        let room = |states: &FreeStates| states.n_slots() >= (n_live + 1) * SLOTS;
        self.states.as_ref().is_none_or(room)
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
            ..PageTable::default()
        };
        self.adopt(&mut table, ids);
        table
    }

    /// Takes over further cached pages of `ids`, at most all but the last id, which has to run to give logits.
    pub(crate) fn adopt(&mut self, table: &mut PageTable, ids: &[u32]) {
        let usable = &ids[..ids.len().saturating_sub(1)];
        let (mut path, mut end, mut n_usable) = (Vec::new(), table.end, 0);
        while let Some(rest) = usable.get(table.n_known() + path.len() * PAGE..)
            && let Some((node, page)) = self.tree.find(table.key, end, rest)
        {
            path.push((node, page));
            end = Some(node);
            // Without its state the positions of a page have to be run again.
            if self.states.is_none() || self.tree.has_state(node) {
                n_usable = path.len();
            }
        }
        table
            .states
            .is_alike_up_to(table.n_known() + path.len() * PAGE);
        for &(node, page) in path.iter().take(n_usable) {
            self.tree.hold(node);
            self.share(table, node, page);
        }
        if self.states.is_some()
            && let Some(end) = table.end.filter(|_| n_usable > 0)
        {
            let state = self.tree.use_state(end);
            table.states.found(table.n_known(), state);
        }
    }

    /// Takes slots for the states of a step over the positions `from..to` of `n_ids`, and evicts states for that. Returns false if
    /// there are not enough.
    pub(crate) fn reserve_states(
        &mut self,
        table: &mut PageTable,
        step: (usize, usize),
        n_ids: usize,
    ) -> bool {
        let (Some(free), tree) = (&self.states, &mut self.tree) else {
            return true;
        };
        let take = || -> Option<Rc<StateSlot>> {
            loop {
                if let Some(slot) = free.take() {
                    return Some(slot);
                }
                // One that is in use is not free by that.
                if !tree.evict_state() {
                    return None;
                }
            }
        };
        table.states.reserve(step, n_ids, take)
    }

    /// Notes that a step was run: `n_cached` positions of `n_ids` are there.
    pub(crate) fn stepped(&self, table: &mut PageTable, n_cached: usize, n_ids: usize) {
        if self.states.is_some() {
            table.states.stepped(n_cached, n_ids);
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
            let (node, page) =
                if let Some((node, page)) = self.tree.find(table.key, table.end, rest) {
                    self.tree.hold(node);
                    (node, page)
                } else {
                    let page = table.pages[table.n_shared];
                    let Some(node) = self.tree.insert(table.key, table.end, rest, page) else {
                        return;
                    };
                    (node, page)
                };
            self.share(table, node, page);
            if let Some(state) = table.states.take_kept(table.n_known()) {
                self.tree.keep_state(node, state);
            }
        }
    }

    /// Releases all pages. Pages in the tree stay cached while there is room.
    pub(crate) fn release(&mut self, table: PageTable) {
        let n_known = table.n_known();
        let PageTable {
            pages,
            n_shared,
            end,
            states,
            ..
        } = table;
        if let (Some(end), Some((at, state))) = (end, states.into_mark())
            && at == n_known
        {
            self.tree.keep_state(end, state);
        }
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
