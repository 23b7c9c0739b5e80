use super::*;

const LIMITS: Limits = Limits {
    vocab: 10,
    context: 4,
};

fn datum() -> TrainDatum {
    TrainDatum {
        input_ids: vec![1, 2, 3],
        target_ids: vec![2, 3, 4],
        targets_per_position: 1,
        weights: Some(vec![0.0, 1.0, 0.5]),
        ..TrainDatum::default()
    }
}

fn error(change: impl Fn(&mut TrainDatum), loss: Loss) -> String {
    let mut d = datum();
    change(&mut d);
    Sample::check_all(&[d], Some(&loss), LIMITS)
        .unwrap_err()
        .to_string()
}

#[test]
fn only_positions_with_a_loss_are_computed() {
    let loss = Loss::CrossEntropy;
    let samples = Sample::check_all(&[datum()], Some(&loss), LIMITS).unwrap();
    assert_eq!(samples[0].loss_positions(&loss), [false, true, true]);
}

#[test]
fn several_targets_share_a_position() {
    let d = TrainDatum {
        target_ids: vec![2, 3, 4, 5, 6, 7],
        targets_per_position: 2,
        weights: Some(vec![0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
        ..datum()
    };
    let loss = Loss::CrossEntropy;
    let samples = Sample::check_all(&[d], Some(&loss), LIMITS).unwrap();
    assert_eq!(samples[0].loss_positions(&loss), [false, true, false]);
}

#[test]
fn forward_is_wanted_where_it_is_asked_for() {
    let samples = Sample::check_all(&[datum(), datum()], None, LIMITS).unwrap();
    let ask = |positions: &[Vec<usize>]| wanted(&samples, Some(positions));
    assert_eq!(wanted(&samples, None).unwrap(), [[true; 3], [true; 3]]);
    let found = ask(&[vec![0, 2], vec![]]).unwrap();
    assert_eq!(found, [[true, false, true], [false; 3]]);
    let text = |positions: &[Vec<usize>]| ask(positions).unwrap_err().to_string();
    assert_eq!(
        text(&[vec![0]]),
        "positions has 1 lists, 2 are needed: one for each datum"
    );
    let out_of_order = "positions[1][1] is 0, allowed are 0 to 2, each above the one before";
    assert_eq!(text(&[vec![], vec![0, 0]]), out_of_order);
    assert_eq!(
        text(&[vec![3], vec![]]),
        "positions[0][0] is 3, allowed are 0 to 2, each above the one before"
    );
}

#[test]
fn says_what_is_wrong() {
    let ce = Loss::CrossEntropy;
    let is = Loss::ImportanceSampling;
    let cases = [
        (
            error(|d| d.input_ids.clear(), ce),
            "datums[0].model_input_tokens is empty: at least one token is needed",
        ),
        (
            error(|d| d.input_ids = vec![1; 5], ce),
            "datums[0].model_input_tokens has 5 tokens, allowed are at most 4, the model's context",
        ),
        (
            error(|d| d.input_ids[1] = 10, ce),
            "datums[0].model_input_tokens[1] is 10, allowed are 0 to 9",
        ),
        (
            error(|d| d.targets_per_position = 2, ce),
            "datums[0].target_tokens has 3 entries, 6 are needed: one for each of the 3 input tokens, times 2 targets",
        ),
        (
            error(|d| d.targets_per_position = 0, ce),
            "datums[0].target_tokens has 0 targets a position, allowed: 1 or more",
        ),
        (
            error(|d| d.targets_per_position = 2, is),
            "datums[0].target_tokens has 2 targets a position, allowed: 1 with this loss",
        ),
        (
            error(|d| d.weights = None, ce),
            "datums[0].weights is missing: cross_entropy needs it",
        ),
        (
            error(|_| (), is),
            "datums[0].weights is given, but importance_sampling does not use it: multiply the advantages by it",
        ),
        (
            error(|d| d.weights = Some(vec![1.0, f32::NAN, 0.0]), ce),
            "datums[0].weights[1] is NaN, allowed: a finite number",
        ),
    ];
    for (found, wanted) in cases {
        assert_eq!(found, wanted);
    }
    let none = Sample::check_all(&[], None, LIMITS)
        .unwrap_err()
        .to_string();
    assert_eq!(none, "datums is empty: at least one is needed");
}
