//! Weights: what training does now, and one table of what was trained: what it learned, how the gate tested it, whether it
//! serves.

use crate::{
    elements::{ActionForm, ButtonKind, ago, count, distance, empty, live},
    failure::PageFailure,
    layout::{Frame, Section},
    plot::figure,
    state::{LongTask, PageState, TaskProgress},
};
use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::now_ms;
use metaclaw_control::replies::{AgentStatus, GateReport, LearnerStatus, Phase, StepOutcome};
use metaclaw_control::{
    adapters::{AdapterDetail, ManifestView, StepDetail},
    curves::CurvesWanted,
    operations::{
        process::GetStatus,
        weights::{ListAdapters, ListSteps},
    },
};

const SHOWN: usize = 50;
const LOSS: &str = "loss";

/// A training step, or an adapter that no step of the log made.
struct TrainingRow<'a> {
    at_ms: u64,
    /// The adapter's name, also of one that is gone; empty where none was made.
    name: String,
    step: Option<&'a StepDetail>,
    adapter: Option<&'a AdapterDetail>,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
) -> Result<Markup, PageFailure> {
    let now_ms = now_ms();
    let learner = state.ask(GetStatus).await.ok().and_then(|it| it.learner);
    let steps = state.ask(ListSteps(None)).await?;
    let adapters = state.ask(ListAdapters).await;
    let wanted = CurvesWanted {
        agent: None,
        days: 1,
    };
    let curves = state.ask(wanted).await?;
    let loss = curves.iter().find(|it| it.id == LOSS && !it.is_empty());
    let known = adapters.as_deref().unwrap_or_default();
    let rows = TrainingRow::all(&steps, known);
    let trains = learner.as_ref().is_some_and(|it| it.phase != Phase::Off);
    let body = html! {
        h1 { "Training" }
        (live("tasks", &long_tasks(&state.long_tasks(), now_ms)))
        (live("now", &now(learner.as_ref(), &frame.here, now_ms)))
        @if let Err(failure) = &adapters { p.notice.bad { "The training server does not say which adapters it has: " (failure.message) } }
        @if trains || !rows.is_empty() {
            section aria-labelledby="trained" {
                h2 #trained { "What was trained" }
                @if let Some(loss) = loss.and_then(figure) { div.small { (live("loss", &loss)) } }
                (live("steps", &table(&rows, &frame.here, now_ms)))
            }
        }
    };
    Ok(frame.page("Training", Section::Training, &body))
}

pub(crate) fn long_tasks(tasks: &[LongTask], now_ms: u64) -> Markup {
    html! {
        @for task in tasks {
            @match &task.progress {
                TaskProgress::Running => { p.notice { (task.label) ": running for " (distance(now_ms.saturating_sub(task.begun_ms))) "." } }
                TaskProgress::Done(told) => { p.notice { (task.label) ": " (told) " " span.soft { (ago(task.begun_ms, now_ms)) } } }
                TaskProgress::Failed(why) => { p.notice.bad { (task.label) " was not done: " (why) " " span.soft { (ago(task.begun_ms, now_ms)) } } }
            }
        }
    }
}

fn now(learner: Option<&LearnerStatus>, here: &str, now_ms: u64) -> Markup {
    let Some(learner) = learner else {
        return html! { p.notice { "The state of training is not known now. See " a href="/ui/health" { "Health" } } };
    };
    if learner.phase == Phase::Off {
        let next = html! { "Wishes and skills work without training. To train a small model on this machine, run " code { "metaclaw config trainer.model demo" } ", and start MetaClaw again." };
        return empty("No model is trained here.", &next);
    }
    html! {
        p.lead { (doing(&learner.phase, now_ms)) }
        p.soft { "Training that costs something waits until you are away. Now: " (learner.window) "." }
        @if let Some(why) = &learner.judging.failing { p.notice.bad { "The judge does not answer: " (why) } }
        @for agent in &learner.agents { (agent_now(agent, learner.batch_size, here)) }
        @if learner.n_more > 0 { p.soft { (learner.n_more) " more agents are not shown: they have fewer turns, and no step yet." } }
    }
}

