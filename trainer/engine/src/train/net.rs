//! Gated delta nets of a row, a chunk of places at a time.
//!
//! A chunk goes on from what earlier chunks have left at certain places: the place before a chunk's first, and every place at which
//! branches part. On the way down chunks come in the opposite order, and each takes the gradients by what it has left from those
//! that went on from it.

use std::collections::{BTreeMap, BTreeSet};

use tch::Tensor;

use crate::delta::{Before, DeltaNet, DeltaPast, DeltaPlan, Run};
use crate::model::Model;
use crate::pack::{PlaceSpan, Row};
use crate::placement::PerDevice;
use crate::torch::Result;

/// How the places of a chunk go on from one another, and from others.
#[derive(Debug)]
pub(super) struct NetChunk {
    pub(super) plan: PerDevice<DeltaPlan>,
    /// Places of earlier chunks that its runs go on from: the pasts of the plan after the first, which is that of a beginning.
    given: Vec<usize>,
    /// Places that later chunks go on from, as the plan leaves them.
    left: Vec<usize>,
}

/// State and tail after a place, or the gradients by them.
pub(super) type AtPlaces = BTreeMap<usize, [Tensor; 2]>;

/// What a chunk goes on from, and what it has left.
#[derive(Debug)]
pub(super) struct NetEdges {
    /// Variables; `None` without a graph, and where only beginnings are gone on from.
    pub(super) given: Option<[Tensor; 2]>,
    pub(super) left: DeltaPast,
}

/// The place before each place of a row in its sample.
pub(super) fn before(row: &Row) -> Vec<Option<usize>> {
    let mut all = Vec::with_capacity(row.len());
    for branch in &row.branches {
        if branch.own.len > 0 {
            let last = branch.shared.iter().rfind(|span| span.len > 0);
            all.push(last.map(|span| span.end() - 1));
            all.extend((branch.own.start + 1..branch.own.end()).map(|place| Some(place - 1)));
        }
    }
    all
}

// === impl NetChunk ===

impl NetChunk {
    /// The chunk `span` of a row whose places have those `before` them.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(super) fn new(
        before: &[Option<usize>],
        span: PlaceSpan,
        kernel: i64,
        model: &Model,
    ) -> Result<Self> {
        let (from, to) = (span.start, span.end());
        // Places after which something else than the next place goes on.
        let is_fork = |&(place, &last): &(usize, &Option<usize>)| {
            last.is_some_and(|last| last + 1 != place || last + 1 == to)
        };
        let forks = before.iter().enumerate().filter(is_fork);
        let forks: BTreeSet<usize> = forks.filter_map(|(_, &last)| last).collect();
        let (mut runs, mut given, mut ends) = (Vec::<Run>::new(), Vec::new(), BTreeMap::new());
        for place in from..to {
            let last = before.get(place).copied().flatten();
            let goes_on = |last: usize| last >= from && last + 1 == place && !forks.contains(&last);
            if let Some(run) = runs.last_mut()
                && last.is_some_and(goes_on)
            {
                run.len += 1;
            } else {
                let past = |at: usize| Before::Past {
                    state: at,
                    tail: at,
                };
                let before = match last {
                    None => past(0),
                    Some(last) => {
                        if let Some(&run) = ends.get(&last) {
                            Before::Run(run)
                        } else {
                            let known = given.iter().position(|&place| place == last);
                            let known = known.unwrap_or_else(|| {
                                given.push(last);
                                given.len() - 1
                            });
                            past(known + 1)
                        }
                    }
                };
                runs.push(Run { len: 1, before });
            }
            if forks.contains(&place) {
                ends.insert(place, runs.len() - 1);
            }
        }
        let after = before.iter().skip(to).flatten();
        let left: BTreeSet<usize> = after
            .copied()
            .filter(|last| (from..to).contains(last))
            .collect();
        let which: Vec<usize> = left
            .iter()
            .filter_map(|place| ends.get(place).copied())
            .collect();
        let n_tails = given.len() + 1;
        let plan = DeltaPlan::new(&runs, &which, kernel, n_tails, model.placement.first())?;
        Ok(Self {
            plan: model.placement.each(|device| plan.to_device(device))?,
            given,
            left: left.into_iter().collect(),
        })
    }

    /// What the chunk goes on from, in the order of its plan.
    pub(super) fn past(&self, net: &DeltaNet, known: &AtPlaces, x: &Tensor) -> Result<DeltaPast> {
        let beginning = net.beginning(x.device())?;
        let given = || self.given.iter().filter_map(|place| known.get(place));
        let mut states = vec![beginning.states];
        let mut tails = vec![beginning.tails];
        states.extend(given().map(|[state, _]| state.shallow_clone()));
        tails.extend(given().map(|[_, tail]| tail.shallow_clone()));
        Ok(DeltaPast {
            states: Tensor::f_cat(&states, 0)?,
            tails: Tensor::f_cat(&tails, 0)?,
        })
    }

    pub(super) fn has_given(&self) -> bool {
        !self.given.is_empty()
    }

    /// Notes what the chunk has left.
    pub(super) fn note(&self, left: &DeltaPast, known: &mut AtPlaces) -> Result<()> {
        let parts = each(&[&left.states, &left.tails], self.left.len())?;
        for (&place, [state, tail]) in self.left.iter().zip(parts) {
            known.insert(place, [state.f_detach()?, tail.f_detach()?]);
        }
        Ok(())
    }

    /// The gradients by what it has left, in the order of its plan; `None` where there is nothing.
    pub(super) fn gradients(&self, known: &mut AtPlaces) -> Result<Option<[Tensor; 2]>> {
        let found = self.left.iter().filter_map(|place| known.remove(place));
        let (states, tails): (Vec<_>, Vec<_>) = found.map(|[state, tail]| (state, tail)).unzip();
        if states.is_empty() {
            return Ok(None);
        }
        Ok(Some([
            Tensor::f_cat(&states, 0)?,
            Tensor::f_cat(&tails, 0)?,
        ]))
    }

    pub(super) fn add_gradients(&self, grads: &[Tensor; 2], known: &mut AtPlaces) -> Result<()> {
        // The first past is a beginning.
        let parts = each(&[&grads[0], &grads[1]], self.given.len() + 1)?;
        for (&place, grads) in self.given.iter().zip(parts.into_iter().skip(1)) {
            let sum = match known.remove(&place) {
                None => grads,
                Some([state, tail]) => [state.f_add(&grads[0])?, tail.f_add(&grads[1])?],
            };
            known.insert(place, sum);
        }
        Ok(())
    }
}

/// Cuts both tensors into `n` parts along their first axis.
fn each(both: &[&Tensor; 2], n: usize) -> Result<Vec<[Tensor; 2]>> {
    let n = i64::try_from(n).unwrap_or(i64::MAX);
    let part = |t: &Tensor, i: i64| {
        let size = t.size().first().copied().unwrap_or(0) / n.max(1);
        t.f_narrow(0, i * size, size)
    };
    (0..n)
        .map(|i| Ok([part(both[0], i)?, part(both[1], i)?]))
        .collect()
}
