use super::*;
use crate::kv::KvPool;
use crate::model_config::ModelConfig;
use crate::testing::tiny_model_config;

const T: usize = 40;

fn pool(config: &ModelConfig, kind: Kind) -> KvPool {
    let budget = KvPool::position_bytes(config, kind) * 256;
    KvPool::new(config, budget, kind, Device::Cpu).unwrap()
}

fn slots(at: &[usize]) -> Tensor {
    let at: Vec<i64> = at.iter().copied().map(to_i64).collect();
    Tensor::from_slice(&at)
}

fn runs(at: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &start in at {
        match runs.last_mut() {
            Some(run) if run.start + run.len == start => run.len += 1,
            _ => runs.push(Run { start, len: 1 }),
        }
    }
    runs
}

/// Rows of one sequence in chunks, each position at the slot that `place` gives it, against plain causal attention.
#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
fn check(kind: Kind, place: impl Fn(usize) -> usize, chunks: &[usize], tolerance: f64) {
    let config = tiny_model_config();
    let (h, kv, e) = (config.n_heads, config.n_kv_heads, config.head_dim);
    let options = (Kind::Float, Device::Cpu);
    let of = |heads| Tensor::randn([1, to_i64(T), heads, e], options).to_kind(kind);
    let (q, k, v) = (of(h), of(kv), of(kv));
    let heads_first = |x: &Tensor| x.transpose(1, 2).to_kind(Kind::Float);
    let want = Tensor::scaled_dot_product_attention(
        &heads_first(&q),
        &heads_first(&k),
        &heads_first(&v),
        None::<Tensor>,
        0.0,
        true,
        None,
        true,
    );
    let want = want.transpose(1, 2).reshape([1, to_i64(T), h * e]);

    let mut pool = pool(&config, kind);
    let at: Vec<usize> = (0..T).map(place).collect();
    let (mut start, mut got) = (0, Vec::new());
    for &n in chunks {
        let past = if n == 1 { start + 1 } else { start };
        let plan = PagePlan {
            slots: slots(&at[start..start + n]),
            spans: vec![Span::new(0, n, runs(&at[..past]), Device::Cpu).unwrap()],
        };
        let part = |x: &Tensor| x.narrow(1, to_i64(start), to_i64(n));
        let (q, k, v) = (part(&q), part(&k), part(&v));
        got.push(paged([&q, &k, &v], &mut pool.layers_mut()[0], &plan).unwrap());
        start += n;
    }
    let got = Tensor::cat(&got, 1).to_kind(Kind::Float);
    let worst = (&got - &want).abs().max().double_value(&[]);
    assert!(worst < tolerance, "{chunks:?}: {worst}");
}

#[test]
fn runs_and_chunks_are_plain_causal_attention() {
    for chunks in [&[40][..], &[1; 40], &[16, 16, 8], &[7, 1, 1, 30, 1]] {
        check(Kind::Float, |i| 100 + i, chunks, 1e-5);
        check(
            Kind::Float,
            |i| if i < 16 { i } else { 200 - 16 + i },
            chunks,
            1e-5,
        );
        check(
            Kind::BFloat16,
            |i| if i < 16 { i } else { 64 + i },
            chunks,
            3e-2,
        );
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
    let e = config.head_dim;
    let options = (Kind::Float, Device::Cpu);
    let q = Tensor::randn([1, 5, config.n_heads, e], options);
    let k = Tensor::randn([1, 5, config.n_kv_heads, e], options);
    let v = Tensor::randn([1, 5, config.n_kv_heads, e], options);
    let mut pool = pool(&config, Kind::Float);
    let layer = &mut pool.layers_mut()[0];
    let both = PagePlan {
        slots: slots(&[0, 1, 2, 32, 33]),
        spans: vec![
            Span::new(0, 3, Vec::new(), Device::Cpu).unwrap(),
            Span::new(3, 2, Vec::new(), Device::Cpu).unwrap(),
        ],
    };
    let together = paged([&q, &k, &v], layer, &both).unwrap();
    let alone = PagePlan {
        slots: slots(&[48, 49]),
        spans: vec![Span::new(0, 2, Vec::new(), Device::Cpu).unwrap()],
    };
    let part = |x: &Tensor| x.narrow(1, 3, 2);
    let second = paged([&part(&q), &part(&k), &part(&v)], layer, &alone).unwrap();
    assert!(
        together
            .narrow(1, 3, 2)
            .allclose(&second, 1e-6, 1e-6, false)
    );
}
