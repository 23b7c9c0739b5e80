use tch::Device;

use super::*;

/// Makes probabilities 0.5, 0.25, 0.125, 0.125 at ids 2, 0, 3, 1.
fn logits() -> Tensor {
    Tensor::from_slice(&[0.25_f32, 0.125, 0.5, 0.125]).log() + 3.0
}

fn params(temperature: f64, top_p: f64, top_k: usize) -> SamplingParams {
    let off = SamplingParams::default();
    SamplingParams {
        temperature,
        top_p,
        top_k,
        ..off
    }
}

fn min_p(min_p: f64, top_p: f64, top_k: usize) -> SamplingParams {
    SamplingParams {
        min_p,
        ..params(1.0, top_p, top_k)
    }
}

fn one(logits: &Tensor, sampler: &SequenceSampler) -> Result<DrawnToken, SampleError> {
    sample(&logits.unsqueeze(0), &[sampler]).unwrap().remove(0)
}

fn seeded(params: SamplingParams, prompt_ids: &[u32], end_ids: &[u32]) -> SequenceSampler {
    SequenceSampler::new(params, 11, prompt_ids, end_ids).unwrap()
}

/// Returns how often each id is sampled, and its two log-probabilities.
fn draws(params: SamplingParams, n: usize) -> ([f64; 4], Vec<DrawnToken>) {
    draws_of(seeded(params, &[], &[]), n)
}

fn draws_of(mut sampler: SequenceSampler, n: usize) -> ([f64; 4], Vec<DrawnToken>) {
    let mut shares = [0.0; 4];
    let mut drawn = Vec::new();
    for _ in 0..n {
        let token = one(&logits(), &sampler).unwrap();
        sampler.accept(token.id);
        shares[token.id as usize] += 1.0 / n as f64;
        drawn.push(token);
    }
    (shares, drawn)
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() < tolerance
}

#[test]
fn greedy_takes_the_likeliest_and_knows_its_probability() {
    let (_, drawn) = draws(SamplingParams::greedy(), 3);
    for d in drawn {
        assert_eq!((d.id, d.sampling_logprob), (2, 0.0));
        assert!(close(f64::from(d.logprob), 0.5_f64.ln(), 1e-6));
    }
}

#[test]
fn tokens_come_as_often_as_their_probability_says() {
    let (shares, drawn) = draws(params(1.0, 1.0, 0), 4000);
    for (id, want) in [0.25, 0.125, 0.5, 0.125].into_iter().enumerate() {
        assert!(close(shares[id], want, 0.03), "{shares:?}");
    }
    let is_own = |d: &DrawnToken| (d.logprob - d.sampling_logprob).abs() < 1e-5;
    assert!(drawn.iter().all(is_own));
}

#[test]
fn temperature_changes_what_is_drawn_and_not_the_models_own_probability() {
    // This is p^2 renormalised: 16/22, 4/22, 1/22, 1/22.
    let (shares, drawn) = draws(params(0.5, 1.0, 0), 4000);
    assert!(close(shares[2], 16.0 / 22.0, 0.03), "{shares:?}");
    let best = drawn.iter().find(|d| d.id == 2).unwrap();
    assert!(close(f64::from(best.logprob), 0.5_f64.ln(), 1e-5));
    let drawn_at = f64::from(best.sampling_logprob);
    assert!(close(drawn_at, (16.0_f64 / 22.0).ln(), 1e-5));
}

#[test]
fn top_k_top_p_and_min_p_leave_the_likeliest_renormalised() {
    for params in [
        params(1.0, 1.0, 2),
        params(1.0, 0.7, 0),
        params(1.0, 0.75, 0),
        params(1.0, 0.8, 3),
        min_p(0.4, 1.0, 0),
        min_p(0.4, 1.0, 3),
        min_p(0.4, 0.9, 0),
        min_p(0.1, 0.7, 0),
    ] {
        let (shares, drawn) = draws(params, 2000);
        assert_eq!((shares[1], shares[3]), (0.0, 0.0), "{params:?}: {shares:?}");
        assert!(close(shares[2], 2.0 / 3.0, 0.04), "{params:?}: {shares:?}");
        let best = drawn.iter().find(|d| d.id == 2).unwrap();
        let drawn_at = f64::from(best.sampling_logprob);
        assert!(close(drawn_at, (2.0_f64 / 3.0).ln(), 1e-5), "{params:?}");
    }
}

