//! A row, cut into chunks of places that are computed at once, and what each chunk sees.
//!
//! A chunk attends to its ancestors, which are gathered into one list of keys, and to itself. If a row is a plain chain,
//! its ancestors are in one piece and need no copy.
//!
//! Attention usually has no mask. It is computed branch by branch: each branch attends to whole stretches of keys, and to
//! itself by the causal triangle, so that no score is computed which a mask would hide. A mask is used in two cases: in
//! layers with a sliding window, and on a CPU if a mask would hide little. It is as wide as the chunk's list of keys, so a
//! mask over the square of a row never exists.

use tch::{Device, Kind, Tensor};

use super::net::{self, NetChunk};
use super::sizes::SliceSizes;
use crate::aten::Part;
use crate::attention::window;
use crate::by_layer::ByLayer;
use crate::model::Model;
use crate::pack::{PlaceSpan, Row, push, to_i64};
use crate::placement::PerDevice;
use crate::rope::RopeSlice;
use crate::torch::Result;

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) span: PlaceSpan,
    /// Which positions of their samples its places are.
    positions: Vec<i64>,
    pub(super) ropes: ByLayer<PerDevice<RopeSlice>>,
    /// Places before it that some place of it sees, in order.
    keys: Vec<PlaceSpan>,
    parts: Vec<BranchPart>,
    /// For gated delta nets, if the model has some.
    pub(super) net: Option<NetChunk>,
    /// As [`SliceSizes::as_gpu`].
    as_gpu: bool,
}

/// How the places of a chunk attend.
#[derive(Debug)]
pub(super) enum Sight {
    /// The chunk has so many samples of the same length, one after the other. Each place attends to those of its sample up to itself.
    Samples(i64),
    /// Each range of places attends to several ranges of keys.
    Parts(Vec<Part>),
    /// `[c, s]`: 0 where a place attends to another, else minus infinity.
    Mask(Tensor),
}

/// Consecutive places that see the same, and each those up to itself.
#[derive(Debug, PartialEq, Eq)]
struct BranchPart {
    /// Counted from the chunk's start.
    own: PlaceSpan,
    /// How many of the chunk's keys it sees: the first ones.
    n_keys: usize,
    /// Earlier places of the chunk that it sees, counted from its start.
    inside: Vec<PlaceSpan>,
}

/// Cuts a row evenly into chunks of `chunk_tokens` places, or up to a quarter more. For a row that is little longer than that, two chunks
/// took 1.4 times the processor time of one (SmolLM2, two cores, bf16, rows of 257).
///
/// # Errors
/// What libtorch refuses.
pub(super) fn cut(row: &Row, sizes: SliceSizes, model: &Model) -> Result<Vec<Chunk>> {
    let limit = sizes.chunk_tokens;
    let positions: Vec<i64> = row.contents().flat_map(|(_, at)| at.map(to_i64)).collect();
    let n = row.len().div_ceil((limit + limit / 4).max(1)).max(1);
    let edge = |i: usize| row.len() * i / n;
    let nets = model.config.delta.map(|net| (net.kernel, net::before(row)));
    let chunks = (0..n).map(|i| {
        let (start, len) = (edge(i), edge(i + 1) - edge(i));
        let span = PlaceSpan { start, len };
        let positions = positions[span.start..span.end()].to_vec();
        let here = Tensor::f_from_slice(&positions)?;
        let (keys, parts) = seen(row, span);
        let net = nets.as_ref();
        let net = net.map(|(kernel, before)| NetChunk::new(before, span, *kernel, model));
        Ok(Chunk {
            span,
            ropes: model.angles(&here.f_to_device(model.placement.first())?)?,
            positions,
            keys,
            parts,
            net: net.transpose()?,
            as_gpu: sizes.as_gpu,
        })
    });
    chunks.collect()
}

fn seen(row: &Row, chunk: PlaceSpan) -> (Vec<PlaceSpan>, Vec<BranchPart>) {
    let (from, to) = (chunk.start, chunk.end());
    let (mut keys, mut parts) = (Vec::new(), Vec::new());
    for branch in &row.branches {
        let own = branch.own.clip(from, to);
        if own.len == 0 {
            continue;
        }
        let (mut before, mut inside) = (Vec::new(), Vec::new());
        for span in branch.shared.iter().chain([&branch.own]) {
            push(&mut before, span.clip(0, from));
            push(&mut inside, span.clip(from, own.start));
        }
        let n_keys = before.iter().map(|span| span.len).sum();
        if parts.is_empty() {
            keys = before;
        }
        let within = |span: PlaceSpan| PlaceSpan {
            start: span.start - from,
            ..span
        };
        let part = BranchPart {
            own: within(own),
            n_keys,
            inside: inside.into_iter().map(within).collect(),
        };
        match parts.last_mut() {
            Some(last) if part.goes_on(last) => last.own.len += part.own.len,
            _ => parts.push(part),
        }
    }
    (keys, parts)
}

