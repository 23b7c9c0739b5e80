use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::tests::positions;

fn ids(n: usize) -> Vec<u32> {
    (0..n).map(|i| u32::try_from(i).unwrap()).collect()
}

/// Makes a table as if a sequence had been computed up to `n`.
fn computed(blocks: &mut BlockManager, key: WeightsKey, ids: &[u32]) -> PageTable {
    let mut table = blocks.begin(key, ids);
    assert!(blocks.reserve(&mut table, ids.len()));
    blocks.publish(&mut table, ids, ids.len());
    table
}

#[test]
fn a_running_sequence_shares_its_full_pages() {
    let mut blocks = BlockManager::new(20);
    let first = computed(&mut blocks, 0, &ids(40));
    let second = blocks.begin(0, &ids(50));
    assert_eq!(second.n_known(), 32, "two full pages of 40");
    assert_eq!(second.pages, first.pages[..2]);
    assert_eq!(blocks.begin(1, &ids(50)).n_known(), 0, "other weights");
    let exact = blocks.begin(0, &ids(32));
    assert_eq!(exact.n_known(), 16, "the last id is run to get logits");
    let mut other = ids(50);
    other[20] = 999;
    assert_eq!(blocks.begin(0, &other).n_known(), 16);
}

/// Makes a table as [`computed`] does, of a model with states, in two steps.
fn computed_with_states(blocks: &mut BlockManager, ids: &[u32]) -> PageTable {
    let mut table = blocks.begin(0, ids);
    let middle = ids.len() / 2;
    for to in [middle.max(table.n_known()), ids.len()] {
        let step = (table.n_known(), to);
        assert!(blocks.reserve(&mut table, to));
        assert!(blocks.reserve_states(&mut table, step, ids.len()));
        blocks.stepped(&mut table, to, ids.len());
        blocks.publish(&mut table, ids, to);
    }
    table
}

#[test]
fn a_sequence_goes_on_from_the_last_page_with_a_state() {
    let mut blocks = BlockManager::new(200).with_states(20);
    let first = computed_with_states(&mut blocks, &ids(104));
    let states = first.states(104);
    blocks.release(first);
    // The next turn may not have the last 8 positions of a prompt, so the state is of the last page before them.
    let next = blocks.begin(0, &ids(120));
    assert_eq!(next.n_known(), 96, "the state of the prompt's last page");
    assert_ne!(
        next.states(96).from,
        states.from,
        "one of 96 positions, not of 104"
    );
    blocks.release(next);
    let mut other = ids(120);
    other[70] = 999;
    let parted = computed_with_states(&mut blocks, &other);
    blocks.release(parted);
    other[70] = 998;
    assert_eq!(
        blocks.begin(0, &other).n_known(),
        64,
        "where two have parted"
    );
    while blocks.tree.evict_state() {}
    assert_eq!(
        blocks.begin(0, &other).n_known(),
        0,
        "pages alone are not enough"
    );
}

#[test]
fn what_is_computed_twice_is_kept_once() {
    let mut blocks = BlockManager::new(20);
    let mut second = blocks.begin(0, &ids(40));
    assert!(blocks.reserve(&mut second, 40));
    let first = computed(&mut blocks, 0, &ids(40));
    assert_eq!(blocks.n_available(), 20 - 6);
    blocks.publish(&mut second, &ids(40), 40);
    assert_eq!(second.pages[..2], first.pages[..2]);
    assert_eq!(blocks.n_available(), 20 - 4, "two shared, a tail each");
}

#[test]
fn a_prompt_in_prefill_takes_over_what_another_computed() {
    let mut blocks = BlockManager::new(20);
    let mut second = blocks.begin(0, &ids(80));
    assert!(blocks.reserve(&mut second, 20));
    let _first = computed(&mut blocks, 0, &ids(70));
    blocks.adopt(&mut second, &ids(80));
    assert_eq!((second.n_known(), second.n_pages()), (64, 4));
    assert_eq!(blocks.n_available(), 20 - 5);
}

