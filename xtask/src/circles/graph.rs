//! Finds circles in a graph.

use std::collections::{BTreeSet, VecDeque};

use super::imports::Arrows;

/// Returns for each file in a circle a shortest circle through it; each once, the shortest first.
pub(super) fn circles(n_files: usize, arrows: &Arrows) -> Vec<Vec<usize>> {
    let circles: BTreeSet<(usize, Vec<usize>)> = (0..n_files)
        .filter_map(|file| shortest(file, n_files, arrows))
        .map(|circle| (circle.len(), from_its_least(circle)))
        .collect();
    circles.into_iter().map(|(_, circle)| circle).collect()
}

fn shortest(start: usize, n_files: usize, arrows: &Arrows) -> Option<Vec<usize>> {
    let mut came_from = vec![None; n_files];
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for (_, next) in arrows
            .range((file, 0)..(file + 1, 0))
            .map(|(ends, _)| *ends)
        {
            if next == start {
                let way = std::iter::successors(Some(file), |at| came_from[*at]);
                let mut circle: Vec<usize> = way.collect();
                circle.reverse();
                return Some(circle);
            }
            if came_from[next].is_none() {
                came_from[next] = Some(file);
                queue.push_back(next);
            }
        }
    }
    None
}

/// Returns the same circle from its first file, so that duplicates are recognised.
fn from_its_least(mut circle: Vec<usize>) -> Vec<usize> {
    let least = circle.iter().enumerate().min_by_key(|(_, file)| **file);
    let at = least.map_or(0, |(at, _)| at);
    circle.rotate_left(at);
    circle
}
