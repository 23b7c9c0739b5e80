#![expect(
    clippy::cast_possible_truncation,
    reason = "what is computed in f64 is compared in f32"
)]

use super::*;
use crate::job::ProductJob;

/// Makes numbers between -1 and 1 that differ at each place.
fn numbers(n: usize, seed: usize) -> Vec<f32> {
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0;
    (0..n).map(number).collect()
}

fn upper_half(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

fn whole(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// Makes a past in one piece.
fn one(past: Range<usize>) -> Vec<Range<usize>> {
    vec![past]
}

/// Computes the product by its definition, in f64.
fn wanted(x: &[f32], w: &[f32], width: usize) -> Vec<f32> {
    let dot = |x: &[f32], w: &[f32]| -> f32 {
        let products = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
        products.sum::<f64>() as f32
    };
    let rows = x.chunks_exact(width);
    rows.flat_map(|x| w.chunks_exact(width).map(move |w| dot(x, w)))
        .collect()
}

fn assert_near(found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len());
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let is_near = (found - wanted).abs() < 1e-4 * (1.0 + wanted.abs());
        assert!(is_near, "{i}: {found}, not {wanted}");
    }
}

#[test]
fn a_product_is_that_of_its_definition_whatever_the_numbers_are() {
    let few = [(1, 16, 1), (2, 48, 5), (3, 64, 12)];
    for (n, width, n_out) in few.into_iter().chain([(8, 576, 29), (13, 32, 50)]) {
        let (x, w) = (numbers(n * width, 1), numbers(n_out * width, 2));
        let mut y = vec![f32::NAN; n * n_out];
        assert!(product(&x, RowMajorMatrix::F32(&w), width, &mut y, 1));
        assert_near(&y, &wanted(&x, &w, width));

        let halves: Vec<u16> = w.iter().copied().map(upper_half).collect();
        let wide: Vec<f32> = halves.iter().copied().map(whole).collect();
        y.fill(f32::NAN);
        assert!(product(&x, RowMajorMatrix::Bf16(&halves), width, &mut y, 1));
        assert_near(&y, &wanted(&x, &wide, width));

        let rounded: Vec<i8> = w.iter().map(|it| (it * 127.0) as i8).collect();
        let scales = numbers(n_out, 3);
        let row = |(i, w): (usize, &i8)| f32::from(*w) * scales[i / width];
        let wide: Vec<f32> = rounded.iter().enumerate().map(row).collect();
        let scales = Scales::F32(&scales);
        let matrix = RowMajorMatrix::Int8 {
            rounded: &rounded,
            scales,
        };
        y.fill(f32::NAN);
        assert!(product(&x, matrix, width, &mut y, 1));
        assert_near(&y, &wanted(&x, &wide, width));
    }
}

#[test]
fn a_row_is_the_same_to_the_last_bit_alone_and_beside_others() {
    let (width, n_out) = (576, 100);
    let (x, w) = (numbers(15 * width, 1), numbers(n_out * width, 2));
    let mut all = vec![0.0; 15 * n_out];
    assert!(product(&x, RowMajorMatrix::F32(&w), width, &mut all, 1));
    for (i, x) in x.chunks_exact(width).enumerate() {
        let mut alone = vec![0.0; n_out];
        assert!(product(x, RowMajorMatrix::F32(&w), width, &mut alone, 1));
        assert_eq!(alone, all[i * n_out..][..n_out]);
    }
}

#[test]
fn narrower_vectors_compute_the_same_map() {
    let (width, n_out) = (64, 31);
    let (x, w) = (numbers(7 * width, 1), numbers(n_out * width, 2));
    let mut y = vec![f32::NAN; 7 * n_out];
    let job = ProductJob::new(&x, &w, width, None, &mut y).unwrap();
    #[expect(unsafe_code, reason = "the test asks the processor first")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the instructions were just checked.
        unsafe { tile::avx2(&job, 0..n_out) }
        assert_near(&y, &wanted(&x, &w, width));
    }
}

#[test]
fn every_row_is_somebody_s_and_nobody_s_twice() {
    let (x, w) = (numbers(16, 1), numbers(16 * 1000, 2));
    let mut y = vec![0.0; 1000];
    let job = ProductJob::new(&x, &w, 16, None, &mut y).unwrap();
    let mut next = 0;
    for part in job.in_parts(3) {
        assert_eq!(part.start, next);
        next = part.end;
    }
    assert_eq!(next, 1000);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let (x, w) = (numbers(32, 1), numbers(64, 2));
    let mut y = vec![0.0; 4];
    assert!(product(&x, RowMajorMatrix::F32(&w), 32, &mut y[..2], 1));
    assert!(!product(&x, RowMajorMatrix::F32(&w), 32, &mut y, 1));
    assert!(!product(&x[..31], RowMajorMatrix::F32(&w), 31, &mut y, 1));
    let short = RowMajorMatrix::F32(&w[..63]);
    assert!(!product(&x, short, 32, &mut y[..2], 1));
    assert!(!product(&x, RowMajorMatrix::F32(&w), 0, &mut y, 1));
    let (rounded, scales) = ([1; 64], Scales::Bf16(&[0; 3]));
    let matrix = RowMajorMatrix::Int8 {
        rounded: &rounded,
        scales,
    };
    assert!(!product(&x, matrix, 32, &mut y[..2], 1));
}

