//! One training sequence and the inputs of its loss.
//!
//! The alignment is Tinker's: `model_input_tokens` has N ids, and entry i of every other field is about predicting the
//! token after position i, so that of a whole sequence `model_input_tokens` is all but the last and `target_tokens` all
//! but the first. Positions that must not count have weight or advantage 0.

mod read;

use crate::Tensor2;

/// A checked sequence: lengths agree, numbers are finite, there is at least one position.
///
/// Only the server can check what a loss needs of it, and which ids a vocabulary has.
#[derive(Debug, Clone, PartialEq)]
pub struct Datum {
    parts: DatumParts,
}

/// The fields of a [`Datum`], which [`Datum::new`] checks.
#[derive(Debug, Clone, PartialEq)]
pub struct DatumParts {
    /// Token ids the model reads, `[N]`.
    pub model_input_tokens: Vec<u32>,
    /// Token ids to predict, `[N]`, or `[N, K]` for cross_entropy against several.
    pub target_tokens: Tensor2<u32>,
    /// Weights of `target_tokens`' shape, for cross_entropy.
    pub weights: Option<Tensor2<f32>>,
    /// Log-probabilities the targets were sampled at, `[N]`, for the policy losses.
    pub logprobs: Option<Vec<f32>>,
    /// Advantages, `[N]`, for the policy losses.
    pub advantages: Option<Vec<f32>>,
}

/// Why a datum is refused. The message names the field; the reader of a list adds the datum's index.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DatumError {
    /// The datum has no tokens.
    #[error("model_input_tokens is empty: at least one token")]
    Empty,
    /// A field is missing.
    #[error("{field} is missing")]
    Missing { field: &'static str },
    /// Two fields must have one shape.
    #[error(
        "{field} has shape {given:?}: {expected:?} is needed, as model_input_tokens and target_tokens say"
    )]
    Shape {
        field: &'static str,
        given: Vec<usize>,
        expected: Vec<usize>,
    },
    /// A token id that no vocabulary has.
    #[error("{field}[{at}] is {value}: a token id from 0 to {max}")]
    Id {
        field: &'static str,
        /// Index in row-major order.
        at: usize,
        value: i64,
        max: u32,
    },
    /// A number that is infinite or NaN.
    #[error("{field}[{at}] is {value}: a finite number")]
    NotFinite {
        field: &'static str,
        /// Index in row-major order.
        at: usize,
        value: f64,
    },
    /// A tensor of the second wire form cannot be read.
    #[error("loss_fn_inputs.{field}: {why}")]
    Tensor { field: String, why: String },
    /// A field is given in both wire forms.
    #[error("{field} is given twice: beside loss_fn_inputs and in it")]
    Twice { field: &'static str },
}

// === impl Datum ===

impl Datum {
    /// Checks the parts of a datum.
    ///
    /// # Errors
    /// Returns [`DatumError`] with the field, its value and what is allowed.
    pub fn new(parts: DatumParts) -> Result<Self, DatumError> {
        let n = parts.model_input_tokens.len();
        if n == 0 {
            return Err(DatumError::Empty);
        }
        if parts.target_tokens.rows() != n {
            let mut expected = parts.target_tokens.shape();
            expected[0] = n;
            let given = parts.target_tokens.shape();
            return Err(shape("target_tokens", given, expected));
        }
        if let Some(weights) = &parts.weights {
            if weights.shape() != parts.target_tokens.shape() {
                let expected = parts.target_tokens.shape();
                return Err(shape("weights", weights.shape(), expected));
            }
            all_finite("weights", weights.values())?;
        }
        for (field, values) in [
            ("logprobs", &parts.logprobs),
            ("advantages", &parts.advantages),
        ] {
            let Some(values) = values else { continue };
            if values.len() != n {
                return Err(shape(field, vec![values.len()], vec![n]));
            }
            all_finite(field, values)?;
        }
        Ok(Self { parts })
    }

    /// Creates a sequence for cross_entropy: one target and one weight for each position.
    ///
    /// # Errors
    /// Returns the errors of [`Datum::new`].
    ///
    /// # Examples
    /// ```
    /// use metaclaw_trainer_terms::Datum;
    ///
    /// // The prompt is [7, 8], the reply [9]: the model reads all but the last id and predicts all but the first.
    /// let datum = Datum::cross_entropy(vec![7, 8], vec![8, 9], vec![0.0, 1.0])?;
    /// assert_eq!(datum.n_tokens(), 2);
    /// assert!(Datum::cross_entropy(vec![7, 8], vec![9], vec![1.0]).is_err(), "one target an id");
    /// # Ok::<(), metaclaw_trainer_terms::DatumError>(())
    /// ```
    pub fn cross_entropy(
        input: Vec<u32>,
        targets: Vec<u32>,
        weights: Vec<f32>,
    ) -> Result<Self, DatumError> {
        Self::new(DatumParts {
            model_input_tokens: input,
            target_tokens: Tensor2::vector(targets),
            weights: Some(Tensor2::vector(weights)),
            logprobs: None,
            advantages: None,
        })
    }

    /// Creates a sequence for importance_sampling, ppo, cispo and dro.
    ///
    /// # Errors
    /// Returns the errors of [`Datum::new`].
    ///
    /// # Examples
    /// ```
    /// use metaclaw_trainer_terms::Datum;
    ///
    /// // The reply [9, 10] after the prompt [7], sampled at these log-probabilities, was better than its group.
    /// let datum = Datum::policy(vec![7, 9], vec![9, 10], vec![-0.5, -1.25], vec![0.75, 0.75])?;
    /// assert_eq!(datum.parts().logprobs.as_deref(), Some(&[-0.5, -1.25][..]));
    /// # Ok::<(), metaclaw_trainer_terms::DatumError>(())
    /// ```
    pub fn policy(
        input: Vec<u32>,
        targets: Vec<u32>,
        logprobs: Vec<f32>,
        advantages: Vec<f32>,
    ) -> Result<Self, DatumError> {
        Self::new(DatumParts {
            model_input_tokens: input,
            target_tokens: Tensor2::vector(targets),
            weights: None,
            logprobs: Some(logprobs),
            advantages: Some(advantages),
        })
    }

    pub fn parts(&self) -> &DatumParts {
        &self.parts
    }

    pub fn into_parts(self) -> DatumParts {
        self.parts
    }

    /// Returns N, the number of positions.
    pub fn n_tokens(&self) -> usize {
        self.parts.model_input_tokens.len()
    }
}

fn shape(field: &'static str, given: Vec<usize>, expected: Vec<usize>) -> DatumError {
    DatumError::Shape {
        field,
        given,
        expected,
    }
}

fn all_finite(field: &'static str, values: &[f32]) -> Result<(), DatumError> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => Err(DatumError::NotFinite {
            field,
            at,
            value: f64::from(values[at]),
        }),
    }
}

#[cfg(test)]
mod tests;
