//! What happened between two looks, one line each.

use metaclaw_skills::Lesson;
use metaclaw_turns::TurnSummary;
use serde_json::Value;

use super::view::View;
use crate::{
    commands::{
        status::{review, spend},
        train_step::came_to,
        turns::{score, short},
    },
    lesson_line::{lesson_line, one_line},
};

/// Lines about what is new in `now`; at the first look, how it stands.
pub(super) fn lines(before: Option<&View>, now: &View) -> Vec<String> {
    let Some(before) = before else {
        let spent = spend(&now.status["spend"]).map(|it| format!("today {it}"));
        let review = review(&now.status).map(|it| format!("review {it}"));
        let first = std::iter::once(now.funnel());
        return first.chain(spent).chain(review).collect();
    };
    let mut lines = Vec::new();
    let is_new = |lesson: &&Lesson| !before.lessons.contains(lesson);
    lines.extend(now.lessons.iter().filter(is_new).map(lesson_line));
    let was_judged = |id| before.judged().any(|turn| turn.id == id);
    let mut judged: Vec<&TurnSummary> = now.judged().filter(|it| !was_judged(it.id)).collect();
    judged.reverse();
    lines.extend(judged.into_iter().map(verdict_line));
    lines.extend(steps(&before.status, &now.status));
    let failing = &now.status["learner"]["judging"]["failing"];
    if let Some(why) = failing.as_str()
        && *failing != before.status["learner"]["judging"]["failing"]
    {
        lines.push(format!("the judge does not answer: {why}"));
    }
    lines
}

/// `+1  12-3 of main: "What is rain?"`.
pub(super) fn verdict_line(turn: &TurnSummary) -> String {
    let verdict = turn.score.map(score).unwrap_or_default();
    let asked = one_line(turn.asked.as_deref().unwrap_or_default());
    let hint = if turn.is_hinted {
        "  (with a hint)"
    } else {
        ""
    };
    format!(
        "{verdict:>2}  {} of {}: \"{}\"{hint}",
        turn.id,
        turn.agent,
        short(&asked, 60)
    )
}

/// Steps that are new.
fn steps(before: &Value, now: &Value) -> Vec<String> {
    let agents = |status: &Value| status["learner"]["agents"].as_array().cloned();
    let known = agents(before).unwrap_or_default();
    let mut lines = Vec::new();
    for agent in agents(now).unwrap_or_default() {
        let step = &agent["last_step"];
        let is_known = known
            .iter()
            .any(|it| it["agent"] == agent["agent"] && it["last_step"]["n"] == step["n"]);
        if let (Some(n), false) = (step["n"].as_u64(), is_known) {
            lines.push(format!(
                "step {n} of {}: {} turns, {}",
                agent["agent"].as_str().unwrap_or("?"),
                step["n_turns"],
                came_to(step)
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::picture::testing::view;
    use super::*;

    #[test]
    fn the_first_line_says_how_it_stands_and_the_others_what_is_new() {
        let mut now = view();
        now.turns[0].asked = Some("雨是什么？".to_owned());
        let first = lines(None, &now);
        insta::assert_snapshot!(first.join("\n"), @r"
        turns 3 -> main 2 -> complete 2 -> judged 2  (no weights are trained)
        today 9000 tokens of chat; 300 of learning (2 questions; 49700 left)
        review 1 skill that a model wrote waits for your look  (metaclaw skills review)
        ");
        assert_eq!(lines(Some(&now), &now), Vec::<String>::new());
        let mut before = now.clone();
        before.lessons.truncate(1);
        before.turns.remove(0);
        before.status["learner"]["judging"]["failing"] = json!(null);
        insta::assert_snapshot!(lines(Some(&before), &now).join("\n"), @r#"
        heard "still too long" -> wish: Answer in one sentence.  (undo 12)
        -1  1-2 of main: "雨是什么？"  (with a hint)
        the judge does not answer: timeout
        "#);
    }
}
