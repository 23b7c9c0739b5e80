//! The rows of one forward pass: new positions of several sequences, one sequence after the other.

use tch::{Device, Tensor};

use crate::attention::{NewRows, PagePlan};
use crate::delta::{Before, DeltaPlan, Run};
use crate::few_rows;
use crate::kv::{KvPool, PositionRun, StateMove};
use crate::layer::{Attention, LayerWeights, layer_forward};
use crate::linear::LayerAdapters;
use crate::lora::{AdapterStack, Lora, Segment};
use crate::model::Model;
use crate::pack::to_i64;
use crate::torch::Result;

/// New positions of one sequence.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Ids that are run; at least one.
    pub ids: &'a [u32],
    /// The position of the first.
    pub start: usize,
    /// The pool slot of each position.
    pub slots: Vec<usize>,
    /// The cached positions that the rows attend to: all before `start`, and a single new row itself.
    pub past: Vec<PositionRun>,
    /// Where the states are that it goes on from, and where those go that it leaves.
    pub states: StateMove,
    /// The adapter of the sequence.
    pub lora: Option<&'a Lora>,
    /// Whose hidden states are given back.
    pub keep: Keep,
}

/// Which of a sequence's new positions are of use once they are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The last, after which a token is drawn.
    Last,
    All,
}

/// The most rows for which the angles of each layer are multiplied by the weights of its head norms beforehand. The results have as
/// many numbers as the queries and keys of all layers: 47 MB for so many rows of a 4B model.
const MOST_WITH_NORMS: usize = 64;

// === impl Model ===

