//! The plan of a batch's attention: which slots its rows are written to, and which positions they see. All layers share
//! one plan.

use std::ops::Range;

use metaclaw_kernels::Heads;
use tch::{Device, Kind, Tensor};

use super::window;
use crate::aten::Sequences;
use crate::torch::Result;
use crate::{few_rows, kv::PositionRun, pack::to_i64};

/// The most runs that are read in place. More are copied into one, because that takes less time than a call for each.
const MAX_RUNS: usize = 8;

/// The most numbers of a layer's keys that a CPU copies for one call, 4 MB in f32. A step of eight replies of 100 positions each (135M
/// parameters, two cores) took 96 ms with a call for each reply, and 71 ms with one.
pub(super) const MAX_GATHERED: usize = 1 << 20;
/// The same on a GPU, 128 MB in bf16: there a copy costs little beside the launch of a call.
const MAX_GATHERED_GPU: usize = 1 << 26;
/// Mask rows have to begin at a multiple of this many numbers for a GPU's kernel.
const MASK_ALIGNMENT: usize = 8;

/// New positions of one sequence, and what they attend to besides one another.
#[derive(Debug, Clone)]
pub struct NewRows {
    pub len: usize,
    /// The positions before the new rows. A single row is among them itself.
    pub past: Vec<PositionRun>,
}

#[derive(Debug)]
pub(super) struct SequenceSpan {
    pub(super) row: i64,
    pub(super) len: i64,
    pub(super) past: Past,
}

#[derive(Debug)]
pub(super) enum Past {
    Runs(Vec<PositionRun>),
    /// Slots, `[n]`, i64.
    Scattered(Tensor),
    /// The newest positions, including the rows themselves. Each row attends to a different part of them.
    Newest {
        /// Slots, `[s]`, i64.
        slots: Tensor,
        /// 0, and minus infinity where a row does not attend to a position: `[1, 1, t, s]`, f32.
        mask: Tensor,
    },
}

/// The pasts of single rows side by side. Each row is of another sequence, and shorter pasts are padded.
#[derive(Debug)]
pub(super) struct Singles {
    /// `[n * longest]`, i64.
    pub(super) slots: Tensor,
    /// 0, and minus infinity where a past is padded: `[n, 1, 1, longest]`, f32.
    pub(super) mask: Tensor,
    pub(super) longest: i64,
}

/// The slots of all rows of a batch, and the positions that the rows attend to.
#[derive(Debug)]
pub struct PagePlan {
    /// `[t]`, i64.
    pub(super) slots: Tensor,
    pub(super) reads: Reads,
}

#[derive(Debug)]
pub(super) enum Reads {
    /// One entry for each sequence, in the order of the rows.
    Spans(Vec<SequenceSpan>),
    /// Single rows on a CPU with vector units: for each row, the positions that it attends to.
    Few(Vec<Vec<Range<usize>>>),
    Singles(Singles),
    /// All sequences in one call, as on a GPU with flash attention.
    Together(Together),
}

/// The sequences of one attention call.
#[derive(Debug)]
pub(super) struct Together {
    /// The slots of all keys, one sequence after the other, `[s]`, i64. They are copied if the keys of some sequence are not in one piece.
    /// `None` if all are read in place.
    pub(super) gathered: Option<Tensor>,
    pub(super) of: Sequences,
    pub(super) window: Option<i64>,
}

// === impl PagePlan ===

impl PagePlan {
    /// Plans a batch of `rows`, one sequence after the other, whose keys and values are written to `slots`. With a `window`, a position
    /// attends to so many of the newest positions. `in_one_call` chooses the way of a GPU.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn new(
        mut rows: Vec<NewRows>,
        slots: &[usize],
        heads: Heads,
        window: Option<usize>,
        (device, in_one_call): (Device, bool),
    ) -> Result<Self> {
        for one in &mut rows {
            one.forget(window);
        }
        let are_single = rows.iter().all(|row| row.len == 1);
        let reads = if in_one_call {
            Reads::Together(Together::new(&rows, slots, window, device)?)
        } else if are_single && few_rows::attends(heads, device) {
            let past = |it: &NewRows| -> Vec<Range<usize>> {
                let runs = it.past.iter();
                runs.map(|run| run.start..run.start + run.len).collect()
            };
            Reads::Few(rows.iter().map(past).collect())
        } else {
            match Singles::new(&rows, heads.n_kv * heads.width, device)? {
                Some(singles) => Reads::Singles(singles),
                None => Reads::Spans(SequenceSpan::each(rows, slots, window, device)?),
            }
        };
        let slots: Vec<i64> = slots.iter().copied().map(to_i64).collect();
        Ok(Self {
            slots: Tensor::f_from_slice(&slots)?.f_to_device(device)?,
            reads,
        })
    }
}

// === impl Together ===

