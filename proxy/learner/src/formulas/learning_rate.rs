//! The learning rate: it depends on the model's size, and is warmed up.

/// The rate of models up to [`SMALL`] parameters; measured on SmolLM2-135M.
const SMALL_RATE: f64 = 5e-4;
/// The number of parameters of a small model.
const SMALL: f64 = 200e6;
/// The rate of models from [`LARGE`] parameters on, which is Tinker's default.
const LARGE_RATE: f64 = 1e-4;
/// The number of parameters of a large model.
const LARGE: f64 = 1e9;

/// Returns the rate for a model: 5e-4 up to 200M parameters, 1e-4 from 1B, and between them a straight line in the
/// logarithms of both.
pub(crate) fn rate_for_size(n_params: f64) -> f64 {
    let along = ((n_params / SMALL).ln() / (LARGE / SMALL).ln()).clamp(0.0, 1.0);
    SMALL_RATE * (LARGE_RATE / SMALL_RATE).powf(along)
}

/// Returns the rate of step `n`, from 1: it rises in equal parts to the full rate at step `warmup_steps`.
pub(crate) fn warmed_up(rate: f64, n: u64, warmup_steps: u64) -> f64 {
    if n >= warmup_steps {
        return rate;
    }
    rate * n as f64 / warmup_steps as f64
}

/// Returns the number of a model's parameters from a training server's text, such as `328.60M / 3890.12M`.
pub(crate) fn n_params(trainable_params: &str) -> Option<f64> {
    let all = trainable_params.rsplit('/').next()?.trim();
    let split = all.find(|c: char| c.is_alphabetic()).unwrap_or(all.len());
    let (number, unit) = all.split_at(split);
    let factor = match unit.trim() {
        "" => 1.0,
        "K" | "k" => 1e3,
        "M" => 1e6,
        "B" | "G" => 1e9,
        _ => return None,
    };
    let number: f64 = number.trim().replace(',', "").parse().ok()?;
    (number > 0.0 && number.is_finite()).then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_falls_with_size_between_two_ends() {
        for (n_params, rate) in [
            (135e6, 5e-4),
            (200e6, 5e-4),
            (447.2e6, 2.236e-4),
            (1e9, 1e-4),
            (8e9, 1e-4),
        ] {
            assert!(
                (rate_for_size(n_params) / rate - 1.0).abs() < 1e-3,
                "{n_params}: {}",
                rate_for_size(n_params)
            );
        }
    }

    #[test]
    fn the_first_steps_are_smaller() {
        let rates: Vec<f64> = (1..5).map(|n| warmed_up(3.0, n, 3)).collect();
        assert_eq!(rates, [1.0, 2.0, 3.0, 3.0]);
        assert!((warmed_up(3.0, 1, 0) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn sizes_are_read_as_servers_write_them() {
        assert_eq!(n_params("328.60M / 3890.12M"), Some(3_890.12e6));
        assert_eq!(
            n_params("9.7M / 134.52M").map(f64::round),
            Some(134_520_000.0)
        );
        assert_eq!(n_params("1 / 1.5B"), Some(1.5e9));
        for bad in ["", "x", "1M / many", "0 / 0"] {
            assert_eq!(n_params(bad), None, "{bad:?}");
        }
    }
}
