use super::*;

/// Probabilities 0.5, 0.25, 0.125, 0.125 at ids 2, 0, 3, 1.
fn logits() -> Tensor {
    Tensor::from_slice(&[0.25_f32, 0.125, 0.5, 0.125]).log() + 3.0
}

fn params(temperature: f64, top_p: f64, top_k: usize) -> SamplingParams {
    SamplingParams {
        temperature,
        top_p,
        top_k,
        seed: 11,
    }
}

/// How often each id comes, and its two log-probabilities.
fn draws(params: SamplingParams, n: usize) -> ([f64; 4], Vec<Drawn>) {
    let mut sampler = Sampler::new(params).unwrap();
    let drawn: Vec<Drawn> = (0..n).map(|_| sampler.draw(&logits()).unwrap()).collect();
    let mut shares = [0.0; 4];
    for d in &drawn {
        shares[d.id as usize] += 1.0 / n as f64;
    }
    (shares, drawn)
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() < tolerance
}

#[test]
fn greedy_takes_the_likeliest_and_knows_its_probability() {
    let (_, drawn) = draws(params(0.0, 1.0, 0), 3);
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
    assert!(
        drawn
            .iter()
            .all(|d| close(f64::from(d.logprob), f64::from(d.sampling_logprob), 1e-5))
    );
}

#[test]
fn temperature_changes_what_is_drawn_and_not_the_models_own_probability() {
    // p^2 renormalised: 16/22, 4/22, 1/22, 1/22.
    let (shares, drawn) = draws(params(0.5, 1.0, 0), 4000);
    assert!(close(shares[2], 16.0 / 22.0, 0.03), "{shares:?}");
    let best = drawn.iter().find(|d| d.id == 2).unwrap();
    assert!(close(f64::from(best.logprob), 0.5_f64.ln(), 1e-5));
    assert!(close(
        f64::from(best.sampling_logprob),
        (16.0_f64 / 22.0).ln(),
        1e-5
    ));
}

#[test]
fn top_k_and_top_p_leave_the_likeliest_renormalised() {
    for params in [
        params(1.0, 1.0, 2),
        params(1.0, 0.7, 0),
        params(1.0, 0.75, 0),
        params(1.0, 0.8, 3),
    ] {
        let (shares, drawn) = draws(params, 2000);
        assert_eq!((shares[1], shares[3]), (0.0, 0.0), "{params:?}: {shares:?}");
        assert!(close(shares[2], 2.0 / 3.0, 0.04), "{params:?}: {shares:?}");
        let best = drawn.iter().find(|d| d.id == 2).unwrap();
        assert!(close(
            f64::from(best.sampling_logprob),
            (2.0_f64 / 3.0).ln(),
            1e-5
        ));
    }
}

#[test]
fn top_p_looks_further_when_the_first_look_is_too_short() {
    let flat = Tensor::zeros([5000], (Kind::Float, tch::Device::Cpu));
    let mut sampler = Sampler::new(params(1.0, 0.9, 0)).unwrap();
    let drawn = sampler.draw(&flat).unwrap();
    assert!(
        close(f64::from(drawn.sampling_logprob), -(4500.0_f64).ln(), 1e-3),
        "{drawn:?}"
    );
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let ids = |seed| -> Vec<u32> {
        let (_, drawn) = draws(
            SamplingParams {
                seed,
                ..params(1.0, 1.0, 0)
            },
            40,
        );
        drawn.iter().map(|d| d.id).collect()
    };
    assert_eq!(ids(5), ids(5));
    assert_ne!(ids(5), ids(6));
}

#[test]
fn parameters_out_of_range_and_broken_logits_are_errors() {
    let message = |p: SamplingParams| p.check().unwrap_err().to_string();
    assert_eq!(
        message(params(-1.0, 1.0, 0)),
        "temperature is -1, allowed: 0, or 0.001 to 100"
    );
    assert_eq!(
        message(params(f64::NAN, 1.0, 0)),
        "temperature is NaN, allowed: 0, or 0.001 to 100"
    );
    assert_eq!(
        message(params(1.0, 0.0, 0)),
        "top_p is 0, allowed: above 0, up to 1"
    );
    for temperature in [0.0, 1.0] {
        let mut sampler = Sampler::new(params(temperature, 1.0, 0)).unwrap();
        let broken = Tensor::from_slice(&[0.0_f32, f32::NAN]);
        assert!(matches!(sampler.draw(&broken), Err(SampleError::NotFinite)));
    }
}
