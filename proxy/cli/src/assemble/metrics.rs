//! What the rooms behind the chat count, as `/metrics` shows it: the gateway knows none of them.

use std::{collections::BTreeMap, sync::Weak};

use metaclaw_gateway::{Series, SeriesKind};
use metaclaw_learner::LearnerCounts;
use metaclaw_llm::{AskCounts, ChatClient};
use metaclaw_skills::{LessonState, Library};

use crate::app::{App, LateApp};

/// A metric: its name, what it says, and what may become of it.
type Metric = (&'static str, &'static str, SeriesKind);
type Label = (&'static str, &'static str);

const VERDICTS: Metric = (
    "verdicts",
    "Verdicts that rules and the judge's model have given",
    SeriesKind::Counter,
);
const JUDGE_REQUESTS: Metric = (
    "judge_requests",
    "Requests to the judge's model, each attempt of each vote",
    SeriesKind::Counter,
);
const JUDGE_FAILURES: Metric = (
    "judge_failures",
    "Requests to the judge's model that brought no answer",
    SeriesKind::Counter,
);
const JUDGE_TOKENS: Metric = (
    "judge_tokens",
    "Tokens that the judge's model was asked and has answered",
    SeriesKind::Counter,
);
const JUDGE_QUEUE: Metric = (
    "judge_queue_turns",
    "Turns that wait for a verdict",
    SeriesKind::Gauge,
);
const SAMPLES: Metric = (
    "training_queue_samples",
    "Samples that wait for a batch",
    SeriesKind::Gauge,
);
const STEPS: Metric = (
    "training_steps",
    "Training steps by what came of them",
    SeriesKind::Counter,
);
const LESSONS: Metric = (
    "lessons",
    "Lessons of all agents by what became of them",
    SeriesKind::Gauge,
);

/// All of them. The journal of lessons is a file.
pub(super) fn series(app: &LateApp) -> Vec<Series> {
    let Some(app) = app.get().and_then(Weak::upgrade) else {
        return Vec::new();
    };
    let App {
        learner,
        judge,
        library,
        ..
    } = &*app;
    let asked = judge.as_ref().map(ChatClient::counts);
    let mut series = of_learner(&learner.counts(), &asked.unwrap_or_default());
    series.extend(of_lessons(library));
    series
}

fn of_learner(counts: &LearnerCounts, asked: &AskCounts) -> Vec<Series> {
    vec![
        one(VERDICTS, Some(("score", "-1")), counts.n_bad),
        one(VERDICTS, Some(("score", "0")), counts.n_unclear),
        one(VERDICTS, Some(("score", "1")), counts.n_good),
        one(JUDGE_REQUESTS, None, asked.requests),
        one(JUDGE_FAILURES, None, asked.failures),
        one(JUDGE_TOKENS, Some(("kind", "prompt")), asked.prompt_tokens),
        one(
            JUDGE_TOKENS,
            Some(("kind", "completion")),
            asked.completion_tokens,
        ),
        one(JUDGE_QUEUE, None, counts.n_waiting as u64),
        one(SAMPLES, Some(("method", "redo")), counts.n_redo as u64),
        one(
            SAMPLES,
            Some(("method", "redo_unanswered")),
            counts.n_unanswered as u64,
        ),
        one(
            SAMPLES,
            Some(("method", "binary_rl")),
            counts.n_binary_rl as u64,
        ),
        one(STEPS, Some(("outcome", "trained")), counts.n_steps),
        one(STEPS, Some(("outcome", "refused")), counts.n_refused),
    ]
}

/// None where the journal cannot be read, of which others tell.
fn of_lessons(library: &Library) -> Vec<Series> {
    let Ok(lessons) = library.journal() else {
        return Vec::new();
    };
    let states = [
        "in_force",
        "replaced",
        "noted",
        "review",
        "undone",
        "forgotten",
    ];
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for lesson in lessons {
        let state = match lesson.state {
            LessonState::InForce => {
                let stands = library.own_wishes(&lesson.origin.agent);
                let stands = stands.iter().any(|wish| wish.text == lesson.wish);
                if stands { "in_force" } else { "replaced" }
            }
            LessonState::Noted => "noted",
            LessonState::Review { .. } => "review",
            LessonState::Undone => "undone",
            LessonState::Forgotten => "forgotten",
        };
        *counts.entry(state).or_default() += 1;
    }
    let count = |state: &str| counts.get(state).copied().unwrap_or_default();
    let series = states.map(|state| one(LESSONS, Some(("state", state)), count(state)));
    series.into()
}

fn one((name, help, kind): Metric, label: Option<Label>, value: u64) -> Series {
    Series {
        name,
        help,
        kind,
        label,
        value,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use metaclaw_skills::{SkillsConfig, WishesConfig};

    use super::*;

    fn library() -> (tempfile::TempDir, Library) {
        let dir = tempfile::tempdir().unwrap();
        let skills = SkillsConfig::default();
        let (library, _) = Library::open(dir.path(), skills, WishesConfig::default());
        (dir, library)
    }

    #[test]
    fn everything_that_is_documented_is_there_and_nothing_else() {
        let (_dir, library) = library();
        let counts = (LearnerCounts::default(), AskCounts::default());
        let mut series = of_learner(&counts.0, &counts.1);
        series.extend(of_lessons(&library));
        let shown = series.iter().map(|it| {
            let (end, kind) = match it.kind {
                SeriesKind::Counter => ("_total", "counter"),
                SeriesKind::Gauge => ("", "gauge"),
            };
            let label = it
                .label
                .map_or_else(String::new, |(name, _)| format!("`{name}`"));
            format!("`metaclaw_{}{end}` | {kind} | {label}", it.name)
        });
        let text = include_str!("../../../../docs/metrics.md");
        let (_, table) = text.split_once("\n## ").unwrap();
        let rows = table
            .lines()
            .filter(|line| line.starts_with("| `metaclaw_"));
        let row = |line: &str| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            format!("{} | {} | {}", cells[1], cells[2], cells[3])
        };
        let documented: BTreeSet<String> = rows.map(row).collect();
        assert_eq!(shown.collect::<BTreeSet<_>>(), documented);
    }

    #[test]
    fn a_lesson_is_counted_by_what_became_of_it() {
        let (_dir, library) = library();
        let agent = "main".parse().unwrap();
        for wish in [
            "Please answer in German.",
            "Please answer in French.",
            "Be brief.",
        ] {
            library.write_down(&agent, wish, 1).unwrap();
        }
        library.take_out(&agent, "Be brief.").unwrap();
        let counts = of_lessons(&library).into_iter();
        let counts: Vec<_> = counts.map(|it| (it.label.unwrap().1, it.value)).collect();
        let expected = [
            ("in_force", 1),
            ("replaced", 1),
            ("noted", 0),
            ("review", 0),
            ("undone", 1),
            ("forgotten", 0),
        ];
        assert_eq!(counts, expected);
    }
}
