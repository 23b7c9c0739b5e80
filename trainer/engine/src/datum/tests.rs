use metaclaw_trainer_terms::{DatumParts, Tensor2};

use super::*;

const LIMITS: Limits = Limits {
    vocab: 10,
    context: 4,
};

fn datum() -> Datum {
    Datum::cross_entropy(vec![1, 2, 3], vec![2, 3, 4], vec![0.0, 1.0, 0.5]).unwrap()
}

fn check(datum: Datum, loss: &Loss) -> Result<LossSample, TrainInputError> {
    let checked = LossSample::check_all(&[datum], Some(loss), LIMITS);
    checked.map(|mut samples| samples.remove(0))
}

fn error(change: impl Fn(&mut DatumParts), loss: Loss) -> String {
    let mut parts = datum().into_parts();
    change(&mut parts);
    let datum = Datum::new(parts).unwrap();
    check(datum, &loss).unwrap_err().to_string()
}

#[test]
fn only_positions_with_a_loss_are_computed() {
    let loss = Loss::CrossEntropy;
    let sample = check(datum(), &loss).unwrap();
    assert_eq!(sample.loss_positions(&loss), [false, true, true]);
}

/// Sets two targets per position.
fn twofold(parts: &mut DatumParts) {
    parts.target_tokens = Tensor2::shaped(vec![2, 3, 4, 5, 6, 7], &[3, 2]).unwrap();
    let weights = vec![0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
    parts.weights = Some(Tensor2::shaped(weights, &[3, 2]).unwrap());
}

#[test]
fn several_targets_share_a_position() {
    let mut parts = datum().into_parts();
    twofold(&mut parts);
    let loss = Loss::CrossEntropy;
    let sample = check(Datum::new(parts).unwrap(), &loss).unwrap();
    assert_eq!(sample.loss_positions(&loss), [false, true, false]);
}

#[test]
fn forward_is_wanted_where_it_is_asked_for() {
    let samples = LossSample::check_all(&[datum(), datum()], None, LIMITS).unwrap();
    let ask = |positions: &[Vec<usize>]| wanted(&samples, Some(positions));
    assert_eq!(wanted(&samples, None).unwrap(), [[true; 3], [true; 3]]);
    let found = ask(&[vec![0, 2], vec![]]).unwrap();
    assert_eq!(found, [[true, false, true], [false; 3]]);
    let text = |positions: &[Vec<usize>]| ask(positions).unwrap_err().to_string();
    for (positions, wanted) in [
        (
            &[vec![0]][..],
            "positions has 1 lists, 2 are needed: one for each datum",
        ),
        (
            &[vec![], vec![0, 0]],
            "positions[1][1] is 0, allowed are 0 to 2, each above the one before",
        ),
        (
            &[vec![3], vec![]],
            "positions[0][0] is 3, allowed are 0 to 2, each above the one before",
        ),
    ] {
        assert_eq!(text(positions), wanted);
    }
}

#[test]
fn says_what_is_wrong() {
    let ce = Loss::CrossEntropy;
    let is = Loss::ImportanceSampling;
    let long = |d: &mut DatumParts| {
        let ids = || vec![1; 5];
        let parts = Datum::cross_entropy(ids(), ids(), vec![1.0; 5]);
        *d = parts.unwrap().into_parts();
    };
    let messages = [
        error(long, ce),
        error(|d| d.model_input_tokens[1] = 10, ce),
        error(twofold, is),
        error(|d| d.weights = None, ce),
        error(|d| d.weights = None, is),
        error(|_| (), is),
    ];
    insta::assert_snapshot!(messages.join("\n"), @r"
    datums[0].model_input_tokens has 5 tokens, allowed are at most 4, the model's context
    datums[0].model_input_tokens[1] is 10, allowed are 0 to 9
    datums[0].target_tokens has 2 targets a position, allowed: 1 with importance_sampling
    datums[0].weights is missing: cross_entropy needs it
    datums[0].advantages is missing: importance_sampling needs it
    datums[0].weights is given, but importance_sampling does not use it: multiply the advantages by it
    ");
    let none = LossSample::check_all(&[], None, LIMITS).unwrap_err();
    assert_eq!(none.to_string(), "datums is empty: at least one is needed");
}