// === impl BranchPart ===

impl BranchPart {
    /// Whether it sees all that `before` sees, and all of `before`, as a turn sees the one before it.
    fn goes_on(&self, before: &Self) -> bool {
        let mut all = before.inside.clone();
        push(&mut all, before.own);
        self.n_keys == before.n_keys && self.inside == all
    }

    /// Its attention: all its places to the keys that all of them see, and then to one another by the causal triangle.
    fn attention(&self, n_keys: usize) -> impl Iterator<Item = Part> {
        let before = PlaceSpan {
            start: 0,
            len: self.n_keys,
        };
        let inside = self.inside.iter().map(move |span| PlaceSpan {
            start: n_keys + span.start,
            ..*span
        });
        let own = PlaceSpan {
            start: n_keys + self.own.start,
            ..self.own
        };
        let all = std::iter::once(before)
            .chain(inside)
            .filter(|span| span.len > 0);
        let all = all.map(|span| (span, 0)).chain([(own, 1)]);
        all.map(|(keys, causal)| Part {
            q: to_i64(self.own.start),
            n_q: to_i64(self.own.len),
            k: to_i64(keys.start),
            n_k: to_i64(keys.len),
            causal,
        })
    }
}

// === impl Chunk ===

impl Chunk {
    /// The chunk's places of a whole row's tensor along `axis`; a view.
    pub(super) fn of(&self, row: &Tensor, axis: i64) -> Result<Tensor> {
        row.f_narrow(axis, to_i64(self.span.start), to_i64(self.span.len))
    }

    /// The spans of the chunk's keys in a row, the chunk itself last.
    pub(super) fn visible(&self) -> Vec<PlaceSpan> {
        let mut spans = self.keys.clone();
        push(&mut spans, self.span);
        spans
    }

    /// The keys or values that the chunk sees, `[1, heads, t, e]` to `[1, heads, s, e]`. The result is a view if they
    /// are in one piece.
    pub(super) fn gather(&self, row: &Tensor) -> Result<Tensor> {
        let spans = self.visible();
        let parts = spans
            .iter()
            .map(|span| row.f_narrow(2, to_i64(span.start), to_i64(span.len)));
        match parts.collect::<Result<Vec<_>, _>>()?.as_slice() {
            [one] => Ok(one.shallow_clone()),
            parts => Tensor::f_cat(parts, 2),
        }
    }

