//! A reply that has its place: its text so far, and its pages of keys and values.

use std::ops::Range;
use std::rc::Rc;

use super::adapters::ServedAdapter;
use crate::batch::{Keep, Rows};
use crate::generate::BegunReply;
use crate::kv::{BlockManager, PageTable, WeightsKey};
use crate::lora::Lora;

#[derive(Debug)]
pub(super) struct Stream {
    /// Counts up with admission: the oldest keeps its place longest.
    pub(super) age: u64,
    pub(super) reply: BegunReply,
    adapter: Option<Rc<ServedAdapter>>,
    pub(super) table: PageTable,
    /// Positions whose keys and values are there.
    n_cached: usize,
}

impl Stream {
    pub(super) fn new(
        age: u64,
        reply: BegunReply,
        adapter: Option<Rc<ServedAdapter>>,
        table: PageTable,
    ) -> Self {
        Self {
            age,
            reply,
            adapter,
            n_cached: table.n_known(),
            table,
        }
    }

    pub(super) fn key(&self) -> WeightsKey {
        self.adapter.as_ref().map_or(0, |adapter| adapter.key)
    }

    pub(super) fn n_pending(&self) -> usize {
        self.reply.ids().len() - self.n_cached
    }

    pub(super) fn adopt(&mut self, blocks: &mut BlockManager) {
        blocks.adopt(&mut self.table, self.reply.reusable_ids());
        self.n_cached = self.n_cached.max(self.table.n_known());
    }

    /// Sets pages and slots of states aside for the next `n` positions. Returns false if there are not enough.
    pub(super) fn reserve(&mut self, n: usize, blocks: &mut BlockManager) -> bool {
        let (start, end) = (self.n_cached, self.n_cached + n);
        let n_ids = self.reply.ids().len();
        blocks.reserve(&mut self.table, end)
            && (n == 0 || blocks.reserve_states(&mut self.table, (start, end), n_ids))
    }

    /// The next `n` positions for a batch. Their pages are reserved.
    pub(super) fn rows(&self, n: usize) -> Rows<'_> {
        let (start, end) = (self.n_cached, self.n_cached + n);
        // A single row is written first and then attends to all, itself included.
        let past = if n == 1 { end } else { start };
        Rows {
            ids: &self.reply.ids()[start..end],
            start,
            slots: (start..end).filter_map(|at| self.table.slot(at)).collect(),
            past: self.table.runs(past),
            states: self.table.states(start),
            lora: self.lora(),
            keep: if self.reply.scoring().is_some() {
                Keep::All
            } else {
                Keep::Last
            },
        }
    }

    /// The positions among the next `n` whose hidden states score the prompt's next tokens, counted from the first of
    /// the `n`.
    pub(super) fn scored(&self, n: usize) -> Range<usize> {
        let Some(scoring) = self.reply.scoring() else {
            return 0..0;
        };
        let end = scoring.n_wanted().min(self.n_cached + n);
        let start = scoring.n_done().max(self.n_cached);
        // Cached positions were scored before: see `BegunReply::reusable_ids`.
        start - self.n_cached..end.max(start) - self.n_cached
    }

    pub(super) fn following(&self, positions: Range<usize>) -> &[u32] {
        let first = self.n_cached + 1;
        let at = first + positions.start..first + positions.end;
        self.reply.ids().get(at).unwrap_or_default()
    }

    pub(super) fn lora(&self) -> Option<&Lora> {
        self.adapter.as_ref().map(|adapter| &adapter.lora)
    }

    pub(super) fn ran(&mut self, n: usize, blocks: &mut BlockManager) {
        self.n_cached += n;
        self.reply.ran(n);
        blocks.stepped(&mut self.table, self.n_cached, self.reply.ids().len());
        blocks.publish(&mut self.table, self.reply.ids(), self.n_cached);
    }

    pub(super) fn begin_again(&mut self, blocks: &mut BlockManager) {
        let table = blocks.begin(self.key(), self.reply.reusable_ids());
        self.n_cached = table.n_known();
        self.table = table;
    }
}