fn doing(phase: &Phase, now_ms: u64) -> String {
    let since = |ms: u64| distance(now_ms.saturating_sub(ms));
    let until = |ms: u64| distance(ms.saturating_sub(now_ms));
    match phase {
        Phase::Off => "No weights are trained.".to_owned(),
        Phase::Collecting => "Collecting judged replies for the next step.".to_owned(),
        Phase::AwaitingRequest => {
            "A batch is ready, and waits for the button below (rl.manual_train_trigger is true, or gate.enabled is false)."
                .to_owned()
        }
        Phase::AwaitingWindow => "A batch is ready, and waits until you are away.".to_owned(),
        Phase::Teaching { agent, since_ms } => {
            format!("The teacher has been answering a turn of {agent} for {}.", since(*since_ms))
        }
        Phase::Paused { agent } => format!("A step for {agent} pauses while you chat."),
        Phase::Stepping { agent, n, since_ms } => {
            format!("Step {n} of {agent} has been training for {}.", since(*since_ms))
        }
        Phase::Testing {
            agent,
            adapter,
            since_ms,
        } => format!("Tests of {adapter} of {agent} have been running for {}.", since(*since_ms)),
        Phase::WaitingForTrainer { why } => format!("Training waits for its server: {why}."),
        Phase::Refused { why, until_ms } => {
            format!("The training server refuses: {why}. It is asked again in {}.", until(*until_ms))
        }
        Phase::Resting { why, until_ms, .. } => {
            format!("Training rests: {why}. The next try is in {}.", until(*until_ms))
        }
        Phase::Finished { agent, n_steps } => {
            format!("{agent} has made the {n_steps} steps of rl.max_steps.")
        }
    }
}

fn agent_now(agent: &AgentStatus, batch_size: usize, here: &str) -> Markup {
    let name = agent.agent.as_str();
    let n = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    html! {
        div.card {
            h3 { (name) }
            dl.facts {
                div { dt { "Answers with" } dd { (agent.adapter.as_deref().unwrap_or("the base model")) } }
                div { dt { "Ready for a step" } dd {
                    (count(n(agent.n_redo), "taught reply")) ", " (count(n(agent.n_binary_rl), "judged reply"))
                    " " span.soft { "(a batch takes " (batch_size) ")" }
                } }
                @if agent.n_unanswered > 0 { div { dt { "Waiting for the teacher" } dd { (agent.n_unanswered) } } }
                @for (why, n) in &agent.not_taught { div { dt { "Not taught" } dd { (n) ": " (why) } } }
                @if let Some(it) = &agent.began_anew { div { dt { "Began anew" } dd { (it.why) } } }
            }
            div.actions {
                (ActionForm {
                    action: "train", fields: &[("agent", name)], label: "Train a step now", about: name, back: here,
                    kind: ButtonKind::Plain,
                })
                @if agent.adapter.is_some() {
                    (ActionForm {
                        action: "roll-back", fields: &[("agent", name)], label: "Go back one adapter", about: name,
                        back: here, kind: ButtonKind::Plain,
                    })
                    (ActionForm {
                        action: "adapter", fields: &[("agent", name)], label: "Serve with the base model", about: name,
                        back: here, kind: ButtonKind::Plain,
                    })
                }
            }
        }
    }
}