#[test]
fn the_least_recently_used_end_goes_first_and_never_what_is_held() {
    let mut blocks = BlockManager::new(8);
    let old = computed(&mut blocks, 0, &ids(48));
    let new = computed(&mut blocks, 1, &ids(48));
    blocks.release(old);
    blocks.release(new);
    assert_eq!(blocks.n_available(), 8);
    // A request continues the older one, so it holds that before it makes room.
    let mut table = blocks.begin(0, &ids(100));
    assert_eq!(table.n_known(), 48);
    assert!(blocks.reserve(&mut table, 100));
    assert_eq!(table.n_known(), 48);
    assert_eq!(blocks.begin(1, &ids(48)).n_known(), 16, "its end went");
    let mut more = blocks.begin(0, &ids(200));
    assert!(!blocks.reserve(&mut more, 200), "all else is held");
}

#[test]
fn runs_join_neighbouring_pages() {
    let mut blocks = BlockManager::new(100);
    let mut first = blocks.begin(0, &ids(40));
    assert!(blocks.reserve(&mut first, 40));
    assert_eq!(first.runs(37), [positions(0, 37)]);
    first.pages[2] = 9;
    assert_eq!(first.runs(37), [positions(0, 32), positions(144, 5)]);
    assert_eq!((first.slot(31), first.slot(33)), (Some(31), Some(145)));
    assert_eq!(first.slot(48), None);
}

#[derive(Debug, Clone)]
enum Step {
    /// A prompt with this stem and length begins.
    Begin(u32, usize),
    /// A sequence computes so many positions.
    Run(usize, usize),
    End(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3_u32, 1..120_usize).prop_map(|(stem, n)| Step::Begin(stem, n)),
        (0..8_usize, 1..40_usize).prop_map(|(at, n)| Step::Run(at, n)),
        (0..8_usize, 1..40_usize).prop_map(|(at, n)| Step::Run(at, n)),
        (0..8_usize).prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..120)
}

/// Checks that every page is free, in the tree, or private to one table, and that holders of a node are counted
/// correctly.
fn check(blocks: &BlockManager, live: &[(PageTable, Vec<u32>, usize)]) {
    let private: usize = live.iter().map(|(t, ..)| t.pages.len() - t.n_shared).sum();
    let shared = live.iter().flat_map(|(t, ..)| &t.pages[..t.n_shared]);
    let mut all: BTreeSet<usize> = shared.copied().collect();
    let n_held = private + all.len();
    assert_eq!(blocks.n_available() + n_held, blocks.n_pages());
    all.extend(live.iter().flat_map(|(t, ..)| &t.pages[t.n_shared..]));
    assert_eq!(all.len(), n_held, "a private page has one holder");
}

proptest! {
    #[test]
    fn pages_and_states_are_counted_whatever_happens(steps in steps(), n_states in 0..12_usize) {
        let mut blocks = BlockManager::new(16).with_states(n_states);
        let mut live: Vec<(PageTable, Vec<u32>, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Begin(stem, n) => {
                    let ids: Vec<u32> = (0..n).map(|i| stem * u32::from(i > 20)).collect();
                    let table = blocks.begin(0, &ids);
                    let cached = table.n_known();
                    prop_assert!(cached < n);
                    live.push((table, ids, cached));
                }
                Step::Run(at, n) if at < live.len() => {
                    let (table, ids, cached) = &mut live[at];
                    blocks.adopt(table, ids);
                    *cached = table.n_known().max(*cached);
                    let to = ids.len().min(*cached + n);
                    let step = (*cached, to);
                    if to > *cached
                        && blocks.reserve(table, to)
                        && blocks.reserve_states(table, step, ids.len())
                    {
                        *cached = to;
                        blocks.stepped(table, to, ids.len());
                        blocks.publish(table, ids, to);
                    }
                }
                Step::End(at) if at < live.len() => blocks.release(live.swap_remove(at).0),
                Step::Run(..) | Step::End(_) => {}
            }
            check(&blocks, &live);
        }
        for (table, ..) in live {
            blocks.release(table);
        }
        prop_assert_eq!(blocks.n_available(), 16);
        while blocks.tree.evict_state() {}
        let free = blocks.states.iter().flat_map(|it| std::iter::from_fn(|| it.take()));
        prop_assert_eq!(free.collect::<Vec<_>>().len(), n_states);
    }
}
