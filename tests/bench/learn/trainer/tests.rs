use super::*;

#[test]
fn calls_are_cut_by_what_is_scored() {
    let (long, short) = (vec![1; 3_000], vec![1; 10]);
    let pairs: [Pair<'_>; 4] = [
        (&long, &long),
        (&long, &short),
        (&short, &long),
        (&short, &short),
    ];
    let lengths: Vec<usize> = calls(&pairs).into_iter().map(<[_]>::len).collect();
    assert_eq!(lengths, [1, 3]);
    assert!(calls(&[]).is_empty());
}
