//! Writes the report: figures as Markdown.

use std::fmt::Write as _;

use serde_json::Value;

use super::options::GpuOptions;

/// Floating-point operations for a token of a LoRA step and a weight of the base model: one product in the forward
/// pass, and one in the backward pass for the gradient by the input; the base model's weights have no gradient.
const A_WEIGHT: f64 = 4.0;

/// The report. A figure that is missing is a dash.
pub(super) fn markdown(options: &GpuOptions, found: &[(&str, Value)]) -> String {
    let figures = Figures(found);
    let number = |cell, field| figures.number(cell, field);
    let over =
        |above: Option<f64>, below: Option<f64>| Some(above? / below.filter(|&it| it > 0.0)?);
    let flops = |cell| {
        let weights = number("step", "n_params")?;
        Some(A_WEIGHT * weights * over(number("step", "tokens"), number(cell, "wall_s"))?)
    };
    let measured = number("peak", "flops_per_s");
    let peak = options.peak_tflops.map(|it| it * 1e12).or(measured);
    let share = |cell| over(flops(cell), peak);
    let speed = |cell, field| over(number(cell, field), number(cell, "wall_s"));
    let tokens = number("step", "tokens");
    let rows = [
        ("golden values of PyTorch", figures.golden()),
        (
            "fastest product, TFLOP/s",
            shown(measured.map(|it| it / 1e12)),
        ),
        ("LoRA step, tokens", shown(tokens)),
        ("LoRA step, tokens a second", shown(speed("step", "tokens"))),
        ("LoRA step, share of the peak (MFU)", shown(share("step"))),
        (
            "the same by PEFT, tokens a second",
            shown(over(tokens, number("peft", "wall_s"))),
        ),
        ("the same by PEFT, share of the peak", shown(share("peft"))),
        (
            "one reply, tokens a second",
            shown(speed("decode 1", "new_tokens")),
        ),
        (
            "eight replies, tokens a second",
            shown(speed("decode 8", "new_tokens")),
        ),
        (
            "95th percentile between tokens of four replies, s",
            shown(number("served", "p95_alone_s")),
        ),
        (
            "the same while training, s",
            shown(number("served", "p95_s")),
        ),
        (
            "longest gap while training, s",
            shown(number("served", "longest_s")),
        ),
        (
            "training beside four replies by alone",
            shown(over(
                number("served", "training_s"),
                number("served", "training_alone_s"),
            )),
        ),
        (
            "memory of the device in the step, GB",
            shown(number("step", "device_bytes").map(|it| it / 1e9)),
        ),
        (
            "memory of the process in the step, GB",
            shown(number("step", "peak_bytes").map(|it| it / 1e9)),
        ),
    ];
    let model = options.model.as_ref().map_or_else(
        || "the demo model".to_owned(),
        |it| it.display().to_string(),
    );
    let (devices, dtype) = (&options.devices, &options.dtype);
    let size = if options.small { ", little work" } else { "" };
    let mut text =
        format!("Devices `{devices}`, {dtype}, {model}{size}.\n\n| what | |\n|---|---|\n");
    for (what, figure) in rows {
        let _ = writeln!(text, "| {what} | {figure} |");
    }
    text
}

struct Figures<'a>(&'a [(&'a str, Value)]);

// === impl Figures ===

impl Figures<'_> {
    fn number(&self, cell: &str, field: &str) -> Option<f64> {
        let (_, figures) = self.0.iter().find(|(name, _)| *name == cell)?;
        figures[field].as_f64()
    }

    fn golden(&self) -> String {
        let golden = self.0.iter().find(|(name, _)| *name == "golden");
        match golden.and_then(|(_, it)| it["passed"].as_bool()) {
            Some(true) => "all within tolerance".to_owned(),
            Some(false) => "**failed**".to_owned(),
            None => "-".to_owned(),
        }
    }
}

/// Prints three significant digits.
fn shown(figure: Option<f64>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if figure >= 100.0 => format!("{figure:.0}"),
        Some(figure) if figure >= 1.0 => format!("{figure:.2}"),
        Some(figure) => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_is_set_against_the_peak_and_what_is_missing_is_a_dash() {
        let options = GpuOptions {
            devices: "0".to_owned(),
            dtype: "bf16".to_owned(),
            model: None,
            python: None,
            peak_tflops: Some(100.0),
            small: false,
            threads: 2,
            out: "/t".into(),
        };
        let step = json!({"wall_s": 2.0, "tokens": 10_000, "n_params": 1_500_000_000_u64});
        let found = [("golden", json!({"passed": false})), ("step", step)];
        let text = markdown(&options, &found);
        // 4 * 1.5e9 * 5000 a second is 30 of 100 TFLOP/s.
        assert!(
            text.contains("| LoRA step, share of the peak (MFU) | 0.300 |"),
            "{text}"
        );
        assert!(
            text.contains("| golden values of PyTorch | **failed** |"),
            "{text}"
        );
        assert!(
            text.contains("| one reply, tokens a second | - |"),
            "{text}"
        );
    }
}
