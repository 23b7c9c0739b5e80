//! The states of layers that have no keys and values.
//!
//! A slot holds one state of every such layer. Who holds a [`StateSlot`] keeps it; the last one gives it back. A step of a sequence reads
//! one slot and writes another, so that a step that fails can be run again, and a state that is worth keeping is kept by not being
//! given back: nothing is copied.

use std::cell::RefCell;
use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::PAGE;
use crate::delta::{DeltaPast, DeltaPlan};
use crate::model_config::{DeltaSpec, ModelConfig};
use crate::torch::Result;

/// The states of one layer. The first slot is that of a text's beginning, and is never written.
#[derive(Debug)]
pub struct LayerStates {
    /// `[slots, h, k_dim, v_dim]`, f32.
    states: Tensor,
    /// `[slots, kernel - 1, qkv]`, the model's dtype.
    tails: Tensor,
}

/// The slot of a text's beginning.
pub(crate) const BEGINNING: usize = 0;

/// Between which slots a step of a sequence takes its states; all the beginning's for a model that has none.
#[derive(Debug, Clone, Default)]
pub struct StateMove {
    pub from: usize,
    pub to: usize,
    /// After how many of the step's positions, in order, the states are written to which further slots.
    pub kept: Vec<(usize, usize)>,
}

/// The states of a sequence.
#[derive(Debug, Default)]
pub(super) struct SequenceStates {
    /// After the positions that were run; `None` at the beginning.
    at: Option<Rc<StateSlot>>,
    /// For the next step.
    next: Option<Rc<StateSlot>>,
    /// At ends of pages that are not in the tree yet, in order.
    kept: Vec<(usize, Rc<StateSlot>)>,
    /// After the last page that was run whole.
    mark: Option<(usize, Rc<StateSlot>)>,
    /// Positions that another sequence had run alike, if it left no state there.
    n_alike: usize,
}

/// States of a long prompt are kept after 1024 positions, and each time that it is twice as long.
const FIRST_KEPT: usize = 1024;

/// How many positions at the end of a prompt the next turn's prompt may lack. If a reply is not to think, Qwen3.5's template ends the
/// prompt with an empty thought (4 tokens), and leaves it out once the reply is history.
const NOT_IN_NEXT: usize = 8;

/// Slots that nobody holds.
#[derive(Debug, Clone)]
pub(crate) struct FreeStates {
    free: Rc<RefCell<Vec<usize>>>,
    n_slots: usize,
}

/// A slot that is held.
#[derive(Debug)]
pub(crate) struct StateSlot {
    pub(crate) index: usize,
    free: Rc<RefCell<Vec<usize>>>,
}

/// Bytes of a slot of all layers; 0 for a model that has keys and values alone.
pub(crate) fn slot_bytes(config: &ModelConfig, kind: Kind) -> usize {
    let of_layer = |net: DeltaSpec| {
        let n = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
        n(net.state()) * size_of::<f32>()
            + n((net.kernel - 1) * net.qkv()) * kind.elt_size_in_bytes()
    };
    config.delta.map_or(0, |net| of_layer(net) * net.n_layers())
}

// === impl LayerStates ===

impl LayerStates {
    pub(super) fn new(net: DeltaSpec, n_slots: usize, kind: Kind, device: Device) -> Result<Self> {
        let n = i64::try_from(n_slots + 1).unwrap_or(i64::MAX);
        let states = [n, net.n_v_heads, net.k_dim, net.v_dim];
        let states = Tensor::f_empty(states, (Kind::Float, device))?;
        let tails = Tensor::f_empty([n, net.kernel - 1, net.qkv()], (kind, device))?;
        for all in [&states, &tails] {
            let _zeros = all.f_get(0)?.f_zero_()?;
        }
        Ok(Self { states, tails })
    }

    /// What the plan's runs go on from.
    ///
    /// # Errors
    /// When a slot is beyond the pool.
    pub fn past(&self, plan: &DeltaPlan) -> Result<DeltaPast> {
        let tails = match &plan.slots {
            Some([from, _]) => self.tails.f_index_select(0, from)?,
            None => self.tails.f_narrow(0, 0, 1)?,
        };
        Ok(DeltaPast {
            states: self.states.shallow_clone(),
            tails: tails.f_flatten(0, 1)?,
        })
    }