impl Model {
    /// Runs new positions of several sequences at once, writing their keys and values to the pool; inference only.
    ///
    /// Rows with the same adapter should stand together, because each stretch of them is a product of its own.
    ///
    /// # Shapes
    /// Returns the hidden states before the last norm of the positions that each sequence keeps, one after the other,
    /// `[n, d]`, f32, on the last device.
    ///
    /// # Errors
    /// When an id is not below `vocab`, a position beyond the context or a slot beyond the pool.
    pub fn forward_batch(&self, rows: &[Rows<'_>], pool: &mut KvPool) -> Result<Tensor> {
        let (first, last) = (self.placement.first(), self.placement.last());
        let tensor = |numbers: Vec<i64>| Tensor::f_from_slice(&numbers)?.f_to_device(first);
        let ids = rows.iter().flat_map(|r| r.ids);
        let ids = tensor(ids.copied().map(i64::from).collect())?;
        let positions = rows.iter().flat_map(|r| r.start..r.start + r.ids.len());
        let ropes = self.angles(&tensor(positions.map(to_i64).collect())?)?;
        let n_rows: usize = rows.iter().map(|r| r.ids.len()).sum();
        let norms = self
            .head_norms
            .as_ref()
            .filter(|_| n_rows <= MOST_WITH_NORMS);
        let ropes_with_norms =
            norms.map(|norms| ropes.try_map(|rope| rope.of(&self.placement, 0)?.with_norms(norms)));
        let ropes_with_norms = ropes_with_norms.transpose()?;
        let new = rows.iter().map(|r| {
            let (len, past) = (r.ids.len(), r.past.clone());
            NewRows { len, past }
        });
        let new: Vec<NewRows> = new.collect();
        let slots: Vec<usize> = rows.iter().flat_map(|r| &r.slots).copied().collect();
        let (n_heads, n_kv) = (self.config.n_heads, self.config.n_kv_heads);
        let heads = few_rows::heads(n_heads, n_kv, self.config.head_dim);
        let plans = self.windows.try_map(|&window| {
            self.placement.each(|device| {
                let how = (device, self.batches_as_gpu);
                PagePlan::new(new.clone(), &slots, heads, window, how)
            })
        })?;
        let nets = self.config.delta.map(|net| {
            let plan = delta_plan(rows, net.kernel, first)?;
            self.placement.each(|device| plan.to_device(device))
        });
        let nets = nets.transpose()?;
        let segments = segments(rows.iter().map(|r| (r.ids.len(), r.lora)));
        let mut stack = self.stack.borrow_mut();
        let is_stacked = |stack: &AdapterStack| stack.is_of(&segments);
        if self.batches_as_gpu && !segments.is_empty() && !stack.as_ref().is_some_and(is_stacked) {
            // The old stack is freed before the new one is made.
            *stack = None;
            let maps = self.weights.layers.iter().map(LayerWeights::maps);
            *stack = AdapterStack::new(maps, &segments, self.kind)?;
        }
        let mut x = self.embed(&ids.f_unsqueeze(0)?)?;
        let layers = self.weights.layers.iter().zip(pool.caches_mut());
        for (layer, (w, (kv, states))) in layers.enumerate() {
            let adapters = match &*stack {
                _ if segments.is_empty() && self.batches_as_gpu => LayerAdapters::None,
                Some(stack) if self.batches_as_gpu => LayerAdapters::Stacked {
                    stack,
                    segments: &segments,
                    layer,
                },
                _ => LayerAdapters::Rows {
                    segments: &segments,
                    layer,
                },
            };
            let rope = match &ropes_with_norms {
                Some(ropes) => &ropes.of(layer)?[layer],
                None => ropes.of(layer)?.of(&self.placement, layer)?,
            };
            let attention = match (&nets, states) {
                (Some(nets), Some(states)) => Attention::Delta {
                    plan: nets.of(&self.placement, layer)?,
                    states: Some(states),
                },
                _ => Attention::Paged {
                    kv,
                    plan: plans.of(layer)?.of(&self.placement, layer)?,
                },
            };
            x = self.placement.moved(&x, layer)?;
            x = layer_forward(&self.config, w, adapters, &x, rope, attention)?;
        }
        let kept = Tensor::f_from_slice(&kept(rows))?.f_to_device(last)?;
        x.f_select(0, 0)?.f_index_select(0, &kept)
    }
}

/// The positions whose hidden states are given back.
fn kept(rows: &[Rows<'_>]) -> Vec<i64> {
    let mut n = 0;
    let kept = rows.iter().flat_map(|r| {
        let start = n;
        n += to_i64(r.ids.len());
        match r.keep {
            Keep::Last => n - 1..n,
            Keep::All => start..n,
        }
    });
    kept.collect()
}

/// The rows of each sequence, cut where a state is kept.
fn delta_plan(rows: &[Rows<'_>], kernel: i64, device: Device) -> Result<DeltaPlan> {
    let (mut runs, mut left, mut to) = (Vec::new(), Vec::new(), Vec::new());
    for (tail, sequence) in rows.iter().enumerate() {
        let states = &sequence.states;
        let mut before = Before::Past {
            state: states.from,
            tail,
        };
        let end = (sequence.ids.len(), states.to);
        let mut start = 0;
        for (at, slot) in states.kept.iter().copied().chain([end]) {
            let len = at - start;
            left.push(runs.len());
            to.push(to_i64(slot));
            runs.push(Run { len, before });
            before = Before::Run(runs.len() - 1);
            start = at;
        }
    }
    let from: Vec<i64> = rows.iter().map(|it| to_i64(it.states.from)).collect();
    DeltaPlan::in_slots(&runs, &left, kernel, [&from, &to], device)
}

pub(crate) fn segments<'a>(
    sequences: impl Iterator<Item = (usize, Option<&'a Lora>)>,
) -> Vec<Segment<'a>> {
    let mut segments: Vec<Segment<'a>> = Vec::new();
    let mut start = 0;
    for (len, lora) in sequences {
        let len = to_i64(len);
        if let Some(lora) = lora {
            match segments.last_mut() {
                Some(last) if std::ptr::eq(last.lora, lora) && last.start + last.len == start => {
                    last.len += len;
                }
                _ => segments.push(Segment { start, len, lora }),
            }
        }
        start += len;
    }
    segments
}
