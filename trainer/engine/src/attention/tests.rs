use super::plan::MAX_GATHERED;
use super::*;
use crate::kv::KvPool;
use crate::model_config::ModelConfig;
use crate::placement::Placement;
use crate::testing::tiny_model_config;
use crate::tests::{OPTIONS, is_near, positions};

const T: usize = 40;

fn pool(config: &ModelConfig, kind: Kind) -> KvPool {
    let budget = KvPool::position_bytes(config, kind) * 256;
    KvPool::new(config, budget, kind, &Placement::on(Device::Cpu)).unwrap()
}

/// Rows of sequences, so many of each, with what is before them, written to these slots.
fn plan(config: &ModelConfig, rows: &[(usize, Vec<PositionRun>)], slots: &[usize]) -> PagePlan {
    plan_of(config, rows, slots, None, false)
}

/// The same where a position sees the newest ones alone, and as a GPU does it.
fn plan_of(
    config: &ModelConfig,
    rows: &[(usize, Vec<PositionRun>)],
    slots: &[usize],
    window: Option<usize>,
    in_one_call: bool,
) -> PagePlan {
    let rows = rows.iter().map(|(len, past)| NewRows {
        len: *len,
        past: past.clone(),
    });
    let heads = few_rows::heads(config.n_heads, config.n_kv_heads, config.head_dim);
    PagePlan::new(
        rows.collect(),
        slots,
        heads,
        window,
        (Device::Cpu, in_one_call),
    )
    .unwrap()
}

fn beside(k: &Tensor, v: &Tensor) -> Tensor {
    Tensor::cat(&[k, v], 2)
}

/// A head of 8 numbers is too narrow for the kernels; one of 16 is for them, where the processor has them.
fn config(head_dim: i64) -> ModelConfig {
    ModelConfig {
        head_dim,
        ..tiny_model_config()
    }
}

fn runs(at: &[usize]) -> Vec<PositionRun> {
    let mut runs: Vec<PositionRun> = Vec::new();
    for &start in at {
        match runs.last_mut() {
            Some(run) if run.start + run.len == start => run.len += 1,
            _ => runs.push(PositionRun { start, len: 1 }),
        }
    }
    runs
}

/// Rows of one sequence in chunks, each position at the slot that `place` gives it, against plain causal attention.
fn check(kind: Kind, place: impl Fn(usize) -> usize, chunks: &[usize], tolerance: f64) {
    check_within(None, kind, place, chunks, tolerance);
}

/// The same where a position sees the newest ones alone.
fn check_within(
    window: Option<usize>,
    kind: Kind,
    place: impl Fn(usize) -> usize,
    chunks: &[usize],
    tolerance: f64,
) {
    for (head_dim, in_one_call) in [(8, false), (16, false), (16, true)] {
        let seen = (window, in_one_call);
        check_heads(&config(head_dim), seen, kind, &place, chunks, tolerance);
    }
}

#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
fn check_heads(
    config: &ModelConfig,
    (window, in_one_call): (Option<usize>, bool),
    kind: Kind,
    place: impl Fn(usize) -> usize,
    chunks: &[usize],
    tolerance: f64,
) {
    let (h, kv, e) = (config.n_heads, config.n_kv_heads, config.head_dim);
    let of = |heads| Tensor::randn([1, to_i64(T), heads, e], OPTIONS).to_kind(kind);
    let (q, k, v) = (of(h), of(kv), of(kv));
    let heads_first = |x: &Tensor| x.transpose(1, 2).to_kind(Kind::Float);
    let seen = |i: usize, j: usize| j <= i && window.is_none_or(|n| i - j < n);
    let seen: Vec<bool> = (0..T * T).map(|at| seen(at / T, at % T)).collect();
    let mask = Some(Tensor::from_slice(&seen).view([to_i64(T), to_i64(T)]));
    let [qh, kh, vh] = [&q, &k, &v].map(heads_first);
    let want = Tensor::scaled_dot_product_attention(&qh, &kh, &vh, mask, 0.0, false, None, true);
    let want = want.transpose(1, 2).reshape([1, to_i64(T), h * e]);

    let mut pool = pool(config, kind);
    let at: Vec<usize> = (0..T).map(place).collect();
    let (mut start, mut got) = (0, Vec::new());
    for &n in chunks {
        let past = if n == 1 { start + 1 } else { start };
        let rows = [(n, runs(&at[..past]))];
        let plan = plan_of(config, &rows, &at[start..start + n], window, in_one_call);
        let part = |x: &Tensor| x.narrow(1, to_i64(start), to_i64(n));
        let new = beside(&part(&k), &part(&v));
        got.push(paged([&part(&q), &new], &mut pool.layers_mut()[0], &plan).unwrap());
        start += n;
    }
    let got = Tensor::cat(&got, 1).to_kind(Kind::Float);
    let worst = (&got - &want).abs().max().double_value(&[]);
    assert!(worst < tolerance, "{chunks:?}, window {window:?}: {worst}");
}

#[test]
fn a_window_hides_all_but_the_newest_positions() {
    for window in [1, 2, 7, 16, 39, 40, 41] {
        for chunks in [&[40][..], &[1; 40], &[16, 16, 8], &[7, 1, 1, 30, 1]] {
            let of = |kind, place: fn(usize) -> usize, tolerance| {
                check_within(Some(window), kind, place, chunks, tolerance);
            };
            of(Kind::Float, |i| 100 + i, 1e-5);
            of(Kind::Float, |i| if i < 16 { i } else { 184 + i }, 1e-5);
            of(Kind::Float, |i| 255 - 2 * i, 1e-5);
            of(Kind::BFloat16, |i| if i < 16 { i } else { 64 + i }, 3e-2);
        }
    }
}

