//! Which samples are computed together, and what of them is computed once.
//!
//! Samples that begin with the same ids are a tree: the shared ids stand in a row once, and each sample adds
//! what it does not share. A session is one sequence then (each turn's prompt is the last one's sequence and
//! more), a group of replies has one prompt, and a history that was rewritten is shared up to the first
//! difference. A position sees its ancestors and itself, and angles go on from the branch, so a row computes what
//! each sample alone would. Small trees share a row, each blind to the others; no padding is ever computed.
//!
//! The plan depends on ids and sizes alone, never on time: the same batch gives the same sums in the same
//! order, and so the same bits, on every run.

/// Consecutive places of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceSpan {
    pub start: usize,
    pub len: usize,
}

/// The place of a sample's positions in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    pub sample: usize,
    /// Places of its first positions, which samples before it in the row have as well.
    pub shared: Vec<PlaceSpan>,
    /// Places of the rest, which may be none.
    pub own: PlaceSpan,
}

/// Samples that are computed together.
///
/// Branches lie in depth-first order, one after the other. So the ancestors of a place that lie before
/// another place `a` are the first ones of `a`'s own ancestors: this is what lets a chunk of places share one
/// list of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// The branches in the order of their places, without gaps.
    pub branches: Vec<Branch>,
}

/// A sample joins a tree when it shares at least one position in so many with it. For less, the row would grow
/// (and with it the memory of a step) for nothing: most chats begin with the same few ids.
const WORTH_SHARING: usize = 8;

/// Lays samples, given by number and ids, out in rows. A tree has at most `tree` places and a row of several trees at most `row`, unless a single
/// sample is longer.
///
/// Samples are sorted by their ids, so that each shares most with its neighbours; then first fit, largest tree
/// first, which needs at most 11/9 of the fewest rows possible.
pub fn pack(samples: &[(usize, &[i64])], tree: usize, row: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut grown = trees(samples, tree);
    grown.sort_by_key(|tree| std::cmp::Reverse(tree.len()));
    for tree in grown {
        match rows.iter_mut().find(|r| r.len() + tree.len() <= row) {
            Some(found) => found.append(tree),
            None => rows.push(tree),
        }
    }
    rows
}

fn trees(samples: &[(usize, &[i64])], limit: usize) -> Vec<Row> {
    let mut sorted = samples.to_vec();
    sorted.sort_by_key(|&(sample, ids)| (ids, sample));
    let mut trees: Vec<Row> = Vec::new();
    let mut before: &[i64] = &[];
    for (sample, ids) in sorted {
        let shared = before.iter().zip(ids).take_while(|(a, b)| a == b).count();
        let added = ids.len() - shared;
        before = ids;
        match trees.last_mut() {
            Some(tree) if shared * WORTH_SHARING >= ids.len() && tree.len() + added <= limit => {
                tree.grow(sample, shared, added);
            }
            Some(_) | None => {
                let mut tree = Row::default();
                tree.grow(sample, 0, ids.len());
                trees.push(tree);
            }
        }
    }
    trees
}

// === impl PlaceSpan ===

impl PlaceSpan {
    /// The place after the last.
    pub fn end(self) -> usize {
        self.start + self.len
    }

    /// The part of the span within `from` and `to`; may be empty.
    #[must_use]
    pub fn clip(self, from: usize, to: usize) -> Self {
        let start = self.start.clamp(from, to);
        let len = self.end().clamp(start, to) - start;
        Self { start, len }
    }
}

/// Adds a span to a list, joined to the last one where that ends at its start; an empty one not at all.
pub(crate) fn push(spans: &mut Vec<PlaceSpan>, span: PlaceSpan) {
    match spans.last_mut() {
        _ if span.len == 0 => {}
        Some(last) if last.end() == span.start => last.len += span.len,
        Some(_) | None => spans.push(span),
    }
}

// === impl Branch ===

impl Branch {
    /// How many of the positions are in the row already.
    pub fn n_shared(&self) -> usize {
        self.shared.iter().map(|span| span.len).sum()
    }

    /// Places of all positions, in order.
    pub fn places(&self) -> impl Iterator<Item = usize> {
        let spans = self.shared.iter().chain([&self.own]);
        spans.flat_map(|span| span.start..span.end())
    }
}

// === impl Row ===

impl Row {
    pub fn len(&self) -> usize {
        self.branches.last().map_or(0, |last| last.own.end())
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For each place of every branch, its sample and the position in the sample.
    pub fn contents(&self) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        self.branches.iter().map(|branch| {
            let first = branch.n_shared();
            (branch.sample, first..first + branch.own.len)
        })
    }

    /// Adds a sample whose first `shared` positions are those of the last one.
    fn grow(&mut self, sample: usize, shared: usize, added: usize) {
        let mut above = Vec::new();
        let mut left = shared;
        let last = self.branches.last().into_iter();
        for span in last.flat_map(|last| last.shared.iter().chain([&last.own])) {
            let len = left.min(span.len);
            push(&mut above, PlaceSpan { len, ..*span });
            left -= len;
        }
        let own = PlaceSpan {
            start: self.len(),
            len: added,
        };
        self.branches.push(Branch {
            sample,
            shared: above,
            own,
        });
    }

    fn append(&mut self, other: Self) {
        let by = self.len();
        for mut branch in other.branches {
            for span in branch.shared.iter_mut().chain([&mut branch.own]) {
                span.start += by;
            }
            self.branches.push(branch);
        }
    }
}

/// Lengths are bounded by the context, far below the limit of the type.
pub(crate) fn to_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
