//! What the rooms behind the chat count, as `/metrics` shows it: the gateway knows none of them.

use std::collections::BTreeMap;

use metaclaw_gateway::{Series, SeriesValue};
use metaclaw_learner::{Learner, LearnerCounts, StepReport};
use metaclaw_llm::{AskCounts, ChatClient};
use metaclaw_skills::{LessonState, Library};
use metaclaw_turns::{BreakCounts, TurnLog};

/// A metric: its name, what it says, and what may become of it.
type Metric = (&'static str, &'static str, MetricKind);
type Label = (&'static str, &'static str);
type MetricKind = fn(u64) -> SeriesValue;

/// Agents that have series of their own.
const MAX_AGENTS: usize = 64;

const VERDICTS: Metric = (
    "verdicts",
    "Verdicts that rules and the judge's model have given",
    SeriesValue::Counter,
);
const JUDGE_REQUESTS: Metric = (
    "judge_requests",
    "Requests to the judge's model, each attempt of each vote",
    SeriesValue::Counter,
);
const JUDGE_FAILURES: Metric = (
    "judge_failures",
    "Requests to the judge's model that brought no answer",
    SeriesValue::Counter,
);
const JUDGE_TOKENS: Metric = (
    "judge_tokens",
    "Tokens that the judge's model was asked and has answered",
    SeriesValue::Counter,
);
const JUDGE_QUEUE: Metric = (
    "judge_queue_turns",
    "Turns that wait for a verdict",
    SeriesValue::Gauge,
);
const SAMPLES: Metric = (
    "training_queue_samples",
    "Samples that wait for a batch",
    SeriesValue::Gauge,
);
const STEPS: Metric = (
    "training_steps",
    "Training steps by what came of them",
    SeriesValue::Counter,
);
const LESSONS: Metric = (
    "lessons",
    "Lessons of all agents by what became of them",
    SeriesValue::Gauge,
);

const PREFIX_BREAKS: Metric = (
    "prefix_breaks",
    "Prompts that broke with an earlier prompt of their session, by who changed them",
    SeriesValue::Counter,
);
const TRAINED_SAMPLES: Metric = (
    "trained_samples",
    "Samples that steps were made of",
    SeriesValue::Counter,
);
const TRAINED_TURNS: Metric = (
    "trained_turns",
    "Turns that steps took",
    SeriesValue::Counter,
);
const TRAINED_TOKENS: Metric = (
    "trained_tokens",
    "Ids that the model read in steps",
    SeriesValue::Counter,
);
const SKIPPED_STEPS: Metric = (
    "skipped_training_steps",
    "Steps whose gradient was out of line and was dropped",
    SeriesValue::Counter,
);

/// A number of an agent's last step: its metric's name, what it says, and where it stands.
type StepMetric = (&'static str, &'static str, fn(&StepReport) -> f64);
const LAST_STEP: [StepMetric; 7] = [
    (
        "policy_version",
        "Optimiser steps behind an agent's newest weights",
        |step| step.step as f64,
    ),
    (
        "training_step_loss",
        "Loss of an agent's last step",
        |step| step.numbers.loss,
    ),
    (
        "training_step_reward",
        "Mean score of the turns of an agent's last step",
        |step| step.batch.reward.mean,
    ),
    (
        "training_step_advantage",
        "Mean advantage in an agent's last step",
        |step| step.batch.advantage.mean,
    ),
    (
        "training_step_grad_norm",
        "Gradient norm of an agent's last step, before clipping",
        |step| step.numbers.grad_norm,
    ),
    (
        "training_step_learning_rate",
        "Learning rate of an agent's last step",
        |step| step.numbers.learning_rate,
    ),
    (
        "training_step_seconds",
        "From taking its turns to serving its adapter, of an agent's last step",
        |step| step.seconds,
    ),
];

/// The rooms that count.
pub(super) struct MetricSources {
    pub(super) learner: Learner,
    /// The judge's models, where any are asked.
    pub(super) judge: Vec<ChatClient>,
    pub(super) library: Library,
    pub(super) log: TurnLog,
}

// === impl MetricSources ===

impl MetricSources {
    /// All metrics. The journal of lessons is a file.
    pub(super) fn series(&self) -> Vec<Series> {
        let asked = self.judge.iter().map(ChatClient::counts).sum();
        let mut series = of_learner(&self.learner.counts(), &asked);
        series.extend(of_steps(&self.learner.last_steps()));
        series.extend(of_lessons(&self.library));
        series.extend(of_prompts(self.log.break_counts()));
        series
    }
}