    /// How its places attend in a layer: to the `window` newest positions of their sample, or to all of them without a window.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(super) fn sight(
        &self,
        window: Option<usize>,
        model: &Model,
        device: Device,
    ) -> Result<Sight> {
        let newest = self.positions.iter().max().map_or(0, |&last| last + 1);
        if let Some(window) = window.filter(|&window| to_i64(window) < newest) {
            return self.mask(window, model.kind, device).map(Sight::Mask);
        }
        let n_keys = self.n_keys();
        let lengths = || self.parts.iter().map(|part| part.own.len);
        let are_roots = self
            .parts
            .iter()
            .all(|part| part.n_keys == 0 && part.inside.is_empty());
        if n_keys == 0 && are_roots && lengths().all(|len| Some(len) == lengths().next()) {
            return Ok(Sight::Samples(to_i64(self.parts.len())));
        }
        let parts = self.parts.iter().flat_map(|part| part.attention(n_keys));
        let parts: Vec<Part> = parts.collect();
        let n_scores: i64 = parts.iter().map(Part::n_scores).sum();
        let (c, width) = (to_i64(self.span.len), to_i64(n_keys + self.span.len));
        // On a CPU, attention in parts took 1.0 to 1.7 times as long as with a mask if it computes three quarters of the scores, and 0.2
        // times as long if it computes an eighth.
        let is_worth_it = self.as_gpu || 2 * n_scores <= c * width;
        if is_worth_it && model.has_parts {
            return Ok(Sight::Parts(parts));
        }
        self.mask_of_all(model.kind, device).map(Sight::Mask)
    }

    fn mask(&self, window: usize, kind: Kind, device: Device) -> Result<Tensor> {
        let mask = self.mask_of_all(kind, device)?;
        // A branch's ancestors are all positions before it: those among the keys are the first ones, in order.
        let seen: Vec<i64> = (0..to_i64(self.n_keys()))
            .chain(self.positions.iter().copied())
            .collect();
        let seen = Tensor::f_from_slice(&seen)?.f_to_device(device)?;
        let own = seen.f_narrow(0, to_i64(self.n_keys()), to_i64(self.span.len))?;
        let hidden = window::too_far(&own, &seen, window)?;
        mask.f_masked_fill(&hidden, f64::NEG_INFINITY)
    }

    fn mask_of_all(&self, kind: Kind, device: Device) -> Result<Tensor> {
        let (c, n_keys) = (self.span.len, self.n_keys());
        let blocked = |rows: usize, columns: usize| {
            let shape = [to_i64(rows), to_i64(columns)];
            Tensor::f_full(shape, f64::NEG_INFINITY, (kind, device))
        };
        let mask = blocked(c, n_keys + c)?;
        for part in &self.parts {
            let rows = mask.f_narrow(0, to_i64(part.own.start), to_i64(part.own.len))?;
            let block = |start: usize, len: usize| rows.f_narrow(1, to_i64(start), to_i64(len));
            let _ = block(0, part.n_keys)?.f_zero_()?;
            for span in &part.inside {
                let _ = block(n_keys + span.start, span.len)?.f_zero_()?;
            }
            let triangle = blocked(part.own.len, part.own.len)?.f_triu(1)?;
            block(n_keys + part.own.start, part.own.len)?.f_copy_(&triangle)?;
        }
        Ok(mask)
    }

    /// How many places [`Chunk::gather`] copies because they are not in one piece.
    pub(super) fn n_copied(&self) -> usize {
        match self.visible().as_slice() {
            [_] => 0,
            spans => spans.iter().map(|span| span.len).sum(),
        }
    }

    fn n_keys(&self) -> usize {
        self.keys.iter().map(|span| span.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::pack;
    use crate::testing::tiny_config;
    use crate::tests::make_model;

    fn sees(row: &Row, sizes: SliceSizes, window: Option<usize>, model: &Model) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for chunk in cut(row, sizes, model).unwrap() {
            let keys: Vec<usize> = chunk
                .visible()
                .iter()
                .flat_map(|span| span.start..span.end())
                .collect();
            let c = chunk.span.len;
            let mut sees = vec![vec![false; keys.len()]; c];
            match chunk.sight(window, model, Device::Cpu).unwrap() {
                Sight::Samples(n) => {
                    assert_eq!(keys.len(), c);
                    let len = c / usize::try_from(n).unwrap();
                    (0..c).for_each(|i| sees[i][i / len * len..=i].fill(true));
                }
                Sight::Parts(parts) => {
                    for part in parts {
                        let [q, n_q, k, n_k] = [part.q, part.n_q, part.k, part.n_k]
                            .map(|n| usize::try_from(n).unwrap());
                        for i in 0..n_q {
                            let n = if part.causal == 1 { i + 1 } else { n_k };
                            sees[q + i][k..k + n].fill(true);
                        }
                    }
                }
                Sight::Mask(mask) => {
                    assert!(window.is_some() || !sizes.as_gpu, "a mask without a window");
                    for (i, row) in sees.iter_mut().enumerate() {
                        for (j, open) in row.iter_mut().enumerate() {
                            *open = mask.double_value(&[to_i64(i), to_i64(j)]) == 0.0;
                        }
                    }
                }
            }
            for row in sees {
                all.push(
                    (0..keys.len())
                        .filter(|&j| row[j])
                        .map(|j| keys[j])
                        .collect(),
                );
            }
        }
        all
    }

    #[test]
    fn a_place_sees_its_ancestors_and_itself_however_the_row_is_cut() {
        let model = make_model(&tiny_config());
        let first: [&[i64]; 3] = [
            &[1, 2, 3, 4, 5, 6],
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[1, 2, 9, 9, 9],
        ];
        let samples = first
            .into_iter()
            .chain([&[1, 2, 9, 9, 8, 8][..], &[5, 5, 5], &[5, 5, 4]]);
        let numbered: Vec<(usize, &[i64])> = samples.enumerate().collect();
        for row in pack(&numbered, 64, 64) {
            for window in [None, Some(1), Some(3), Some(5), Some(8)] {
                let mut wanted = vec![Vec::new(); row.len()];
                for branch in &row.branches {
                    let path: Vec<usize> = branch.places().collect();
                    for (i, &place) in path.iter().enumerate() {
                        let first = window.map_or(0, |n: usize| (i + 1).saturating_sub(n));
                        wanted[place] = path[first..=i].to_vec();
                    }
                }
                for (chunk_tokens, as_gpu) in (1..=row.len()).flat_map(|n| [(n, false), (n, true)])
                {
                    let sizes = SliceSizes {
                        chunk_tokens,
                        as_gpu,
                        ..SliceSizes::default()
                    };
                    let found = sees(&row, sizes, window, &model);
                    assert_eq!(found, wanted, "{sizes:?}, window {window:?}");
                }
            }
        }
    }
}
