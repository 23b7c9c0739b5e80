//! What happened between two looks, one line each.

use metaclaw_control::{lesson_line::lesson_line, status::ProcessStatus};
use metaclaw_learner::StepReport;
use metaclaw_skills::Lesson;
use metaclaw_turns::TurnSummary;

use super::{verdict_line::verdict_line, view::LearnView};
use crate::commands::{
    status::{review, spend},
    train_step::came_to,
};

/// Lines about what is new in `now`; at the first look, how it stands.
pub(super) fn lines(before: Option<&LearnView>, now: &LearnView) -> Vec<String> {
    let Some(before) = before else {
        let review = review(&now.status).map(|it| format!("review {it}"));
        let first = [
            format!("turns {}", now.funnel()),
            format!("today {}", spend(&now.status.spend)),
        ];
        return first.into_iter().chain(review).collect();
    };
    let mut lines = Vec::new();
    let is_new = |lesson: &&Lesson| !before.lessons.contains(lesson);
    lines.extend(now.lessons.iter().filter(is_new).map(lesson_line));
    let was_judged = |id| before.judged().any(|turn| turn.id == id);
    let mut judged: Vec<&TurnSummary> = now.judged().filter(|it| !was_judged(it.id)).collect();
    judged.reverse();
    lines.extend(judged.into_iter().map(verdict_line));
    lines.extend(steps(&before.status, &now.status));
    let failing = failing(&now.status);
    if let Some(why) = failing.filter(|_| failing != self::failing(&before.status)) {
        lines.push(format!("the judge does not answer: {why}"));
    }
    lines
}

/// Why the judge does not answer, where it does not.
fn failing(status: &ProcessStatus) -> Option<&str> {
    status.learner.as_ref()?.judging.failing.as_deref()
}

/// Steps that are new.
fn steps(before: &ProcessStatus, now: &ProcessStatus) -> Vec<String> {
    let known: Vec<_> = last_steps(before)
        .map(|step| (&step.agent, step.n))
        .collect();
    let is_new = |step: &&StepReport| !known.contains(&(&step.agent, step.n));
    let told = |step: &StepReport| {
        format!(
            "step {} of {}: {} turns, {}",
            step.n,
            step.agent,
            step.n_turns,
            came_to(step)
        )
    };
    last_steps(now).filter(is_new).map(told).collect()
}

/// The last step of each agent.
fn last_steps(status: &ProcessStatus) -> impl Iterator<Item = &StepReport> {
    let agents = status.learner.iter().flat_map(|it| &it.agents);
    agents.filter_map(|agent| agent.last_step.as_ref())
}

#[cfg(test)]
mod tests {
    use super::super::picture::testing::view;
    use super::*;

    #[test]
    fn the_first_line_says_how_it_stands_and_the_others_what_is_new() {
        let mut now = view();
        now.turns[0].asked = Some("雨是什么？".to_owned());
        let first = lines(None, &now);
        insta::assert_snapshot!(first.join("\n"), @r"
        turns recorded 3 -> main 2 -> complete 2 -> judged 2  (no weights are trained)
        today 9000 tokens of chat; 300 of learning (2 questions; 49700 left)
        review 1 skill that a model wrote waits for your look  (metaclaw skills review)
        ");
        assert_eq!(lines(Some(&now), &now), Vec::<String>::new());
        let mut before = now.clone();
        before.lessons.truncate(1);
        before.turns.remove(0);
        before.status.learner.as_mut().unwrap().judging.failing = None;
        insta::assert_snapshot!(lines(Some(&before), &now).join("\n"), @r#"
        heard "still too long" -> wish: Answer in one sentence.  (undo 12)
        -1  1-2 of main: "雨是什么？"  (with a hint)
        the judge does not answer: timeout
        "#);
    }
}
