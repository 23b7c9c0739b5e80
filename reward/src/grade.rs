//! The protocol of a reward function: `{"turns": [..]}` in the request, `{"scores": [..]}` in the answer, one score for
//! each turn.

use metaclaw_chat::{JudgedBy, Score, Verdict, Vote, excerpt};
use serde_json::{Value, json};

/// A score of a reward function: its sign, and its absolute value as the weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grade {
    pub score: Score,
    /// The absolute value, in 0..=1. It is 1 for a score of 0, which has no effect.
    pub weight: f32,
}

/// Why an answer, or an entry of it, is not a score.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GradeError {
    /// The answer is not JSON.
    #[error(
        "its answer {answer:?} is no JSON ({why}): give {{\"scores\": [..]}}, and null for NaN or infinity"
    )]
    NotJson {
        answer: String,
        /// The place of the error, and what was expected there.
        why: String,
    },
    /// The answer has no list of scores.
    #[error("its answer {answer:?} has no list `scores`: give {{\"scores\": [..]}}")]
    NoScores { answer: String },
    /// The number of scores differs from the number of turns.
    #[error(
        "`scores` of its answer has {given} entries for {turns} turns: give one for each, in their order"
    )]
    Length { given: usize, turns: usize },
    /// An entry is not a score.
    #[error("`scores[{index}]` of its answer is {given}: a number from -1 to 1, or null")]
    Score {
        /// Its index, from 0.
        index: usize,
        given: String,
    },
}

// === impl Grade ===

impl Grade {
    /// Makes a grade from a number in -1..=1.
    fn new(value: f64) -> Option<Self> {
        if !(-1.0..=1.0).contains(&value) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "within 0..=1")]
        let size = value.abs() as f32;
        // A value too small for f32 counts as 0.
        let (score, weight) = match (size > 0.0, value < 0.0) {
            (false, _) => (Score::Unclear, 1.0),
            (true, true) => (Score::Bad, size),
            (true, false) => (Score::Good, size),
        };
        Some(Self { score, weight })
    }

    pub fn verdict(self) -> Verdict {
        let Self { score, weight } = self;
        Verdict {
            votes: vec![Vote::new(score, None)],
            weight,
            ..Verdict::new(score, JudgedBy::Http)
        }
    }
}

/// Makes the body of a request about some turns.
pub fn body(turns: &[Value]) -> Value {
    json!({ "turns": turns })
}

/// Reads the scores in an answer about `n` turns, in order. `None` means that the function has no opinion. An entry
/// that is not a score does not affect the others.
///
/// # Errors
/// Returns [`GradeError`] if the answer as a whole is invalid.
pub fn read(answer: &str, n: usize) -> Result<Vec<Result<Option<Grade>, GradeError>>, GradeError> {
    let beginning = || excerpt(answer).into_owned();
    let json: Value = serde_json::from_str(answer).map_err(|error| GradeError::NotJson {
        answer: beginning(),
        why: error.to_string(),
    })?;
    let scores = json.get("scores").and_then(Value::as_array);
    let scores = scores.ok_or_else(|| GradeError::NoScores {
        answer: beginning(),
    })?;
    if scores.len() != n {
        let (given, turns) = (scores.len(), n);
        return Err(GradeError::Length { given, turns });
    }
    let grades = scores.iter().enumerate();
    Ok(grades
        .map(|(index, given)| read_one(index, given))
        .collect())
}

fn read_one(index: usize, given: &Value) -> Result<Option<Grade>, GradeError> {
    if given.is_null() {
        return Ok(None);
    }
    let grade = given.as_f64().and_then(Grade::new);
    let refused = || GradeError::Score {
        index,
        given: excerpt(&given.to_string()).into_owned(),
    };
    grade.map(Some).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grade(score: Score, weight: f32) -> Grade {
        Grade { score, weight }
    }

    #[test]
    fn a_score_is_a_sign_and_a_weight() {
        let read = read(r#"{"scores": [1, -1, 0, 0.5, -0.25, null, -0.0]}"#, 7).unwrap();
        let read: Vec<Option<Grade>> = read.into_iter().map(Result::unwrap).collect();
        let unclear = Some(grade(Score::Unclear, 1.0));
        let expected = [
            Some(grade(Score::Good, 1.0)),
            Some(grade(Score::Bad, 1.0)),
            unclear,
            Some(grade(Score::Good, 0.5)),
            Some(grade(Score::Bad, 0.25)),
            None,
            unclear,
        ];
        assert_eq!(read, expected);
        let verdict = expected[4].unwrap().verdict();
        assert_eq!((verdict.score, verdict.by), (Score::Bad, JudgedBy::Http));
        assert!((verdict.weight - 0.25).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_score_is_told_by_field_value_and_what_is_allowed() {
        let all = |answer: &str, n| read(answer, n).unwrap_err().to_string();
        insta::assert_snapshot!(all(r#"{"scores": [1, NaN]}"#, 2), @r#"its answer "{\"scores\": [1, NaN]}" is no JSON (expected value at line 1 column 16): give {"scores": [..]}, and null for NaN or infinity"#);
        insta::assert_snapshot!(all("[1]", 1), @r#"its answer "[1]" has no list `scores`: give {"scores": [..]}"#);
        insta::assert_snapshot!(all(r#"{"scores": [1]}"#, 2), @"`scores` of its answer has 1 entries for 2 turns: give one for each, in their order");
        let each = read(r#"{"scores": [7, "1", true, -1]}"#, 4).unwrap();
        let told = |n: usize| each[n].as_ref().unwrap_err().to_string();
        insta::assert_snapshot!(told(0), @"`scores[0]` of its answer is 7: a number from -1 to 1, or null");
        assert!(told(1).contains("\"1\"") && told(2).contains("true"));
        assert!(each[3].is_ok());
        assert!(all(r#"{"scores": [1e999]}"#, 1).contains("is no JSON"));
        assert!(all(&"x".repeat(5_000), 1).len() < 400);
    }
}
