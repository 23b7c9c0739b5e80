//! What the rooms behind the chat count, as `/metrics` shows it: the gateway knows none of them.

use metaclaw_gateway::{Series, SeriesValue};
use metaclaw_learner::{Learner, LearnerCounts, StepReport};
use metaclaw_llm::{AskCounts, ChatClient};
use metaclaw_skills::Library;
use metaclaw_turns::{BreakCounts, TurnLog};
use serde_json::{Value, json};

const METRICS: &str = include_str!("../../data/metrics.tsv");
const MAX_AGENTS: usize = 64;

const LESSON_STATES: [&str; 6] = [
    "state=in_force",
    "state=replaced",
    "state=noted",
    "state=review",
    "state=undone",
    "state=forgotten",
];

type StepMetric = (&'static str, fn(&StepReport) -> f64);
const LAST_STEP: [StepMetric; 7] = [
    ("policy_version", |step| step.step as f64),
    ("training_step_loss", |step| step.numbers.loss),
    ("training_step_reward", |step| step.batch.reward.mean),
    ("training_step_advantage", |step| step.batch.advantage.mean),
    ("training_step_grad_norm", |step| step.numbers.grad_norm),
    ("training_step_learning_rate", |step| {
        step.numbers.learning_rate
    }),
    ("training_step_seconds", |step| step.seconds),
];

pub(super) struct MetricSources {
    pub(super) learner: Learner,
    pub(super) judge: Vec<ChatClient>,
    pub(super) library: Library,
    pub(super) log: TurnLog,
}

// === impl MetricSources ===

impl MetricSources {
    pub(super) fn series(&self) -> Vec<Series> {
        let asked = self.judge.iter().map(ChatClient::counts).sum();
        let mut series = of_learner(&self.learner.counts(), &asked);
        series.extend(of_steps(&self.learner.last_steps()));
        series.extend(of_lessons(&self.library));
        series.extend(of_prompts(self.log.break_counts()));
        series
    }
}

fn of_steps(steps: &[StepReport]) -> Vec<Series> {
    let steps = &steps[..steps.len().min(MAX_AGENTS)];
    let series = |(name, read): StepMetric| {
        let series = move |step: &StepReport| Series {
            name,
            help: kind_and_help(name).1,
            label: Some(("agent", step.agent.to_string().into())),
            value: SeriesValue::Measure(read(step)),
        };
        steps.iter().map(series)
    };
    LAST_STEP.into_iter().flat_map(series).collect()
}

/// Prompts that a provider's cache could serve only in part, by who changed them.
fn of_prompts(counts: BreakCounts) -> [Series; 3] {
    [
        one("prefix_breaks", "by=own", counts.own),
        one("prefix_breaks", "by=client", counts.client),
        one("prefix_breaks", "by=upstream", counts.upstream),
    ]
}

fn of_learner(counts: &LearnerCounts, asked: &AskCounts) -> Vec<Series> {
    let sample = |method, n: usize| one("training_queue_samples", method, n as u64);
    vec![
        one("verdicts", "score=-1", counts.n_bad),
        one("verdicts", "score=0", counts.n_unclear),
        one("verdicts", "score=1", counts.n_good),
        one("judge_requests", "", asked.requests),
        one("judge_failures", "", asked.failures),
        one("judge_tokens", "kind=prompt", asked.prompt_tokens),
        one("judge_tokens", "kind=completion", asked.completion_tokens),
        one("judge_queue_turns", "", counts.n_waiting as u64),
        sample("method=context_distillation", counts.n_redo),
        sample(
            "method=context_distillation_unanswered",
            counts.n_unanswered,
        ),
        sample("method=binary_rl", counts.n_binary_rl),
        one("training_steps", "outcome=trained", counts.n_steps),
        one("training_steps", "outcome=refused", counts.n_refused),
        one("skipped_training_steps", "", counts.n_skipped),
        one("trained_samples", "", counts.n_trained_samples),
        one("trained_turns", "", counts.n_trained_turns),
        one("trained_tokens", "", counts.n_trained_tokens),
    ]
}

/// None where the journal cannot be read, of which others tell.
fn of_lessons(library: &Library) -> Vec<Series> {
    let Ok(lessons) = library.journal() else {
        return Vec::new();
    };
    let states: Vec<Value> = lessons
        .iter()
        .map(|lesson| json!(lesson.state)["state"].take())
        .collect();
    let count = |label: &str| {
        let name = label.strip_prefix("state=");
        states.iter().filter(|state| state.as_str() == name).count()
    };
    let series = LESSON_STATES.map(|state| one("lessons", state, count(state) as u64));
    series.into()
}

fn one(name: &'static str, label: &'static str, value: u64) -> Series {
    let (kind, help) = kind_and_help(name);
    Series {
        name,
        help,
        label: label
            .split_once('=')
            .map(|(name, value)| (name, value.into())),
        value: match kind {
            "gauge" => SeriesValue::Gauge(value),
            _ => SeriesValue::Counter(value),
        },
    }
}

fn kind_and_help(name: &str) -> (&'static str, &'static str) {
    let mut rows = METRICS.lines().filter_map(|line| line.split_once('\t'));
    let row = rows.find_map(|(known, row)| (known == name).then_some(row));
    row.and_then(|row| row.split_once('\t')).unwrap_or_default()
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
        let found = |name: &str| series.iter().find(|one| one.name == name).unwrap();
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
        let shown = series.iter().map(|one| {
            let (end, kind) = match one.value {
                SeriesValue::Counter(_) => ("_total", "counter"),
                SeriesValue::Gauge(_) | SeriesValue::Measure(_) => ("", "gauge"),
            };
            assert!(!one.help.is_empty(), "{} is not described", one.name);
            let label = one
                .label
                .as_ref()
                .map_or_else(String::new, |(name, _)| format!("`{name}`"));
            format!("`metaclaw_{}{end}` | {kind} | {label}", one.name)
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
        ]
        .map(|(state, n)| (state.into(), SeriesValue::Gauge(n)));
        assert_eq!(counts, expected);
    }
}
