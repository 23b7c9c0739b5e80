//! The clipped surrogate of opd and hybrid, whose advantages depend on the weights at the time of the step.
//!
//! At each id of the student's own reply, the ids that it found most probable get an advantage from a teacher that was
//! given the hint, and the id itself gets one from the verdict. Each is a clipped surrogate, and both are added (arXiv
//! 2603.10165 version 2).

use metaclaw_trainer_api::{Datum, DatumError};

use serde::Serialize;

use crate::{
    formulas::{RatioClip, advantages, single},
    sample::{HintedPrompts, LogprobQuery, datum},
};

/// The number of ids at each token; more gave no measurable change (paper, ablation of k).
pub(crate) const TOP_K: u32 = 4;
/// The largest difference between teacher and student, in nats: without a limit, replies become longer (same paper).
const MOST_APART: f32 = 1.0;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Distil {
    pub(crate) prompt: Vec<u32>,
    pub(crate) reply: Vec<u32>,
    #[serde(rename = "told")]
    pub(crate) hinted: HintedPrompts,
    /// The weight of the teacher's probabilities at one id, with its share of the batch.
    pub(crate) share: f32,
    /// The advantage of each id of the reply, with its share; 0 if its verdict gives none.
    pub(crate) push: f32,
    pub(crate) clip: RatioClip,
}

/// The student's log-probabilities for its reply of R ids at the beginning of the step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Student {
    /// `[R]`: log-probabilities of the reply's own ids.
    pub(crate) own: Vec<f32>,
    /// `[R][K]`: the most probable ids.
    pub(crate) ids: Vec<Vec<u32>>,
    /// `[R][K]`: their log-probabilities.
    pub(crate) logprobs: Vec<Vec<f32>>,
}

/// A sample with its advantages. During the step, only the probabilities of its ids change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Surrogate {
    prompt: Vec<u32>,
    reply: Vec<u32>,
    clip: RatioClip,
    /// `[R][W]`
    columns: Vec<Vec<LogprobColumn>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct LogprobColumn {
    id: u32,
    advantage: f32,
    old: f32,
}

// === impl Distil ===

impl Distil {
    /// Returns the sample with the verdict's advantages only, because the others are not known yet.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    pub(crate) fn known(&self) -> Result<Datum, DatumError> {
        datum::target(&self.prompt, &self.reply, self.push)
    }

    /// Returns the sequence whose log-probabilities the student is asked for.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    pub(crate) fn asks_student(&self) -> Result<LogprobQuery, DatumError> {
        LogprobQuery::own(&self.prompt, &self.reply)
    }

    pub(crate) fn asks_teacher(
        &self,
        hint: usize,
        student: &Student,
    ) -> Option<Result<LogprobQuery, DatumError>> {
        let hinted = self.hinted.get(hint)?;
        Some(LogprobQuery::for_ids(hinted, &self.reply, &student.ids))
    }

    pub(crate) fn surrogate(&self, student: &Student, teacher: Option<&[Vec<f32>]>) -> Surrogate {
        let columns = self.reply.iter().zip(&student.own).enumerate();
        let columns = columns.map(|(t, (id, own))| {
            let mut columns = Vec::new();
            if let Some(teacher) = teacher.and_then(|teacher| teacher.get(t)) {
                columns.extend(self.of_teacher(t, student, teacher));
            }
            if self.push != 0.0 {
                columns.push(LogprobColumn {
                    id: *id,
                    advantage: self.push,
                    old: *own,
                });
            }
            columns
        });
        Surrogate {
            columns: columns.collect(),
            prompt: self.prompt.clone(),
            reply: self.reply.clone(),
            clip: self.clip,
        }
    }

    fn of_teacher(&self, t: usize, student: &Student, teacher_k: &[f32]) -> Vec<LogprobColumn> {
        let (Some(ids), Some(student_k)) = (student.ids.get(t), student.logprobs.get(t)) else {
            return Vec::new();
        };
        let advantages = advantages(student_k, teacher_k, MOST_APART);
        let each = ids.iter().zip(student_k).zip(advantages);
        let column = |((id, old), advantage): ((&u32, &f32), f32)| LogprobColumn {
            id: *id,
            advantage: self.share * advantage,
            old: *old,
        };
        each.map(column).collect()
    }
}

// === impl Surrogate ===

impl Surrogate {
    pub(crate) fn n_ids(&self) -> usize {
        self.reply.len()
    }