/// What each agent's last step was like.
fn of_steps(steps: &[StepReport]) -> Vec<Series> {
    let steps = &steps[..steps.len().min(MAX_AGENTS)];
    let of = |(name, help, read): StepMetric| {
        let series = move |step: &StepReport| Series {
            name,
            help,
            label: Some(("agent", step.agent.to_string().into())),
            value: SeriesValue::Measure(read(step)),
        };
        steps.iter().map(series)
    };
    LAST_STEP.into_iter().flat_map(of).collect()
}

/// Prompts that a provider's cache could serve only in part, by who changed them.
fn of_prompts(counts: BreakCounts) -> [Series; 3] {
    [
        one(PREFIX_BREAKS, Some(("by", "own")), counts.own),
        one(PREFIX_BREAKS, Some(("by", "client")), counts.client),
        one(PREFIX_BREAKS, Some(("by", "upstream")), counts.upstream),
    ]
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
        one(
            SAMPLES,
            Some(("method", "context_distillation")),
            counts.n_redo as u64,
        ),
        one(
            SAMPLES,
            Some(("method", "context_distillation_unanswered")),
            counts.n_unanswered as u64,
        ),
        one(
            SAMPLES,
            Some(("method", "binary_rl")),
            counts.n_binary_rl as u64,
        ),
        one(STEPS, Some(("outcome", "trained")), counts.n_steps),
        one(STEPS, Some(("outcome", "refused")), counts.n_refused),
        one(SKIPPED_STEPS, None, counts.n_skipped),
        one(TRAINED_SAMPLES, None, counts.n_trained_samples),
        one(TRAINED_TURNS, None, counts.n_trained_turns),
        one(TRAINED_TOKENS, None, counts.n_trained_tokens),
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
            LessonState::InForce => "in_force",
            LessonState::Replaced { .. } => "replaced",
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
        label: label.map(|(name, value)| (name, value.into())),
        value: kind(value),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use metaclaw_learner::{BatchStats, Numbers};
    use metaclaw_skills::{SkillsConfig, WishesConfig};

    use super::*;

    fn library() -> (tempfile::TempDir, Library) {
        let dir = tempfile::tempdir().unwrap();
        let skills = SkillsConfig::default();
        let (library, _) = Library::open(dir.path(), skills, WishesConfig::default());
        (dir, library)
    }

    fn step() -> StepReport {
        StepReport {
            serves: true,
            gate: None,
            agent: "main".parse().unwrap(),
            lineage: "0badcafe".to_owned(),
            n: 1,
            step: 9,
            adapter: "main-0badcafe-000001".to_owned(),
            n_redo: 0,
            n_again: 0,
            n_binary_rl: 4,
            n_turns: 4,
            mean_reward: 0.5,
            success_rate: 0.75,
            numbers: Numbers {
                learning_rate: 5e-4,
                ..Numbers::default()
            },
            batch: BatchStats::default(),
            seconds: 1.5,
            ended_ms: 0,
        }
    }

    #[test]
    fn the_numbers_of_the_last_step_are_told_by_agent_and_agents_are_bounded() {
        let series = of_steps(&vec![step(); 100]);
        assert_eq!(series.len(), LAST_STEP.len() * MAX_AGENTS);
        let found = |name: &str| series.iter().find(|it| it.name == name).unwrap();
        let rate = found("training_step_learning_rate");
        assert_eq!(rate.value, SeriesValue::Measure(5e-4));
        assert_eq!(rate.label, Some(("agent", "main".into())));
        assert_eq!(found("policy_version").value, SeriesValue::Measure(9.0));
    }

    #[test]
    fn everything_that_is_documented_is_there_and_nothing_else() {
        let (_dir, library) = library();
        let counts = (LearnerCounts::default(), AskCounts::default());
        let mut series = of_learner(&counts.0, &counts.1);
        series.extend(of_steps(&[step()]));
        series.extend(of_lessons(&library));
        series.extend(of_prompts(BreakCounts::default()));
        let shown = series.iter().map(|it| {
            let (end, kind) = match it.value {
                SeriesValue::Counter(_) => ("_total", "counter"),
                SeriesValue::Gauge(_) | SeriesValue::Measure(_) => ("", "gauge"),
            };
            let label = it
                .label
                .as_ref()
                .map_or_else(String::new, |(name, _)| format!("`{name}`"));
            format!("`metaclaw_{}{end}` | {kind} | {label}", it.name)
        });
        let text = include_str!("../../../../docs/operating/metrics.md");
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
        let expected = expected.map(|(state, n)| (state.into(), SeriesValue::Gauge(n)));
        assert_eq!(counts, expected);
    }
}
