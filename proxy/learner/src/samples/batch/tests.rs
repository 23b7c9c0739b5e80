use metaclaw_chat::{AgentId, ChainHash, JudgedBy, Message, Verdict};
use metaclaw_turns::{Request, Served, StreamEnd, Tokens, TurnKind, TurnMeta, TurnState};
use serde_json::json;

use super::*;

fn turn(seq: u32, score: Score, n_ids: u32) -> Arc<Turn> {
    let n = n_ids as usize;
    Arc::new(Turn {
        id: TurnId { session: 1, seq },
        agent: AgentId::default_agent(),
        session: "s".parse().unwrap(),
        meta: TurnMeta {
            kind: TurnKind::Main,
            chain: ChainHash::start(&AgentId::default_agent()),
            reply_id: None,
            finish_reason: None,
            usage: None,
            end: StreamEnd::Complete,
            started_ms: 0,
            first_byte_ms: None,
            ended_ms: u64::from(seq),
            is_last: false,
            masked: false,
        },
        parent: None,
        new_from: 0,
        request: Request::default(),
        reply: Some(Message::assistant("x")),
        served: Served::default(),
        overruled: Vec::new(),
        uses: Vec::new(),
        state: TurnState::Judged,
        verdict: Some(Verdict::new(score, JudgedBy::Rules)),
        tokens: Some(Tokens {
            prompt_ids: vec![100 + seq, 1],
            ids: (0..n_ids).collect(),
            logprobs: vec![-1.0; n],
            sampling_logprobs: vec![-1.0; n],
            ..Tokens::default()
        }),
    })
}

fn correction(seq: u32, n_ids: u32) -> Correction {
    Correction {
        failed: turn(seq, Score::Bad, 3),
        accepted: turn(seq + 1, Score::Good, n_ids),
    }
}

fn config(json: serde_json::Value) -> RlConfig {
    serde_json::from_value(json).unwrap()
}

#[test]
fn a_batch_is_due_when_it_is_full_or_has_waited() {
    let rl = config(json!({"batch_size": 3, "max_wait": "1 min"}));
    let some = |n: u32| Samples {
        corrections: (0..n).map(|i| correction(2 * i, 1)).collect(),
        ..Samples::default()
    };
    assert!(!Samples::default().are_due(&rl, 1_000_000));
    assert!(!some(2).are_due(&rl, 1_000));
    assert!(some(3).are_due(&rl, 1_000));
    assert!(some(2).are_due(&rl, 60_001));
    assert!(!some(1).are_due(&rl, 1_000_000), "one alone is noise");
}

#[test]
fn every_sample_counts_alike_however_long() {
    let rl = config(json!({"method": "redo", "w_redo": 2.0}));
    let samples = Samples {
        corrections: vec![correction(0, 2), correction(2, 8)],
        ..Samples::default()
    };
    let batch = Batch::new(&samples, &rl, Baselines::default(), 4);
    assert_eq!(batch.turns().len(), 4);
    assert_eq!(batch.losses(), [LossFn::CrossEntropy]);
    let groups = batch.groups(&rl).unwrap();
    for sequence in &groups[0].sequences {
        let weights = sequence.datum.parts().weights.clone().unwrap();
        let sum: f32 = weights.values().iter().sum();
        assert!((sum - 1.0).abs() < 1e-6, "w / B = 2 / 2: {sum}");
    }
    // The failed turn's prompt, the accepted turn's reply.
    assert_eq!(
        groups[0].sequences[0].datum.parts().model_input_tokens,
        [100, 1, 0]
    );
}

