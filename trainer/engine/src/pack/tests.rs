use proptest::prelude::*;

use super::*;

fn rows_of(samples: &[Vec<i64>], tree: usize, row: usize) -> Vec<Row> {
    let samples: Vec<(usize, &[i64])> = samples.iter().map(Vec::as_slice).enumerate().collect();
    pack(&samples, tree, row)
}

fn chosen(rows: &[Row]) -> Vec<Vec<usize>> {
    let of_row = |row: &Row| row.branches.iter().map(|branch| branch.sample).collect();
    rows.iter().map(of_row).collect()
}

#[test]
fn short_ones_share_a_row_and_long_ones_stand_alone() {
    let apart = |first: i64, n: i64| (first..first + n).collect::<Vec<i64>>();
    let samples = [apart(100, 3), apart(200, 9), apart(300, 4), apart(400, 2)];
    let rows = rows_of(&samples, 8, 8);
    assert_eq!(chosen(&rows), [vec![1], vec![2, 0], vec![3]]);
}

#[test]
fn a_session_is_one_sequence_and_a_rewritten_turn_a_branch() {
    let turns = [vec![1, 2, 3], vec![1, 2, 3, 4, 5], vec![1, 2, 9, 9]];
    let rows = rows_of(&turns, 64, 64);
    assert_eq!(chosen(&rows), [vec![0, 1, 2]]);
    let row = &rows[0];
    assert_eq!(row.len(), 7);
    let places: Vec<Vec<usize>> = row.branches.iter().map(|b| b.places().collect()).collect();
    let wanted = [vec![0, 1, 2], vec![0, 1, 2, 3, 4], vec![0, 1, 5, 6]];
    assert_eq!(places, wanted);
}

#[test]
fn a_tree_over_its_limit_goes_on_in_a_row_of_its_own() {
    let group: Vec<Vec<i64>> = (0..4).map(|i| vec![1, 2, 3, 4, 10 + i, 20, 30]).collect();
    let lengths: Vec<usize> = rows_of(&group, 12, 12).iter().map(Row::len).collect();
    // Two replies of three ids per prompt of four.
    assert_eq!(lengths, [10, 10]);
}

#[test]
fn a_few_ids_in_common_join_nothing() {
    let turn = |salt: i64| [vec![1, 2], (0..30).map(|i| salt + i).collect()].concat();
    let rows = rows_of(&[turn(100), turn(200)], 64, 32);
    assert_eq!(chosen(&rows), [vec![0], vec![1]]);
}

fn conversation() -> impl Strategy<Value = Vec<Vec<i64>>> {
    // There are only two ids, so that beginnings are often shared, sometimes completely.
    prop::collection::vec(prop::collection::vec(0i64..2, 1..20), 0..12)
}

proptest! {
    #[test]
    fn every_position_has_a_place_that_holds_its_id(
        samples in conversation(), tree in 1usize..40, row in 1usize..40,
    ) {
        let rows = rows_of(&samples, tree, row);
        let mut seen = vec![0; samples.len()];
        for row in &rows {
            let mut ids = Vec::new();
            for (sample, positions) in row.contents() {
                ids.extend_from_slice(&samples[sample][positions]);
            }
            prop_assert_eq!(ids.len(), row.len());
            for branch in &row.branches {
                let found: Vec<i64> = branch.places().map(|place| ids[place]).collect();
                prop_assert_eq!(&found, &samples[branch.sample]);
                prop_assert!(branch.places().is_sorted());
                seen[branch.sample] += 1;
            }
        }
        prop_assert!(seen.iter().all(|&n| n == 1));
    }

    /// The list of keys of a chunk relies on this.
    #[test]
    fn earlier_ancestors_are_the_first_ancestors_of_the_place_before(
        samples in conversation(), tree in 1usize..80, at in 0usize..40,
    ) {
        for row in rows_of(&samples, tree, 80) {
            let above = |place: usize| -> Vec<usize> {
                let has = |b: &&Branch| (b.own.start..b.own.end()).contains(&place);
                let branch = row.branches.iter().find(has).unwrap();
                branch.places().take_while(|&p| p < place).collect()
            };
            let at = at.min(row.len() - 1);
            let first = above(at);
            for later in at..row.len() {
                let earlier: Vec<usize> = above(later).into_iter().filter(|&p| p < at).collect();
                prop_assert_eq!(&earlier[..], &first[..earlier.len()]);
            }
        }
    }
}
