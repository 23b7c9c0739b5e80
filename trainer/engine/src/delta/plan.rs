//! Which positions of a batch go on from which, for the convolution and for the states.

use tch::{Device, Tensor};

use crate::pack::to_i64;
use crate::torch::Result;

/// Positions of a piece at most. More make the triangular system dearer, fewer the walk over states longer.
const MOST: usize = 64;

/// What the first position of a run goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// A past that is given: which of the states, and which of the tails.
    Past { state: usize, tail: usize },
    /// The end of an earlier run.
    Run(usize),
}

/// Consecutive positions, each of which goes on from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub len: usize,
    pub before: Before,
}

/// Which positions go on from which. Layers that are on one device share it.
#[derive(Debug)]
pub struct DeltaPlan {
    /// For each position of the kernel, the oldest first, the place among tails and positions that each position sees, `[t]`.
    taps: Vec<Tensor>,
    /// The places among tails and positions of the tails that are left, `[left * (kernel - 1)]`.
    tails: Tensor,
    /// The state that each single position goes on from, `[t]`.
    first: Tensor,
    /// `None` where all runs are single positions that go on from a past, and all are left.
    pieces: Option<Pieces>,
    /// In which slots of a pool the states are that runs go on from, and into which those are written that are left.
    pub(crate) slots: Option<[Tensor; 2]>,
}

/// Positions in pieces of one length; shorter ones are filled up.
#[derive(Debug)]
pub(super) struct Pieces {
    pub(super) len: i64,
    /// Which position each place of the pieces has, one beyond the last where it is filled up, `[n * len]`.
    pub(super) places: Tensor,
    /// In which place of the pieces each position is, `[t]`.
    pub(super) back: Tensor,
    /// How many pieces each level has.
    pub(super) sizes: Vec<i64>,
    pub(super) levels: Vec<Level>,
    /// The states that are left, by their place among those that the levels give, `[left]`.
    pub(super) order: Tensor,
}

/// Pieces whose parents are all on the level before.
#[derive(Debug)]
pub(super) struct Level {
    /// Which piece of the level before, or past, each goes on from.
    pub(super) parents: Tensor,
    /// Which of its pieces' ends are left.
    pub(super) left: Option<Tensor>,
}

// === impl DeltaPlan ===

impl DeltaPlan {
    /// The runs stand one after the other; `left` are those whose ends are left. There are `n_tails` pasts.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn new(
        runs: &[Run],
        left: &[usize],
        kernel: i64,
        n_tails: usize,
        device: Device,
    ) -> Result<Self> {
        let pieces = Pieces::new(runs, left, device)?;
        Self::of(runs, left, kernel, n_tails, (Some(pieces), device))
    }

    /// For sequences whose states are in slots of a pool, from which runs go on and into which the ends of `left` are written;
    /// inference only.
    ///
    /// # Errors
    /// What libtorch reports.
    pub(crate) fn in_slots(
        runs: &[Run],
        left: &[usize],
        kernel: i64,
        [from, to]: [&[i64]; 2],
        device: Device,
    ) -> Result<Self> {
        let are_single = runs
            .iter()
            .all(|run| run.len == 1 && matches!(run.before, Before::Past { .. }))
            && left.iter().copied().eq(0..runs.len());
        let pieces = (!are_single).then(|| Pieces::new(runs, left, device));
        let plan = Self::of(
            runs,
            left,
            kernel,
            from.len(),
            (pieces.transpose()?, device),
        )?;
        let tensor = |numbers: &[i64]| Tensor::f_from_slice(numbers)?.f_to_device(device);
        Ok(Self {
            slots: Some([tensor(from)?, tensor(to)?]),
            ..plan
        })
    }

    fn of(
        runs: &[Run],
        left: &[usize],
        kernel: i64,
        n_tails: usize,
        (pieces, device): (Option<Pieces>, Device),
    ) -> Result<Self> {
        let kernel = usize::try_from(kernel).unwrap_or(0);
        let places = Places::new(runs, kernel, n_tails);
        let tensor = |numbers: &[i64]| Tensor::f_from_slice(numbers)?.f_to_device(device);
        let taps = (0..kernel).rev().map(|back| {
            let each = runs.iter().enumerate();
            let seen = each.flat_map(|(i, run)| (0..run.len).map(move |at| (i, at)));
            let seen: Vec<i64> = seen.map(|(i, at)| places.seen(i, at, back)).collect();
            tensor(&seen)
        });
        let tails = left.iter().flat_map(|&run| {
            let end = runs.get(run).map_or(0, |run| run.len);
            let places = &places;
            // The last position itself is the newest.
            (0..kernel.saturating_sub(1))
                .rev()
                .map(move |back| places.seen(run, end.saturating_sub(1), back))
        });
        let tails: Vec<i64> = tails.collect();
        let first = runs.iter().map(|run| match run.before {
            Before::Past { state, .. } => to_i64(state),
            Before::Run(_) => 0,
        });
        let first: Vec<i64> = first.collect();
        Ok(Self {
            taps: taps.collect::<Result<_>>()?,
            tails: tensor(&tails)?,
            first: tensor(&first)?,
            pieces,
            slots: None,
        })
    }

    /// Copies the plan to `device`. A plan that is already there is shared.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn to_device(&self, device: Device) -> Result<Self> {
        let there = |t: &Tensor| t.f_to_device(device);
        let slots = self.slots.as_ref();
        let slots = slots.map(|[from, to]| -> Result<_> { Ok([there(from)?, there(to)?]) });
        Ok(Self {
            taps: self.taps.iter().map(there).collect::<Result<_>>()?,
            tails: there(&self.tails)?,
            first: there(&self.first)?,
            pieces: self
                .pieces
                .as_ref()
                .map(|it| it.to_device(device))
                .transpose()?,
            slots: slots.transpose()?,
        })
    }

    pub(super) fn taps(&self) -> &[Tensor] {
        &self.taps
    }

    pub(super) fn tails(&self) -> &Tensor {
        &self.tails
    }

    pub(super) fn first(&self) -> &Tensor {
        &self.first
    }

    pub(super) fn pieces(&self) -> Option<&Pieces> {
        self.pieces.as_ref()
    }
}