impl Together {
    fn new(
        rows: &[NewRows],
        slots: &[usize],
        window: Option<usize>,
        device: Device,
    ) -> Result<Self> {
        let (mut first, mut n_seen, mut is_whole) = (0, 0, true);
        let (mut seen, mut queries, mut starts, mut packed, mut n_keys) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for one in rows {
            let mut all: Vec<i64> = one.past.iter().flat_map(slots_of).collect();
            let own = slots.get(first..first + one.len).unwrap_or_default();
            // A single row is among its past.
            if one.len > 1 {
                all.extend(own.iter().copied().map(to_i64));
            }
            let (start, n) = (all.first().copied().unwrap_or(0), to_i64(all.len()));
            is_whole &= (start..).zip(&all).all(|(at, &slot)| at == slot);
            queries.push(to_i64(first));
            starts.push(start);
            packed.push(n_seen);
            n_keys.push(n);
            first += one.len;
            n_seen += n;
            seen.extend(all);
        }
        queries.push(to_i64(first));
        starts.push(0);
        packed.push(n_seen);
        let numbers = |numbers: &[i64]| {
            let numbers = Tensor::f_from_slice(numbers)?.f_to_kind(Kind::Int)?;
            numbers.f_to_device(device)
        };
        let gathered = || Tensor::f_from_slice(&seen)?.f_to_device(device);
        let most_queries = rows.iter().map(|one| one.len).max().unwrap_or(0);
        Ok(Self {
            gathered: (!is_whole).then(gathered).transpose()?,
            of: Sequences {
                queries: numbers(&queries)?,
                keys: numbers(if is_whole { &starts } else { &packed })?,
                n_keys: numbers(&n_keys)?,
                most_queries: to_i64(most_queries),
                most_keys: n_keys.iter().copied().max().unwrap_or(0),
            },
            window: window.map(to_i64),
        })
    }
}

// === impl Singles ===

impl Singles {
    /// Puts the pasts of single rows side by side. `None` if a sequence has several rows, if there is one row only, or if the
    /// pasts are too long.
    fn new(rows: &[NewRows], width: usize, device: Device) -> Result<Option<Self>> {
        let longest = rows.iter().map(NewRows::n_past).max().unwrap_or(0);
        let (longest, most) = match device {
            Device::Cpu => (longest, MAX_GATHERED),
            _ => (longest.next_multiple_of(MASK_ALIGNMENT), MAX_GATHERED_GPU),
        };
        let size = rows.len().saturating_mul(longest).saturating_mul(width);
        if rows.len() < 2 || rows.iter().any(|row| row.len != 1) || size > most {
            return Ok(None);
        }
        let (mut slots, mut mask) = (Vec::new(), Vec::new());
        for one in rows {
            let filled = longest - one.n_past();
            slots.extend(one.past.iter().flat_map(slots_of));
            slots.extend(std::iter::repeat_n(0, filled));
            mask.extend(std::iter::repeat_n(0.0, one.n_past()));
            mask.extend(std::iter::repeat_n(f32::NEG_INFINITY, filled));
        }
        let (n, longest) = (to_i64(rows.len()), to_i64(longest));
        let mask = Tensor::f_from_slice(&mask)?.f_view([n, 1, 1, longest])?;
        Ok(Some(Self {
            slots: Tensor::f_from_slice(&slots)?.f_to_device(device)?,
            mask: mask.f_to_device(device)?,
            longest,
        }))
    }
}

// === impl SequenceSpan ===

impl SequenceSpan {
    fn each(
        rows: Vec<NewRows>,
        slots: &[usize],
        window: Option<usize>,
        device: Device,
    ) -> Result<Vec<Self>> {
        let mut row = 0;
        let span = |rows: NewRows| {
            let first = row;
            row += rows.len;
            let own = slots.get(first..row).unwrap_or_default();
            Ok(Self {
                row: to_i64(first),
                len: to_i64(rows.len),
                past: Past::of(rows, own, window, device)?,
            })
        };
        rows.into_iter().map(span).collect()
    }
}

// === impl NewRows ===

impl NewRows {
    fn n_past(&self) -> usize {
        self.past.iter().map(|run| run.len).sum()
    }

    fn forget(&mut self, window: Option<usize>) {
        let Some(window) = window else {
            return;
        };
        // A single row is itself among its past.
        let seen = if self.len == 1 { window } else { window - 1 };
        let mut unseen = self.n_past().saturating_sub(seen);
        self.past.retain_mut(|run| {
            let n = unseen.min(run.len);
            unseen -= n;
            run.start += n;
            run.len -= n;
            run.len > 0
        });
    }
}

// === impl Past ===

impl Past {
    /// The positions that rows attend to, which are written to the slots `own`.
    fn of(rows: NewRows, own: &[usize], window: Option<usize>, device: Device) -> Result<Self> {
        let n_past = rows.n_past();
        if let Some(window) = window
            && rows.len > 1
            && n_past + rows.len > window
        {
            let slots = rows.past.iter().flat_map(slots_of);
            let slots = slots.chain(own.iter().copied().map(to_i64)).collect();
            return Self::newest(slots, n_past, window, device);
        }
        if rows.past.len() <= MAX_RUNS {
            return Ok(Self::Runs(rows.past));
        }
        let slots: Vec<i64> = rows.past.iter().flat_map(slots_of).collect();
        Ok(Self::Scattered(
            Tensor::f_from_slice(&slots)?.f_to_device(device)?,
        ))
    }

    /// `slots` has those of `n_past` positions, and then those of the rows.
    fn newest(mut slots: Vec<i64>, n_past: usize, window: usize, device: Device) -> Result<Self> {
        let n = slots.len();
        if device != Device::Cpu {
            slots.resize(n.next_multiple_of(MASK_ALIGNMENT), 0);
        }
        // Padding comes after all rows, so no row attends to it.
        let seen = Tensor::f_arange(to_i64(slots.len()), (Kind::Int64, device))?;
        let rows = seen.f_narrow(0, to_i64(n_past), to_i64(n - n_past))?;
        let mask = window::of_newest(&rows, &seen, window, Kind::Float)?;
        Ok(Self::Newest {
            slots: Tensor::f_from_slice(&slots)?.f_to_device(device)?,
            mask: mask.f_unsqueeze(0)?.f_unsqueeze(0)?,
        })
    }
}

fn slots_of(run: &PositionRun) -> impl Iterator<Item = i64> + use<> {
    (run.start..run.start + run.len).map(to_i64)
}
