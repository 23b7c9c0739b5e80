//! The samples of a call whose weights depend on what the weights are: student and teacher are asked first.

use metaclaw_trainer_api::{BackendError, Datum, DatumError, RunId};

use super::{
    asking::{Answer, Question, unreadable},
    runner::StepRunner,
};
use crate::{
    config::Teacher,
    methods::most_agreeing,
    samples::{Anchor, Asked, Distil, Student, Surrogate, TOP_K},
};

// === impl StepRunner ===

impl StepRunner {
    /// The advantages of a call's samples, as the run's weights are now.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn surrogates(
        &self,
        run: &RunId,
        distils: &[&Distil],
    ) -> Result<Vec<Surrogate>, BackendError> {
        let students = self.students(run, distils).await?;
        let mut teachers: Vec<Vec<Answer>> = vec![Vec::new(); distils.len()];
        let most = distils.iter().map(|it| it.told.len()).max();
        for hint in 0..most.unwrap_or(0) {
            for (at, answer) in self.told(run, (distils, &students), hint).await? {
                teachers[at].push(answer);
            }
        }
        let each = distils.iter().zip(&students).zip(&teachers);
        let surrogates = each.map(|((distil, student), teachers)| {
            let teacher = best(student, teachers).map(|it| rows(&it.logprobs));
            distil.surrogate(student, teacher.as_deref())
        });
        Ok(surrogates.collect())
    }

    /// What the run finds likely along each reply.
    async fn students(
        &self,
        run: &RunId,
        distils: &[&Distil],
    ) -> Result<Vec<Student>, BackendError> {
        let question = Question {
            run,
            adapter: true,
            top_k: TOP_K,
        };
        let asked = distils.iter().map(|it| it.asks_student()).enumerate();
        let asked: Result<Vec<_>, _> = asked.map(|(at, it)| Ok((at, it?))).collect();
        let answers = self
            .ask(question, asked.map_err(|error| no_sequence(&error))?)
            .await?;
        let students = answers.into_iter().map(|answer| Student {
            own: answer.logprobs,
            ids: answer.ids,
            logprobs: answer.likely,
        });
        Ok(students.collect())
    }

    /// What the teacher, told its hint of this number, makes of each reply that has so many; by the replies' numbers.
    async fn told(
        &self,
        run: &RunId,
        (distils, students): (&[&Distil], &[Student]),
        hint: usize,
    ) -> Result<Vec<(usize, Answer)>, BackendError> {
        let question = Question {
            run,
            adapter: self.rl.teacher == Teacher::Current,
            top_k: TOP_K,
        };
        let asked = distils.iter().zip(students).enumerate();
        let asked = asked
            .filter_map(|(at, (distil, student))| Some((at, distil.asks_teacher(hint, student)?)));
        let asked: Result<Vec<_>, _> = asked.map(|(at, it)| Ok((at, it?))).collect();
        let asked = asked.map_err(|error| no_sequence(&error))?;
        let numbers: Vec<usize> = asked.iter().map(|(at, _)| *at).collect();
        let answers = self.ask(question, asked).await?;
        Ok(numbers.into_iter().zip(answers).collect())
    }

    /// The loss of a call's samples where the step has come to by now, and cross_entropy with its gradient.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn moved_on(
        &self,
        run: &RunId,
        surrogates: &[Surrogate],
    ) -> Result<(f64, Vec<Datum>), BackendError> {
        let asked = surrogates.iter().map(Surrogate::asked);
        let now = self.as_it_is(run, asked).await?;
        let each = surrogates.iter().zip(&now);
        sum(each.map(|(surrogate, now)| surrogate.at(&now.logprobs)))
    }

    /// The same of replies that the run is held at.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn anchored(
        &self,
        run: &RunId,
        anchors: &[&Anchor],
    ) -> Result<(f64, Vec<Datum>), BackendError> {
        let asked = anchors.iter().map(|it| it.asked());
        let now = self.as_it_is(run, asked).await?;
        let each = anchors.iter().zip(&now);
        sum(each.map(|(anchor, now)| anchor.at(&now.logprobs)))
    }

    /// The run's own log-probabilities, with its adapter.
    async fn as_it_is(
        &self,
        run: &RunId,
        asked: impl Iterator<Item = Result<Asked, DatumError>>,
    ) -> Result<Vec<Answer>, BackendError> {
        let question = Question {
            run,
            adapter: true,
            top_k: 0,
        };
        let asked = asked.enumerate().map(|(at, it)| Ok((at, it?)));
        let asked: Result<Vec<_>, DatumError> = asked.collect();
        let asked = asked.map_err(|error| no_sequence(&error))?;
        self.ask(question, asked).await
    }
}

/// The loss of samples where their step starts, and cross_entropy with its gradient.
///
/// # Errors
/// As the server's.
pub(super) fn at_start(surrogates: &[Surrogate]) -> Result<(f64, Vec<Datum>), BackendError> {
    sum(surrogates.iter().map(Surrogate::at_start))
}

fn sum(
    each: impl Iterator<Item = Result<(f64, Datum), DatumError>>,
) -> Result<(f64, Vec<Datum>), BackendError> {
    let each: Result<Vec<_>, _> = each.collect();
    let (losses, datums): (Vec<f64>, Vec<Datum>) = each
        .map_err(|error| no_sequence(&error))?
        .into_iter()
        .unzip();
    Ok((losses.iter().sum(), datums))
}

/// The answer of the hint that student and teacher agree on most.
fn best<'a>(student: &Student, teachers: &'a [Answer]) -> Option<&'a Answer> {
    let likely: Vec<Vec<Vec<u32>>> = teachers.iter().map(|it| it.ids.clone()).collect();
    teachers.get(most_agreeing(&student.ids, &likely)?)
}

/// `[R · K]` as `[R][K]`.
fn rows(flat: &[f32]) -> Vec<Vec<f32>> {
    flat.chunks(TOP_K as usize).map(<[f32]>::to_vec).collect()
}

/// What came of the weights is no number, or of another shape than its sequence.
fn no_sequence(error: &DatumError) -> BackendError {
    unreadable(error.to_string())
}