#[test]
fn top_p_is_a_share_of_what_min_p_left() {
    // Of 0.5, 0.25 and twice 0.125, min_p leaves 2/3 and 1/3. The first alone covers 0.6.
    let first = draws(min_p(0.4, 0.6, 0), 50).0[2];
    assert!((first - 1.0).abs() < 1e-6, "{first}");
}

#[test]
fn top_p_looks_further_when_the_first_look_is_too_short() {
    let flat = Tensor::zeros([5000], (Kind::Float, Device::Cpu));
    let sampler = seeded(params(1.0, 0.9, 0), &[], &[]);
    let drawn = one(&flat, &sampler).unwrap();
    let drawn_at = f64::from(drawn.sampling_logprob);
    assert!(close(drawn_at, -(4500.0_f64).ln(), 1e-3), "{drawn:?}");
}

#[test]
fn the_repetition_penalty_counts_prompt_and_reply_and_shrinks_either_sign() {
    let params = SamplingParams {
        repetition_penalty: 2.0,
        ..SamplingParams::greedy()
    };
    // The logits are 2.3 (id 2), 1.6 (0), 0.92 (1 and 3).
    let mut sampler = seeded(params, &[2, 2], &[]);
    assert_eq!(one(&logits(), &sampler).unwrap().id, 0, "2.3 / 2 < 1.6");
    sampler.accept(0);
    assert_eq!(one(&logits(), &sampler).unwrap().id, 2, "1.15 > 0.8");
    let negative = Tensor::from_slice(&[-1.0_f32, -1.5]);
    let sampler = seeded(params, &[0], &[]);
    assert_eq!(one(&negative, &sampler).unwrap().id, 1, "-2 < -1.5");
}

#[test]
fn presence_and_frequency_penalties_count_the_reply_alone() {
    let greedy = SamplingParams::greedy();
    let presence = |presence_penalty| SamplingParams {
        presence_penalty,
        ..greedy
    };
    let frequency = |frequency_penalty| SamplingParams {
        frequency_penalty,
        ..greedy
    };
    // Id 2 leads over id 0 by 0.69.
    for (params, n, want) in [
        (presence(0.8), 0, 2),
        (presence(0.8), 1, 0),
        (presence(0.5), 5, 2),
        (presence(-2.0), 1, 2),
        (frequency(0.4), 1, 2),
        (frequency(0.4), 2, 0),
    ] {
        let mut sampler = seeded(params, &[2, 2, 2], &[]);
        (0..n).for_each(|_| sampler.accept(2));
        let token = one(&logits(), &sampler).unwrap();
        assert_eq!(token.id, want, "{params:?} after {n}");
        let own = if want == 2 { 0.5_f64 } else { 0.25 };
        // The log-probability is the model's own.
        assert!(close(f64::from(token.logprob), own.ln(), 1e-5));
    }
}

#[test]
fn nothing_ends_a_reply_before_min_tokens() {
    for temperature in [0.0, 0.1] {
        let params = SamplingParams {
            min_tokens: 2,
            ..params(temperature, 1.0, 0)
        };
        let mut sampler = seeded(params, &[], &[2]);
        for _ in 0..2 {
            assert_ne!(one(&logits(), &sampler).unwrap().id, 2);
            sampler.accept(0);
        }
        let sharp = logits() * 50.0;
        assert_eq!(one(&sharp, &sampler).unwrap().id, 2);
    }
}