/// Computes attention of one row by its definition, in f64.
fn attention(q: &[f32], keys: &[f32], values: &[f32], heads: Heads, past: &[usize]) -> Vec<f32> {
    let (width, n_positions) = (heads.width, keys.len() / heads.n_kv / heads.width);
    let mut out = Vec::new();
    for (head, q) in q.chunks_exact(width).enumerate() {
        let at = |x: &[f32], position: usize| -> Vec<f64> {
            let first = (head / (heads.n / heads.n_kv) * n_positions + position) * width;
            x[first..][..width].iter().copied().map(f64::from).collect()
        };
        let score = |position: &usize| {
            let key = at(keys, *position);
            let products = q.iter().zip(key).map(|(q, k)| f64::from(*q) * k);
            (products.sum::<f64>() / (width as f64).sqrt()).exp()
        };
        let weights: Vec<f64> = past.iter().map(score).collect();
        let sum: f64 = weights.iter().sum();
        out.extend((0..width).map(|i| {
            let of = |(position, weight): (&usize, &f64)| weight / sum * at(values, *position)[i];
            past.iter().zip(&weights).map(of).sum::<f64>() as f32
        }));
    }
    out
}

#[test]
fn attention_is_that_of_its_definition_over_any_stretches() {
    for (n, n_kv, width) in [(9, 3, 64), (4, 4, 16), (12, 2, 48), (16, 1, 32)] {
        let heads = Heads { n, n_kv, width };
        let cached = n_kv * 400 * width;
        let (keys, values) = (numbers(cached, 1), numbers(cached, 2));
        let pasts = [one(3..4), vec![0..129, 390..400], one(7..390)];
        let q: Vec<f32> = numbers(3 * n * width, 3).iter().map(|x| x * 4.0).collect();
        let mut out = vec![f32::NAN; q.len()];
        let both = [RowMajorMatrix::F32(&keys), RowMajorMatrix::F32(&values)];
        assert!(attend(&q, both, heads, &pasts, &mut out, 1));
        for (row, past) in pasts.iter().enumerate() {
            let past: Vec<usize> = past.iter().cloned().flatten().collect();
            let own = row * n * width..(row + 1) * n * width;
            let wanted = attention(&q[own.clone()], &keys, &values, heads, &past);
            assert_near(&out[own], &wanted);
        }
        let halves = |x: &[f32]| x.iter().copied().map(upper_half).collect::<Vec<u16>>();
        let (keys, values) = (halves(&keys), halves(&values));
        let both = [RowMajorMatrix::Bf16(&keys), RowMajorMatrix::Bf16(&values)];
        let (of_wide, mut of_halves) = (out, vec![f32::NAN; q.len()]);
        assert!(attend(&q, both, heads, &pasts, &mut of_halves, 1));
        let far = of_wide.iter().zip(&of_halves).map(|(a, b)| (a - b).abs());
        let far = far.fold(0.0, f32::max);
        assert!(far > 0.0 && far < 0.05, "{far}");
    }
}

#[test]
fn positions_that_are_not_there_are_refused() {
    let heads = Heads {
        n: 2,
        n_kv: 1,
        width: 16,
    };
    let (q, cached) = (numbers(32, 1), numbers(10 * 16, 2));
    let both = [RowMajorMatrix::F32(&cached), RowMajorMatrix::F32(&cached)];
    let mut out = vec![0.0; 32];
    assert!(attend(&q, both, heads, &[one(0..10)], &mut out, 1));
    for past in [one(0..11), one(5..5), vec![]] {
        assert!(!attend(&q, both, heads, &[past], &mut out, 1));
    }
    let two = [one(0..1), one(0..1)];
    assert!(!attend(&q, both, heads, &two, &mut out, 1));
}

#[test]
fn each_row_has_its_own_adapter() {
    let (width, n_out, rank) = (32, 40, 16);
    let x = numbers(7 * width, 1);
    let a: Vec<Vec<f32>> = (0..3).map(|i| numbers(rank * width, 10 + i)).collect();
    let b: Vec<Vec<f32>> = (0..3).map(|i| numbers(24 * rank, 20 + i)).collect();
    let pair = |i: usize, column| LowRankPair {
        column,
        a: &a[i],
        b: &b[i],
    };
    // The first row has no adapter, nor have the last columns of the last rows.
    let slot = |first, n, pairs| Slot { first, n, pairs };
    let slots = [
        slot(1, 5, vec![pair(0, 16)]),
        slot(6, 1, vec![pair(1, 0), pair(2, 16)]),
    ];
    let mut wanted = numbers(7 * n_out, 4);
    let mut y = wanted.clone();
    for slot in &slots {
        for pair in &slot.pairs {
            for row in slot.first..slot.first + slot.n {
                let low = self::wanted(&x[row * width..][..width], pair.a, width);
                let sums = self::wanted(&low, pair.b, rank);
                for (i, sum) in sums.iter().enumerate() {
                    wanted[row * n_out + pair.column + i] += sum;
                }
            }
        }
    }
    assert!(adapt(&x, &slots, width, &mut y, n_out, 1));
    assert_near(&y, &wanted);

    let before = y.clone();
    for (first, n, column) in [(6, 2, 0), (0, 1, 17)] {
        let beyond = [slot(first, n, vec![pair(0, column)])];
        assert!(!adapt(&x, &beyond, width, &mut y, n_out, 1));
    }
    assert_eq!(y, before);
}