    /// Writes what the plan's runs have left.
    ///
    /// # Errors
    /// When a slot is beyond the pool.
    pub fn write(&mut self, plan: &DeltaPlan, left: &DeltaPast) -> Result<()> {
        if let Some([_, to]) = &plan.slots {
            let _written = self.states.f_index_copy_(0, to, &left.states)?;
            let mut shape = self.tails.size();
            shape[0] = -1;
            let _written =
                self.tails
                    .f_index_copy_(0, to, &left.tails.f_view(shape.as_slice())?)?;
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |t: &Tensor| t.numel() * t.kind().elt_size_in_bytes();
        bytes(&self.states) + bytes(&self.tails)
    }
}

// === impl SequenceStates ===

impl SequenceStates {
    /// Goes on from a state that was found.
    pub(super) fn found(&mut self, position: usize, slot: Option<Rc<StateSlot>>) {
        self.mark = slot.clone().map(|slot| (position, slot));
        self.at = slot;
    }

    pub(super) fn is_alike_up_to(&mut self, n: usize) {
        self.n_alike = n;
    }

    /// Takes slots for a step over the positions `from..to` of a prompt of `n_ids`. Returns false if there is none for its end.
    pub(super) fn reserve(
        &mut self,
        (from, to): (usize, usize),
        n_ids: usize,
        mut take: impl FnMut() -> Option<Rc<StateSlot>>,
    ) -> bool {
        if self.next.is_none() {
            self.next = take();
        }
        let first = from / PAGE * PAGE + PAGE;
        self.kept.retain(|&(at, _)| at > from && at < to);
        for at in (first..to).step_by(PAGE) {
            let is_known = self.kept.iter().any(|&(known, _)| known == at);
            if self.next.is_some()
                && !is_known
                && self.is_worth_keeping(at, n_ids)
                && let Some(slot) = take()
            {
                self.kept.push((at, slot));
            }
        }
        self.next.is_some()
    }

    pub(super) fn step(&self, from: usize) -> StateMove {
        let index = |slot: Option<&Rc<StateSlot>>| slot.map_or(BEGINNING, |it| it.index);
        StateMove {
            from: index(self.at.as_ref()),
            to: index(self.next.as_ref()),
            kept: self
                .kept
                .iter()
                .map(|(at, slot)| (at - from, slot.index))
                .collect(),
        }
    }

    /// After the step: `n` positions were run.
    pub(super) fn stepped(&mut self, n: usize, n_ids: usize) {
        self.at = self.next.take();
        if n.is_multiple_of(PAGE)
            && let Some(slot) = &self.at
        {
            self.mark = Some((n, Rc::clone(slot)));
            if self.is_worth_keeping(n, n_ids) {
                self.kept.push((n, Rc::clone(slot)));
            }
        } else if let Some((at, slot)) = self.kept.last()
            && *at == n / PAGE * PAGE
        {
            self.mark = Some((*at, Rc::clone(slot)));
        }
    }

    /// The state at the end of a page, which is in the tree now.
    pub(super) fn take_kept(&mut self, at: usize) -> Option<Rc<StateSlot>> {
        let found = self.kept.iter().position(|&(known, _)| known == at)?;
        Some(self.kept.remove(found).1)
    }

    pub(super) fn into_mark(self) -> Option<(usize, Rc<StateSlot>)> {
        self.mark
    }

    /// Where another prompt is likely to leave this one: where one did before, at its end, and at a few places of a long one.
    fn is_worth_keeping(&self, at: usize, n_ids: usize) -> bool {
        at == self.n_alike
            || at == n_ids.saturating_sub(NOT_IN_NEXT) / PAGE * PAGE
            || (at >= FIRST_KEPT && at.is_power_of_two() && at < n_ids)
    }
}

// === impl FreeStates ===

impl FreeStates {
    pub(super) fn new(n_slots: usize) -> Self {
        Self {
            free: Rc::new(RefCell::new((BEGINNING + 1..=n_slots).rev().collect())),
            n_slots,
        }
    }

    pub(super) fn n_slots(&self) -> usize {
        self.n_slots
    }

    pub(super) fn take(&self) -> Option<Rc<StateSlot>> {
        let index = self.free.borrow_mut().pop()?;
        let free = Rc::clone(&self.free);
        Some(Rc::new(StateSlot { index, free }))
    }
}

impl Drop for StateSlot {
    fn drop(&mut self) {
        self.free.borrow_mut().push(self.index);
    }
}