    /// Returns the sequence that is asked about later in the step.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    pub(crate) fn query(&self) -> Result<LogprobQuery, DatumError> {
        let ids = |columns: &Vec<LogprobColumn>| columns.iter().map(|column| column.id).collect();
        let ids: Vec<Vec<u32>> = self.columns.iter().map(ids).collect();
        LogprobQuery::for_ids(&self.prompt, &self.reply, &ids)
    }

    /// Returns the loss at the beginning of the step, and the cross_entropy with its gradient.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    pub(crate) fn at_start(&self) -> Result<(f64, Datum), DatumError> {
        let old = self.columns.iter().flatten().map(|column| column.old);
        self.at(&old.collect::<Vec<f32>>())
    }

    /// Returns the same later in the step.
    ///
    /// # Shapes
    /// `now`: `[R · W]`, the log-probabilities of the sample's ids in row-major order.
    ///
    /// # Errors
    /// Returns the same error, also if `now` has another shape.
    pub(crate) fn at(&self, now: &[f32]) -> Result<(f64, Datum), DatumError> {
        let mut now = now.iter();
        let mut loss = 0.0;
        let rows = self.columns.iter().map(|columns| {
            let row = columns.iter().zip(now.by_ref()).map(|(column, now)| {
                let ratio = f64::from(now - column.old).exp();
                let advantage = f64::from(column.advantage);
                loss += self.clip.loss(advantage, ratio);
                (column.id, single(self.clip.weight(advantage, ratio)))
            });
            row.collect()
        });
        let rows: Vec<Vec<(u32, f32)>> = rows.collect();
        let datum = datum::weighted(&self.prompt, &self.reply, &rows)?;
        Ok((loss, datum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: RatioClip = RatioClip {
        low: 0.8,
        high: 1.28,
    };

    fn distil(push: f32) -> Distil {
        Distil {
            prompt: vec![1, 2],
            reply: vec![4, 5],
            hinted: vec![vec![1, 9, 2]].into(),
            share: 0.5,
            push,
            clip: CLIP,
        }
    }

    fn ln(p: &[f32]) -> Vec<f32> {
        p.iter().map(|p| p.ln()).collect()
    }

    fn student() -> Student {
        Student {
            own: ln(&[0.6, 0.1]),
            ids: vec![vec![4, 7], vec![8, 9]],
            logprobs: vec![ln(&[0.6, 0.2]), ln(&[0.3, 0.3])],
        }
    }

    fn weights(datum: &Datum) -> Vec<f32> {
        datum.parts().weights.as_ref().unwrap().values().to_vec()
    }

    fn close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
        }
    }

    /// This is acceptance test 1 of OpenClaw-RL's specification: a hint that says nothing, and one that names an id.
    #[test]
    fn a_hint_that_changes_nothing_pushes_nothing() {
        let student = student();
        let same = student.logprobs.clone();
        let (loss, datum) = distil(0.0)
            .surrogate(&student, Some(&same))
            .at_start()
            .unwrap();
        assert!(loss.abs() < 1e-6 && weights(&datum).iter().all(|weight| weight.abs() < 1e-4));
        let named = [ln(&[0.2, 0.7]), ln(&[0.3, 0.3])];
        let surrogate = distil(0.0).surrogate(&student, Some(&named));
        let pushed = weights(&surrogate.at_start().unwrap().1);
        assert!(pushed[3] > 0.0 && pushed[2] < 0.0, "{pushed:?}");
    }

    /// Computed by hand: w = 0.75, 0.25; the differences are clipped to -1 and 1; each has half a share; then the
    /// verdict is added on the id itself.
    #[test]
    fn hint_and_verdict_are_two_terms_of_one_sum() {
        let teacher = [ln(&[0.06, 0.9]), ln(&[0.3, 0.3])];
        let surrogate = distil(-0.25).surrogate(&student(), Some(&teacher));
        let (loss, datum) = surrogate.at_start().unwrap();
        let parts = datum.parts();
        assert_eq!(parts.model_input_tokens, [1, 2, 4]);
        assert_eq!(parts.target_tokens.values(), [0, 0, 0, 4, 7, 4, 8, 9, 5]);
        let expected = [0.0, 0.0, 0.0, -0.375, 0.125, -0.25, 0.0, 0.0, -0.25];
        close(&weights(&datum), &expected);
        // At the beginning of the step, the surrogate is -A.
        assert!((loss - 0.75).abs() < 1e-5, "{loss}");
    }

    #[test]
    fn without_a_hint_there_is_the_verdict_alone() {
        let (loss, datum) = distil(0.5).surrogate(&student(), None).at_start().unwrap();
        assert_eq!(datum.parts().target_tokens.values(), [0, 4, 5]);
        close(&weights(&datum), &[0.0, 0.5, 0.5]);
        assert!((loss + 1.0).abs() < 1e-6);
    }

    /// In a later epoch, a ratio beyond the clip gives no gradient, and the others count by their ratio.
    #[test]
    fn a_later_step_is_clipped_against_where_the_first_one_started() {
        let surrogate = distil(0.5).surrogate(&student(), None);
        let asked = surrogate.query().unwrap();
        assert_eq!((asked.positions.as_slice(), asked.width), (&[1, 2][..], 1));
        let (loss, datum) = surrogate.at(&ln(&[0.9, 0.11])).unwrap();
        // 0.9 / 0.6 is above 1.28; 0.11 / 0.1 is not.
        close(&weights(&datum), &[0.0, 0.0, 0.55]);
        assert!((loss - (-0.5 * 1.28 - 0.5 * 1.1)).abs() < 1e-5, "{loss}");
        assert!(surrogate.at(&ln(&[0.9])).is_err(), "one is missing");
    }
}