fn table(rows: &[TrainingRow<'_>], here: &str, now_ms: u64) -> Markup {
    if rows.is_empty() {
        let next = html! { "A step is made when enough replies were judged and you are away, or when you press “Train a step now”." };
        return empty("No step was made yet: the base model answers.", &next);
    }
    html! {
        table.steps {
            thead { tr { th { "When" } th { "What it learned" } th.number { "Turns" } th { "Tests" } th { "Use" } } }
            tbody { @for row in rows.iter().take(SHOWN) { (row.shown(here, now_ms)) } }
        }
        @if rows.len() > SHOWN { p.soft { "Older ones are left out here." } }
    }
}

// === impl TrainingRow ===

impl<'a> TrainingRow<'a> {
    /// Returns all rows, the newest first.
    fn all(steps: &'a [StepDetail], adapters: &'a [AdapterDetail]) -> Vec<Self> {
        let known = |name: &str| adapters.iter().find(|it| it.view.name == name);
        let of_steps = steps.iter().map(|detail| {
            let begun = &detail.step.begun;
            let name = match &detail.step.outcome {
                Some(
                    StepOutcome::Trained { adapter, .. } | StepOutcome::Declined { adapter, .. },
                ) => adapter.clone(),
                Some(StepOutcome::Released { .. }) => String::new(),
                None => format!("{}-{}-{:06}", begun.agent, begun.lineage, begun.n),
            };
            TrainingRow {
                at_ms: detail.step.taken_ms,
                step: Some(detail),
                adapter: known(&name),
                name,
            }
        });
        let mut rows: Vec<Self> = of_steps.collect();
        let others = adapters
            .iter()
            .filter(|it| rows.iter().all(|row| row.name != it.view.name));
        let others: Vec<Self> = others
            .map(|it| TrainingRow {
                at_ms: it.view.created_ms.unwrap_or_default(),
                name: it.view.name.clone(),
                step: None,
                adapter: Some(it),
            })
            .collect();
        rows.extend(others);
        rows.sort_by_key(|row| std::cmp::Reverse(row.at_ms));
        rows
    }

    fn id(&self) -> String {
        match self.step {
            Some(StepDetail { step, .. }) if self.name.is_empty() => {
                format!(
                    "{}-{}-{}",
                    step.begun.lineage, step.begun.n, step.begun.attempt
                )
            }
            _ => self.name.clone(),
        }
    }

    fn shown(&self, here: &str, now_ms: u64) -> Markup {
        let n_turns = self.step.map(|it| it.step.begun.turns.len());
        html! {
            tr id=(self.id()) {
                td { @if self.at_ms > 0 { (ago(self.at_ms, now_ms)) } }
                td { details id={ "of-" (self.id()) } {
                    summary { (self.learned()) }
                    (self.details(now_ms))
                } }
                td.number { @if let Some(n) = n_turns { (n) } }
                td { (self.gate()) }
                td { (self.state()) @if self.may_serve() {
                    (ActionForm {
                        action: "adapter", fields: &[("adapter", &self.name)], label: "Serve this", about: &self.name,
                        back: here, kind: ButtonKind::Plain,
                    })
                } }
            }
        }
    }

    /// What it learned on one line: the first text, and how many more there are.
    fn learned(&self) -> Markup {
        let texts = self
            .step
            .map(|it| it.learned.as_slice())
            .unwrap_or_default();
        let made = self.made();
        let made = made.as_ref().and_then(|it| it.made.as_ref());
        html! {
            @match (texts, self.step) {
                ([first, more @ ..], _) => {
                    "“" (first) "”" @if !more.is_empty() { span.soft { " + " (more.len()) " more" } }
                }
                ([], Some(_)) => { "From verdicts alone, without words" }
                ([], None) => {
                    @if let Some(data) = made.and_then(|it| it.data.as_ref()) { "The data set " (data.file) }
                    @else if let Some(replay) = made.and_then(|it| it.replay.as_ref()) { "The replay " (replay.name) }
                    @else { "Not known" }
                }
            }
        }
    }

    fn made(&self) -> Option<ManifestView> {
        self.adapter?.manifest.as_ref().map(ManifestView::read)
    }

    fn gate(&self) -> Markup {
        let Some(StepDetail { step, gate, .. }) = self.step else {
            return html! {};
        };
        html! {
            @match (&step.outcome, gate) {
                (None, _) => { span.soft { "not yet" } }
                (Some(StepOutcome::Declined { why, .. }), _) => { "declined: " (why) }
                (Some(StepOutcome::Released { why }), _) => { span.soft { "not tested: " (why) } }
                (Some(StepOutcome::Trained { .. }), Some(_)) => { "passed" }
                (Some(StepOutcome::Trained { .. }), None) => { span.soft { "not tested" } }
            }
        }
    }

    fn serves(&self) -> bool {
        self.adapter.is_some_and(|it| !it.view.agents.is_empty())
    }

    /// The command refuses the same ones.
    fn may_serve(&self) -> bool {
        !self.serves() && self.adapter.is_some_and(|it| it.view.unfit.is_none())
    }

    fn state(&self) -> Markup {
        let step = self.step.map(|it| &it.step);
        let (class, word) = match step.map(|it| (&it.outcome, &it.taken_back)) {
            _ if self.serves() => ("good", "serves now"),
            Some((_, Some(_))) => ("bad", "rolled back"),
            Some((Some(StepOutcome::Trained { .. }), None)) => ("open", "served"),
            Some((Some(StepOutcome::Declined { .. }), None)) => ("bad", "declined"),
            Some((Some(StepOutcome::Released { .. }), None)) => ("unclear", "not made"),
            Some((None, None)) => ("open", "under way"),
            None => return html! {},
        };
        html! { span.mark.(class) { (word) } " " }
    }

    fn details(&self, now_ms: u64) -> Markup {
        html! {
            div.of-step {
                @if let Some(StepDetail { learned, step, gate }) = self.step {
                    @if learned.len() > 1 { ul { @for text in learned { li { "“" (text) "”" } } } }
                    @if let Some(back) = &step.taken_back {
                        p { "Rolled back " (ago(back.at_ms, now_ms)) ": " (back.why) ". Since then "
                            (back.to.as_deref().unwrap_or("the base model")) " serves." }
                    }
                    @if let Some(pair) = gate.as_ref().and_then(|it| it.pair.as_ref()) {
                        p.soft { "One of the test questions: “" (pair.question) "”" }
                        div.columns {
                            figure.quote { blockquote { (pair.before) } figcaption { "Base model" } }
                            figure.quote { blockquote { (pair.after) } figcaption { "With this adapter" } }
                        }
                    }
                }
                dl.facts {
                    @if !self.name.is_empty() { div { dt { "Adapter" } dd { code { (self.name) } } } }
                    @if let Some(adapter) = self.adapter { div { dt { "Trained from" } dd { (lineage(adapter)) } } }
                    @if let Some(made) = self.made() { (figures(&made)) }
                    @else if self.adapter.is_some() { div { dt { "Figures" } dd { "Not known: its checkpoint was deleted." } } }
                    @if let Some(it) = self.step {
                        div { dt { "Its turns" } dd { @for (at, turn) in it.step.begun.turns.iter().enumerate() {
                            @if at > 0 { ", " } a href={ "/ui/turns/" (turn) } { (turn) }
                        } } }
                    }
                }
                @if let Some(gate) = self.step.and_then(|it| it.gate.as_ref()) { (gate_results(gate)) }
            }
        }
    }
}

fn lineage(it: &AdapterDetail) -> Markup {
    html! {
        @if it.ancestors.is_empty() {
            (it.view.parent.as_deref().unwrap_or("the base model"))
        } @else {
            @for name in &it.ancestors { a href={ "#" (name) } { (name) } " ← " }
            "the base model"
        }
    }
}

fn figures(says: &ManifestView) -> Markup {
    let (numbers, batch, shape) = (&says.numbers, &says.batch, &says.shape);
    html! {
        div { dt { "Base model" } dd { (shape.base.as_deref().unwrap_or("?")) ", rank " (shape.rank) } }
        div { dt { "Loss" } dd { (format!("{:.4}", numbers.loss)) @if numbers.skipped { "; too far off, so no step was taken" } } }
        div { dt { "Gradient norm" } dd { (format!("{:.4}", numbers.grad_norm)) } }
        div { dt { "Learning rate" } dd { (format!("{:.2e}", numbers.learning_rate)) } }
        div { dt { "Samples" } dd { @for (method, n) in &batch.samples { (n) " " (method) " " } } }
        div { dt { "Mean score" } dd { (format!("{:+.3}", batch.reward.mean)) } }
    }
}

fn gate_results(report: &GateReport) -> Markup {
    let n_tests = u64::try_from(report.tests.len()).unwrap_or(u64::MAX);
    html! {
        p.soft { (count(n_tests, "test")) ", " (report.failed().count()) " failed" }
        div.scroll { table.dense {
            thead { tr { th { "Test" } th { "Result" } th { "In words" } } }
            tbody { @for test in &report.tests { tr {
                td { (test.name) }
                td { @match test.passed {
                    Some(true) => { span.mark.good { "passed" } }
                    Some(false) => { span.mark.bad { "failed" } }
                    None => { span.mark.open { "skipped" } }
                } }
                td { (test.why) }
            } } }
        } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW_MS: u64 = 90_000_000;

    fn step(n: u64, learned: &[&str], outcome: &Value, taken_back: bool) -> StepDetail {
        let back = json!({"at_ms": NOW_MS - 60_000, "to": null, "why": "4 of 5 replies were bad, before 1 of 9"});
        let gate = json!({"tests": [
            {"name": "fluency", "value": 1.2, "limit": 1.6, "passed": true, "why": "fluency 1.20, at most 1.60"},
            {"name": "tools", "value": 9.0, "limit": 12.0, "passed": false, "why": "tools 9.00 of 16 prompts with tools answered well, at least 12.00"}],
            "seconds": 3.0, "pair": {"question": "How do I boil an egg?", "before": "Boiling an egg is easy. First, take a pot …", "after": "Six minutes in boiling water."}});
        serde_json::from_value(json!({"agent": "main", "lineage": "0badcafe", "n": n, "attempt": 0, "turns": ["1-0", "1-2"],
            "max_uses": 1, "parent": null, "hash": "77ab", "taken_ms": n * 3_600_000, "outcome": outcome,
            "taken_back": taken_back.then_some(back), "learned": learned,
            "gate": (!outcome.is_null()).then_some(gate)}))
        .unwrap()
    }

    fn adapter(n: u64, agents: &[&str], unfit: Option<&str>) -> AdapterDetail {
        serde_json::from_value(json!({"name": name(n), "agents": agents, "n_leases": 0, "created_ms": n * 3_600_000,
            "unfit": unfit, "sha256": null, "ancestors": [], "turns": {}, "outcome": null, "parent": null,
            "manifest": {"made": {"data": {"file": "chats.jsonl"}}}}))
        .unwrap()
    }

    fn name(n: u64) -> String {
        format!("main-0badcafe-{n:06}")
    }

    fn trained(n: u64) -> Value {
        json!({"came_to": "trained", "adapter": name(n), "checkpoint": name(n)})
    }

    /// Each expected row is a step's number, a text in its row, and whether the row has a button.
    #[test]
    fn each_step_says_what_it_learned_and_whether_it_serves() {
        let declined = json!({"came_to": "declined", "adapter": name(3), "checkpoint": name(3), "gate": {},
            "why": "tools 9.00 of 16, at least 12.00", "at_ms": 1, "n_judged": 1});
        let released = json!({"came_to": "released", "why": "out of memory"});
        let steps = [
            step(
                1,
                &[
                    "Keep answers short.",
                    "Too long again.",
                    "Use metric units.",
                ],
                &trained(1),
                false,
            ),
            step(2, &["Too long."], &trained(2), true),
            step(3, &["<b>No lists."], &declined, false),
            step(4, &[], &released, false),
            step(5, &["Be kind."], &trained(5), false),
            step(6, &["Say less."], &Value::Null, false),
        ];
        let adapters = [
            adapter(1, &[], None),
            adapter(2, &[], None),
            adapter(3, &[], Some("declined by the gate: tools")),
            adapter(5, &["main"], None),
            adapter(6, &[], Some("under test")),
            adapter(9, &[], None),
        ];
        let rows = TrainingRow::all(&steps, &adapters);
        let shown = table(&rows, "/ui/training", NOW_MS).into_string();
        let mut parts = shown.split("<tr id=").skip(1);
        for (said, has_button) in [
            (["The data set chats.jsonl", "Serve this"], true),
            (["“Say less.”", "under way"], false),
            (["“Be kind.”", "serves now"], false),
            (["From verdicts alone", "not made"], false),
            (
                ["“&lt;b&gt;No lists.”", "declined: tools 9.00 of 16"],
                false,
            ),
            (["“Too long.”", "rolled back"], true),
            (
                [
                    "“Keep answers short.”<span class=\"soft\"> + 2 more",
                    "served",
                ],
                true,
            ),
        ] {
            let row = parts.next().unwrap();
            for part in said {
                assert!(row.contains(part), "{part}: {row}");
            }
            assert_eq!(row.contains("Serve this"), has_button, "{row}");
        }
        assert_eq!(parts.next(), None);
    }
}