/// Where the inputs of the convolution are: the tails of all pasts, then all positions.
struct Places<'a> {
    runs: &'a [Run],
    /// The first position of each run.
    starts: Vec<usize>,
    n_tails: usize,
    /// Positions of a tail.
    width: usize,
}

// === impl Places ===

impl<'a> Places<'a> {
    fn new(runs: &'a [Run], kernel: usize, n_tails: usize) -> Self {
        let mut start = 0;
        let starts = runs.iter().map(|run| {
            let first = start;
            start += run.len;
            first
        });
        Self {
            starts: starts.collect(),
            runs,
            n_tails,
            width: kernel.saturating_sub(1),
        }
    }

    /// The place of what is `back` before a position of a run.
    fn seen(&self, run: usize, at: usize, back: usize) -> i64 {
        let (mut run, mut at, mut back) = (run, at, back);
        loop {
            if back <= at {
                let start = self.starts.get(run).copied().unwrap_or(0);
                return to_i64(self.n_tails * self.width + start + at - back);
            }
            back -= at + 1;
            match self.runs.get(run).map(|run| run.before) {
                Some(Before::Run(parent)) => {
                    run = parent;
                    let len = self.runs.get(run).map_or(1, |run| run.len);
                    at = len.saturating_sub(1);
                }
                Some(Before::Past { tail, .. }) => {
                    return to_i64(tail * self.width + self.width - 1 - back);
                }
                None => return 0,
            }
        }
    }
}

/// A piece before it has a place.
struct Piece {
    start: usize,
    len: usize,
    level: usize,
    /// A past, or the piece of the level before.
    parent: Parent,
}

enum Parent {
    Past(usize),
    Piece(usize),
}

// === impl Pieces ===

impl Pieces {
    fn new(runs: &[Run], left: &[usize], device: Device) -> Result<Self> {
        let (mut pieces, mut ends): (Vec<Piece>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut start = 0;
        for run in runs {
            let mut done = 0;
            while done < run.len {
                let len = MOST.min(run.len - done);
                let before = match (done, run.before) {
                    (0, Before::Run(parent)) => ends.get(parent).copied(),
                    (0, Before::Past { .. }) => None,
                    _ => pieces.len().checked_sub(1),
                };
                let (level, parent) = match (before, run.before) {
                    (Some(piece), _) => (pieces[piece].level + 1, Parent::Piece(piece)),
                    (None, Before::Past { state, .. }) => (0, Parent::Past(state)),
                    (None, Before::Run(_)) => (0, Parent::Past(0)),
                };
                pieces.push(Piece {
                    start: start + done,
                    len,
                    level,
                    parent,
                });
                done += len;
            }
            ends.push(pieces.len().saturating_sub(1));
            start += run.len;
        }
        let len = pieces.iter().map(|piece| piece.len).max().unwrap_or(1);
        let levels = pieces.iter().map(|piece| piece.level + 1);
        let n_levels = levels.max().unwrap_or(0);
        // The place of each piece within its level.
        let mut sizes = vec![0; n_levels];
        let mut within = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            within.push(sizes[piece.level]);
            sizes[piece.level] += 1;
        }
        let tensor = |numbers: &[i64]| Tensor::f_from_slice(numbers)?.f_to_device(device);
        let (mut places, mut back) = (Vec::new(), vec![0; start]);
        let (mut levels, mut order) = (Vec::with_capacity(n_levels), vec![0; left.len()]);
        let mut n_left = 0;
        for level in 0..n_levels {
            let of_level = || pieces.iter().filter(move |piece| piece.level == level);
            for piece in of_level() {
                let first = places.len();
                places.extend((piece.start..piece.start + piece.len).map(to_i64));
                places.resize(first + len, to_i64(start));
                let own = first..first + piece.len;
                let at = &mut back[piece.start..piece.start + piece.len];
                at.iter_mut()
                    .zip(own)
                    .for_each(|(at, place)| *at = to_i64(place));
            }
            let parents = of_level().map(|piece| match piece.parent {
                Parent::Past(state) => to_i64(state),
                Parent::Piece(piece) => within[piece],
            });
            let parents: Vec<i64> = parents.collect();
            let mut which = Vec::new();
            for (place, &run) in left.iter().enumerate() {
                let end = ends.get(run).copied().unwrap_or(0);
                if pieces[end].level == level {
                    which.push(within[end]);
                    order[place] = n_left;
                    n_left += 1;
                }
            }
            levels.push(Level {
                parents: tensor(&parents)?,
                left: (!which.is_empty()).then(|| tensor(&which)).transpose()?,
            });
        }
        Ok(Self {
            len: to_i64(len),
            places: tensor(&places)?,
            back: tensor(&back)?,
            sizes,
            levels,
            order: tensor(&order)?,
        })
    }

    fn to_device(&self, device: Device) -> Result<Self> {
        let there = |t: &Tensor| t.f_to_device(device);
        let levels = self.levels.iter().map(|level| {
            Ok(Level {
                parents: there(&level.parents)?,
                left: level.left.as_ref().map(there).transpose()?,
            })
        });
        Ok(Self {
            len: self.len,
            places: there(&self.places)?,
            back: there(&self.back)?,
            sizes: self.sizes.clone(),
            levels: levels.collect::<Result<_>>()?,
            order: there(&self.order)?,
        })
    }
}
