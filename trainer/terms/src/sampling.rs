//! How tokens are drawn, and which values are allowed.

use crate::DEFAULT_TEMPERATURE;

/// The sampling settings of one sequence; meanings and defaults are vLLM's, except for the temperature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// 0 takes the most probable token.
    pub temperature: f64,
    /// Draws from the smallest set of most probable tokens with this total probability; 1 means all.
    pub top_p: f64,
    /// How many of the likeliest tokens may be sampled; 0 is all.
    pub top_k: usize,
    /// Leaves out tokens whose probability is below this share of the highest one; 0 is off.
    pub min_p: f64,
    /// Positive logits of ids in the prompt or reply are divided by it, negative ones multiplied; 1 is off.
    pub repetition_penalty: f64,
    /// Subtracted from the logits of ids that the reply contains; 0 is off.
    pub presence_penalty: f64,
    /// Subtracted from the logits of ids once for each time that the reply contains them; 0 is off.
    pub frequency_penalty: f64,
    /// The number of tokens before which nothing ends the reply.
    pub min_tokens: usize,
    /// How many of the likeliest tokens are reported with each token, 0 to 20.
    pub top_logprobs: usize,
}

/// A parameter that is out of range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} is {value}, allowed: {allowed}")]
pub struct ParamError {
    pub field: &'static str,
    pub value: String,
    pub allowed: String,
}

/// Above this temperature, replies are noise; below the lower bound, numbers overflow; either is a mistake of the
/// caller.
const TEMPERATURES: std::ops::RangeInclusive<f64> = 1e-3..=100.0;
/// This is the limit of OpenAI and vLLM.
const PENALTIES: std::ops::RangeInclusive<f64> = -2.0..=2.0;
/// This is the limit of OpenAI and vLLM.
const MAX_TOP_LOGPROBS: usize = 20;

// === impl SamplingParams ===

impl Default for SamplingParams {
    /// The whole distribution, at the policy's temperature.
    fn default() -> Self {
        Self {
            temperature: DEFAULT_TEMPERATURE,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            min_tokens: 0,
            top_logprobs: 0,
        }
    }
}

impl SamplingParams {
    /// Takes the most probable token each time.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::default()
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// Returns the first parameter that is out of its range.
    pub fn check(&self) -> Result<(), ParamError> {
        let t = self.temperature;
        if t != 0.0 && !TEMPERATURES.contains(&t) {
            let (low, high) = (TEMPERATURES.start(), TEMPERATURES.end());
            let allowed = format!("0, or {low} to {high}");
            return Err(ParamError::new("temperature", t, allowed));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(ParamError::new("top_p", self.top_p, "above 0, up to 1"));
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return Err(ParamError::new("min_p", self.min_p, "0 to 1"));
        }
        let repetition = self.repetition_penalty;
        if !(repetition > 0.0 && repetition.is_finite()) {
            let allowed = "above 0, 1 is off";
            return Err(ParamError::new("repetition_penalty", repetition, allowed));
        }
        for (field, value) in [
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
        ] {
            if !PENALTIES.contains(&value) {
                return Err(ParamError::new(field, value, "-2 to 2"));
            }
        }
        if self.top_logprobs > MAX_TOP_LOGPROBS {
            let allowed = format!("0 to {MAX_TOP_LOGPROBS}");
            return Err(ParamError::new("top_logprobs", self.top_logprobs, allowed));
        }
        Ok(())
    }

    /// Refuses settings that many samplers lack: all but temperature, top-p and top-k.
    ///
    /// # Errors
    /// Returns the first parameter that is not at its default.
    pub fn check_common(&self) -> Result<(), ParamError> {
        type Number = fn(&SamplingParams) -> f64;
        const NUMBERS: [(&str, Number); 4] = [
            ("min_p", |params| params.min_p),
            ("repetition_penalty", |params| params.repetition_penalty),
            ("presence_penalty", |params| params.presence_penalty),
            ("frequency_penalty", |params| params.frequency_penalty),
        ];
        let only = |field, value: &dyn ToString, off: f64| {
            let allowed = format!("{off} (this sampler can do no other)");
            Err(ParamError::new(field, value.to_string(), allowed))
        };
        for (field, number) in NUMBERS {
            let (value, off) = (number(self), number(&Self::default()));
            // Values are not compared by equality, because 0.0 in other digits means off as well.
            if (value - off).abs() > f64::EPSILON {
                return only(field, &value, off);
            }
        }
        for (field, value) in [
            ("min_tokens", self.min_tokens),
            ("top_logprobs", self.top_logprobs),
        ] {
            if value > 0 {
                return only(field, &value, 0.0);
            }
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "most values are numbers")]
impl ParamError {
    pub fn new(field: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self {
            field,
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_few_samplers_can_do_is_refused_by_name() {
        let common = SamplingParams {
            temperature: 1.0,
            top_p: 0.5,
            top_k: 3,
            ..SamplingParams::default()
        };
        assert_eq!(common.check_common(), Ok(()));
        type Change = fn(&mut SamplingParams);
        let changes: [(&str, Change); 5] = [
            ("min_p", |params| params.min_p = 0.1),
            ("presence_penalty", |params| params.presence_penalty = -1.0),
            ("repetition_penalty", |params| {
                params.repetition_penalty = 1.1;
            }),
            ("min_tokens", |params| params.min_tokens = 1),
            ("top_logprobs", |params| params.top_logprobs = 2),
        ];
        for (field, change) in changes {
            let mut params = common;
            change(&mut params);
            assert_eq!(params.check_common().unwrap_err().field, field);
        }
    }
}