#[test]
fn two_methods_are_two_calls_and_a_turn_is_taken_once() {
    let rl = config(json!({"method": "redo+binary_rl", "w_rl": 0.6}));
    let samples = Samples {
        corrections: vec![correction(0, 2)],
        verdicts: vec![turn(5, Score::Bad, 4)],
    };
    let batch = Batch::new(&samples, &rl, Baselines::default(), 4);
    assert_eq!(batch.counts(), (1, 3));
    assert_eq!(batch.turns().len(), 3);
    let groups = batch.groups(&rl).unwrap();
    assert_eq!(
        groups.iter().map(|group| group.loss).collect::<Vec<_>>(),
        batch.losses()
    );
    let sums: Vec<f32> = groups[1]
        .sequences
        .iter()
        .map(|sequence| {
            sequence
                .datum
                .parts()
                .advantages
                .as_ref()
                .unwrap()
                .iter()
                .sum()
        })
        .collect();
    // w A / B = 0.6 · (-1, -1, +1) / 3, the verdict's own turn first.
    for (sum, expected) in sums.iter().zip([-0.2, -0.2, 0.2]) {
        assert!((sum - expected).abs() < 1e-6, "{sums:?}");
    }
    assert_eq!(batch.rewards(), (-1.0 / 3.0, 1.0 / 3.0));
    let stats = batch.stats(&groups);
    assert_eq!((stats.samples["redo"], stats.samples["binary_rl"]), (1, 3));
    assert_eq!(
        (stats.reward.n, stats.reward.min, stats.reward.max),
        (3, -1.0, 1.0)
    );
    assert!((stats.reward.mean + 1.0 / 3.0).abs() < 1e-9);
    assert!((stats.reward.std - (8.0_f64 / 9.0).sqrt()).abs() < 1e-9);
    assert!((stats.advantage.mean + 1.0 / 3.0).abs() < 1e-9);
    let length = stats.response_len;
    assert_eq!(
        (length.n, length.mean, length.min, length.max),
        (3, 3.0, 2.0, 4.0)
    );
    assert_eq!((stats.logprob.mean, stats.version.n), (-1.0, 0));
    assert_eq!(batch.scores().len(), 3);
}

#[test]
fn what_is_as_good_as_usual_teaches_nothing() {
    let rl = config(json!({"method": "binary_rl"}));
    let samples = Samples {
        verdicts: vec![turn(0, Score::Good, 1), turn(1, Score::Bad, 1)],
        ..Samples::default()
    };
    let usual = Baselines {
        tool: 0.0,
        chat: 0.95,
    };
    let batch = Batch::new(&samples, &rl, usual, 4);
    assert_eq!(
        batch.spent,
        [(TurnId { session: 1, seq: 0 }, reason::NO_ADVANTAGE)]
    );
    assert_eq!(batch.turns(), [TurnId { session: 1, seq: 1 }]);
    let saturated = Samples {
        verdicts: vec![turn(0, Score::Good, 1)],
        ..Samples::default()
    };
    assert!(Batch::new(&saturated, &rl, usual, 4).is_empty());
}

#[test]
fn a_limit_holds_for_each_method() {
    let rl = config(json!({"method": "redo"}));
    let samples = Samples {
        corrections: (0..6).map(|i| correction(2 * i, 1)).collect(),
        ..Samples::default()
    };
    assert_eq!(
        Batch::new(&samples, &rl, Baselines::default(), 4).counts(),
        (4, 0)
    );
    assert_eq!(
        Batch::new(&samples, &rl, Baselines::default(), 64).counts(),
        (6, 0)
    );
}

#[test]
fn a_batch_goes_on_without_what_is_set_aside() {
    let rl = config(json!({"method": "redo+binary_rl"}));
    let samples = Samples {
        corrections: vec![correction(0, 2), correction(2, 2)],
        verdicts: vec![turn(9, Score::Bad, 2)],
    };
    let batch = Batch::new(&samples, &rl, Baselines::default(), 4);
    assert_eq!(batch.counts(), (2, 5));
    let id = |seq| TurnId { session: 1, seq };
    // A correction needs both of its turns; the verdict of the other one stays.
    let rest = batch.without(&[id(1)]);
    assert_eq!(rest.counts(), (1, 4));
    assert_eq!(rest.turns(), [0, 2, 3, 9].map(id));
    let [first, second] = batch.halves();
    assert_eq!((first.counts(), second.counts()), ((1, 2), (1, 3)));
    assert!(first.is_one_sample() && !second.is_one_sample());
    let [none, alone] = first.halves();
    assert!(none.is_empty());
    assert_eq!(alone.turns(), [0, 1].map(id));
}

#[test]
fn a_sample_that_is_no_sequence_is_named() {
    let rl = config(json!({"method": "redo+binary_rl"}));
    let mut uneven = turn(9, Score::Bad, 3);
    let tokens = Arc::get_mut(&mut uneven).unwrap().tokens.as_mut();
    tokens.unwrap().logprobs.pop();
    let samples = Samples {
        corrections: vec![correction(0, 2)],
        verdicts: vec![uneven],
    };
    let batch = Batch::new(&samples, &rl, Baselines::default(), 4);
    let error = batch.groups(&rl).unwrap_err();
    assert_eq!(error.turns, [TurnId { session: 1, seq: 9 }]);
}