#[test]
fn the_likeliest_are_told_with_the_models_own_probabilities() {
    let params = SamplingParams {
        top_logprobs: 2,
        ..params(0.3, 1.0, 1)
    };
    let token = one(&logits(), &seeded(params, &[], &[])).unwrap();
    let [(first, p), (second, q)] = token.top[..] else {
        panic!("{token:?}")
    };
    assert_eq!((first, second), (2, 0));
    assert!(close(f64::from(p), 0.5_f64.ln(), 1e-5) && close(f64::from(q), 0.25_f64.ln(), 1e-5));
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let ids = |seed| -> Vec<u32> {
        let sampler = SequenceSampler::new(params(1.0, 1.0, 0), seed, &[], &[]).unwrap();
        draws_of(sampler, 40).1.iter().map(|d| d.id).collect()
    };
    assert_eq!(ids(5), ids(5));
    assert_ne!(ids(5), ids(6));
}

#[test]
fn a_batch_draws_what_each_row_draws_alone() {
    let all = [
        SamplingParams::greedy(),
        params(1.0, 1.0, 0),
        params(0.7, 0.9, 0),
        params(1.3, 1.0, 7),
        min_p(0.05, 0.95, 40),
        SamplingParams {
            repetition_penalty: 1.3,
            frequency_penalty: 0.5,
            top_logprobs: 5,
            ..params(1.0, 1.0, 0)
        },
    ];
    let samplers = all.map(|p| {
        let mut sampler = seeded(p, &[1, 2, 3], &[9]);
        sampler.accept(4);
        sampler
    });
    tch::manual_seed(3);
    let logits = Tensor::randn([6, 900], (Kind::Float, Device::Cpu)) * 3.0;
    let rows: Vec<&SequenceSampler> = samplers.iter().collect();
    let together = sample(&logits, &rows).unwrap();
    for (i, token) in together.into_iter().enumerate() {
        let alone = one(&logits.get(i64::try_from(i).unwrap()), &samplers[i]).unwrap();
        let token = token.unwrap();
        assert_eq!((token.id, token.top.len()), (alone.id, alone.top.len()));
        assert!((token.sampling_logprob - alone.sampling_logprob).abs() < 1e-5);
    }
}

#[test]
fn broken_logits_end_one_row_and_not_the_others() {
    let nan = Tensor::from_slice(&[0.0_f32, f32::NAN, 1.0, 0.0]);
    let rows = Tensor::stack(&[logits(), nan], 0);
    for temperature in [0.0, 1.0] {
        let sampler = seeded(params(temperature, 0.9, 0), &[], &[]);
        let drawn = sample(&rows, &[&sampler, &sampler]).unwrap();
        assert!(drawn[0].is_ok());
        assert!(matches!(drawn[1], Err(SampleError::NotFinite)));
    }
}

#[test]
fn parameters_out_of_range_are_errors() {
    let off = SamplingParams::default();
    let wrong = [
        params(-1.0, 1.0, 0),
        params(f64::NAN, 1.0, 0),
        params(1.0, 0.0, 0),
        SamplingParams { min_p: 1.5, ..off },
        SamplingParams {
            repetition_penalty: 0.0,
            ..off
        },
        SamplingParams {
            presence_penalty: 3.0,
            ..off
        },
        SamplingParams {
            frequency_penalty: f64::NAN,
            ..off
        },
        SamplingParams {
            top_logprobs: 21,
            ..off
        },
    ];
    let messages = wrong.map(|params| params.check().unwrap_err().to_string());
    insta::assert_snapshot!(messages.join("\n"), @r"
    temperature is -1, allowed: 0, or 0.001 to 100
    temperature is NaN, allowed: 0, or 0.001 to 100
    top_p is 0, allowed: above 0, up to 1
    min_p is 1.5, allowed: 0 to 1
    repetition_penalty is 0, allowed: above 0, 1 is off
    presence_penalty is 3, allowed: -2 to 2
    frequency_penalty is NaN, allowed: -2 to 2
    top_logprobs is 21, allowed: 0 to 20
    ");
}