#[test]
fn runs_and_chunks_are_plain_causal_attention() {
    let split = |at: usize| move |i: usize| if i < 16 { i } else { at + i };
    for chunks in [&[40][..], &[1; 40], &[16, 16, 8], &[7, 1, 1, 30, 1]] {
        check(Kind::Float, |i| 100 + i, chunks, 1e-5);
        check(Kind::Float, split(184), chunks, 1e-5);
        check(Kind::BFloat16, split(64), chunks, 3e-2);
    }
}

#[test]
fn many_runs_are_gathered_and_give_the_same() {
    check(Kind::Float, |i| 2 * i, &[20, 10, 1, 9], 1e-5);
    check(Kind::Float, |i| 255 - i, &[1; 40], 1e-5);
}

#[test]
fn sequences_of_one_batch_do_not_see_one_another() {
    let config = tiny_model_config();
    let of = |heads| Tensor::randn([1, 5, heads, config.head_dim], OPTIONS);
    let [q, k, v] = [config.n_heads, config.n_kv_heads, config.n_kv_heads].map(of);
    let mut pool = pool(&config, Kind::Float);
    let layer = &mut pool.layers_mut()[0];
    let rows = [(3, Vec::new()), (2, Vec::new())];
    let both = plan(&config, &rows, &[0, 1, 2, 32, 33]);
    let new = beside(&k, &v);
    let together = paged([&q, &new], layer, &both).unwrap();
    let alone = plan(&config, &[(2, Vec::new())], &[48, 49]);
    let part = |x: &Tensor| x.narrow(1, 3, 2);
    let second = paged([&part(&q), &part(&new)], layer, &alone).unwrap();
    assert!(is_near(&part(&together), &second, 1e-6));
}

/// Three single rows with pasts of different lengths, two of which share their beginning, and a past in pieces.
#[test]
fn single_rows_side_by_side_are_what_each_is_alone() {
    let (full, half) = (Kind::Float, Kind::BFloat16);
    for (head_dim, kind, tolerance) in [
        (8, full, 1e-5),
        (8, half, 2e-2),
        (16, full, 1e-5),
        (16, half, 2e-2),
    ] {
        let config = config(head_dim);
        let (n_kv, e) = (config.n_kv_heads, config.head_dim);
        let by_kernels = metaclaw_kernels::is_supported(1) && head_dim == 16;
        let of = |heads, n| Tensor::randn([1, n, heads, e], OPTIONS).to_kind(kind);
        let mut pool = pool(&config, kind);
        let layer = &mut pool.layers_mut()[0];
        let (k, v) = (of(n_kv, 64), of(n_kv, 64));
        let slots: Vec<i64> = (0..64).collect();
        let slots = Tensor::from_slice(&slots);
        layer.write(&beside(&k, &v).select(0, 0), &slots).unwrap();
        let second = vec![positions(0, 16), positions(32, 9), positions(60, 1)];
        let third = (1, vec![positions(5, 2)]);
        let rows = [
            (1, vec![positions(0, 16), positions(20, 1)]),
            (1, second),
            third.clone(),
        ];
        let written = [20, 60, 6];
        let (q, new) = (of(config.n_heads, 3), of(2 * n_kv, 3));
        let side_by_side = plan(&config, &rows, &written);
        let reads = &side_by_side.reads;
        assert_eq!(matches!(reads, Reads::Few(_)), by_kernels);
        assert!(by_kernels || matches!(reads, Reads::Singles(_)));
        let together = paged([&q, &new], layer, &side_by_side).unwrap();
        let in_one_call = plan_of(&config, &rows, &written, None, true);
        let in_one_call = paged([&q, &new], layer, &in_one_call).unwrap();
        assert!((&in_one_call - &together).abs().max().double_value(&[]) < tolerance);
        for (at, row) in rows.iter().enumerate() {
            let alone = plan(&config, std::slice::from_ref(row), &written[at..=at]);
            assert!(by_kernels || matches!(alone.reads, Reads::Spans(_)));
            let part = |x: &Tensor| x.narrow(1, to_i64(at), 1);
            let alone = paged([&part(&q), &part(&new)], layer, &alone).unwrap();
            let worst = (part(&together) - alone).abs().max().double_value(&[]);
            assert!(worst < tolerance, "{kind:?}, row {at}: {worst}");
        }
        // A window of two: the row itself and the one before.
        let near = plan_of(&config, &rows, &written, Some(2), false);
        let near = paged([&q, &new], layer, &near).unwrap();
        let two = |before, own| (1, vec![positions(before, 1), positions(own, 1)]);
        let newest = [two(15, 20), two(40, 60), third];
        let cut = paged([&q, &new], layer, &plan(&config, &newest, &written)).unwrap();
        assert!(near.equal(&cut) && !near.equal(&together), "{kind:?}");
    }
}

#[test]
fn what_is_much_to_gather_is_read_where_it_lies() {
    let config = tiny_model_config();
    let long = MAX_GATHERED / usize::try_from(config.n_kv_heads * config.head_dim).unwrap() / 2;
    let of = |len| {
        let past = vec![positions(0, len)];
        let reads = plan(&config, &[(1, past.clone()), (1, past)], &[0, 1]).reads;
        matches!(reads, Reads::Singles(_))
    };
    assert_eq!((of(long), of(long + 1)), (true, false));
}
