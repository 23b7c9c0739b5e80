//! Weights: what training does now, its steps with the gate's results, and the adapters with their lineage.

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::now_ms;
use metaclaw_control::replies::{AgentStatus, GateReport, LearnerStatus, Phase};
use metaclaw_control::replies::{Step, StepOutcome};
use metaclaw_control::{
    adapters::{AdapterDetail, ManifestView},
    operations::{
        process::GetStatus,
        weights::{ListAdapters, ListSteps},
    },
};
use serde_json::Value;

use crate::{
    elements::{ActionForm, ButtonKind, ago, count, distance, empty, live},
    failure::PageFailure,
    layout::{Frame, Section},
    query::encoded,
    state::{LongTask, PageState, TaskProgress},
};

const SHOWN: usize = 50;

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
) -> Result<Markup, PageFailure> {
    let now_ms = now_ms();
    let learner = state.ask(GetStatus).await.ok().and_then(|it| it.learner);
    let steps = state.ask(ListSteps(None)).await?;
    let adapters = state.ask(ListAdapters).await;
    let trains = learner.as_ref().is_some_and(|it| it.phase != Phase::Off);
    let body = html! {
        h1 { "Training" }
        (live("tasks", &long_tasks(&state.long_tasks(), now_ms)))
        (live("now", &now(learner.as_ref(), &frame.here, now_ms)))
        @if trains || !steps.is_empty() {
            section aria-labelledby="adapters-title" {
                h2 #adapters-title { "Adapters" }
                @match &adapters {
                    Ok(adapters) => { (live("adapters", &adapter_list(adapters, &frame.here, now_ms))) }
                    Err(failure) => { p.notice.bad { "The training server does not say which adapters it has: " (failure.message) } }
                }
            }
            section aria-labelledby="steps-title" {
                h2 #steps-title { "Steps" }
                (live("steps", &step_list(&steps, now_ms)))
            }
        }
    };
    Ok(frame.page("Training", Section::Training, &body))
}

pub(crate) fn long_tasks(tasks: &[LongTask], now_ms: u64) -> Markup {
    html! {
        @for task in tasks {
            @match &task.progress {
                TaskProgress::Running => { p.notice { (task.label) ": under way since " (distance(now_ms.saturating_sub(task.begun_ms))) "." } }
                TaskProgress::Done(told) => { p.notice { (task.label) ": " (told) " " span.soft { (ago(task.begun_ms, now_ms)) } } }
                TaskProgress::Failed(why) => { p.notice.bad { (task.label) " was not done: " (why) " " span.soft { (ago(task.begun_ms, now_ms)) } } }
            }
        }
    }
}

fn now(learner: Option<&LearnerStatus>, here: &str, now_ms: u64) -> Markup {
    let Some(learner) = learner else {
        return html! { p.notice { "The learner does not say what it does. " a href="/ui/health" { "Health" } } };
    };
    if learner.phase == Phase::Off {
        let next = html! { "Lessons in words work without. To train a model of your own, set " code { "trainer.model" } " (" code { "metaclaw config trainer.model demo" } ")." };
        return empty("No weights are trained here.", &next);
    }
    html! {
        p.lead { (doing(&learner.phase, now_ms)) }
        p.soft { "Training that costs something may run while you are away. The window is " (learner.window) "." }
        @if let Some(why) = &learner.judging.failing { p.notice.bad { "The judge does not answer: " (why) } }
        @for agent in &learner.agents { (agent_now(agent, learner.batch_size, here)) }
        @if learner.n_more > 0 { p.soft { (learner.n_more) " more agents with fewer turns, and without a step, are not shown." } }
    }
}

fn doing(phase: &Phase, now_ms: u64) -> String {
    let since = |ms: u64| distance(now_ms.saturating_sub(ms));
    let until = |ms: u64| distance(ms.saturating_sub(now_ms));
    match phase {
        Phase::Off => "No weights are trained.".to_owned(),
        Phase::Collecting => "Collecting judged replies for the next step.".to_owned(),
        Phase::AwaitingRequest => {
            "A batch is ready. It is trained only when you ask (rl.manual_train_trigger is true, or gate.enabled is false)."
                .to_owned()
        }
        Phase::AwaitingWindow => "A batch is ready, and waits until you are away.".to_owned(),
        Phase::Teaching { agent, since_ms } => {
            format!("The teacher answers a turn of {agent}, since {}.", since(*since_ms))
        }
        Phase::Paused { agent } => format!("A step for {agent} pauses while you chat."),
        Phase::Stepping { agent, n, since_ms } => {
            format!("Step {n} of {agent} is being made, since {}.", since(*since_ms))
        }
        Phase::Testing {
            agent,
            adapter,
            since_ms,
        } => format!("The gate tests {adapter} of {agent}, since {}.", since(*since_ms)),
        Phase::WaitingForTrainer { why } => format!("Waits for the training server: {why}."),
        Phase::Refused { why, until_ms } => {
            format!("The training server refuses: {why}. It is asked again in {}.", until(*until_ms))
        }
        Phase::Resting { why, until_ms, .. } => {
            format!("Rests: {why}. The next try is in {}.", until(*until_ms))
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
                div { dt { "Served with" } dd { (agent.adapter.as_deref().unwrap_or("the base model")) } }
                div { dt { "Ready for a step" } dd {
                    (count(n(agent.n_redo), "taught reply")) ", " (count(n(agent.n_binary_rl), "judged reply"))
                    " " span.soft { "(a batch takes " (batch_size) ")" }
                } }
                @if agent.n_unanswered > 0 { div { dt { "Wait for the teacher" } dd { (agent.n_unanswered) } } }
                @for (why, n) in &agent.not_taught { div { dt { "Not taught" } dd { (n) ": " (why) } } }
                @if let Some(it) = &agent.declined { div { dt { "Declined" } dd { (it.adapter) ": " (it.why) } } }
                @if let Some(it) = &agent.taken_back { div { dt { "Taken back" } dd { (it.adapter) ", as verdicts got worse: " (it.why) } } }
                @if let Some(it) = &agent.began_anew { div { dt { "Began anew" } dd { (it.why) } } }
            }
            div.actions {
                (ActionForm {
                    action: "train", fields: &[("agent", name)], label: "Train a step now", about: name, back: here,
                    kind: ButtonKind::Plain,
                })
                a href={ "/ui/preview?agent=" (encoded(name)) } { "What would it be made of?" }
                @if agent.adapter.is_some() {
                    (ActionForm {
                        action: "roll-back", fields: &[("agent", name)], label: "Go back one adapter", about: name,
                        back: here, kind: ButtonKind::Plain,
                    })
                }
            }
        }
    }
}

fn adapter_list(adapters: &[AdapterDetail], here: &str, now_ms: u64) -> Markup {
    if adapters.is_empty() {
        let next = html! { "The first step makes one, once a batch of judged replies is there." };
        return empty("There are no adapters yet: the base model answers.", &next);
    }
    let mut newest: Vec<&AdapterDetail> = adapters.iter().collect();
    newest.sort_by_key(|it| std::cmp::Reverse(it.view.created_ms));
    html! { ul.cards { @for it in newest { (adapter(it, here, now_ms)) } } }
}

fn adapter(it: &AdapterDetail, here: &str, now_ms: u64) -> Markup {
    let view = &it.view;
    let says = it.manifest.as_ref().map(ManifestView::read);
    html! {
        li.card #(view.name) {
            p { strong { (view.name) }
                @if !view.agents.is_empty() { " " span.mark.good { "serves " (view.agents.join(", ")) } }
            }
            p.facts {
                @if let Some(at_ms) = view.created_ms { "made " (ago(at_ms, now_ms)) " · " }
                "from " (lineage(it))
            }
            @if let Some(says) = &says {
                details id={ "of-" (view.name) } {
                    summary { "How it was made" }
                    (made(says))
                    p.facts { "Trained on " @for (at, (turn, score)) in it.turns.iter().enumerate() {
                        @if at > 0 { ", " }
                        a href={ "/ui/turns/" (turn) } { (turn) } @if let Some(score) = score { " (" (format!("{score:+}")) ")" }
                    } }
                }
            } @else { p.soft { "Its checkpoint is gone, and with it how it was made." } }
            @if let Some(StepOutcome::Trained { gate: Some(gate), .. }) = &it.outcome { (gate_results(gate, &view.name)) }
            @if view.agents.is_empty() {
                (ActionForm {
                    action: "adapter", fields: &[("adapter", &view.name)], label: "Serve with this one", about: &view.name,
                    back: here, kind: ButtonKind::Plain,
                })
            } @else {
                @for agent in &view.agents {
                    (ActionForm {
                        action: "adapter", fields: &[("agent", agent)], label: "Serve with the base model", about: agent,
                        back: here, kind: ButtonKind::Plain,
                    })
                }
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

fn made(says: &ManifestView) -> Markup {
    let (numbers, batch, shape) = (&says.numbers, &says.batch, &says.shape);
    html! {
        dl.facts {
            div { dt { "Base model" } dd { (shape.base.as_deref().unwrap_or("?")) ", rank " (shape.rank) } }
            div { dt { "Loss" } dd { (format!("{:.4}", numbers.loss)) @if numbers.skipped { "; out of line, so that no step was taken" } } }
            div { dt { "Gradient norm" } dd { (format!("{:.4}", numbers.grad_norm)) } }
            div { dt { "Learning rate" } dd { (format!("{:.2e}", numbers.learning_rate)) } }
            div { dt { "Samples" } dd { @for (method, n) in &batch.samples { (n) " " (method) " " } } }
            div { dt { "Mean score" } dd { (format!("{:+.3}", batch.reward.mean)) } }
        }
    }
}

fn gate_results(gate: &Value, id: &str) -> Markup {
    let Ok(report) = serde_json::from_value::<GateReport>(gate.clone()) else {
        return html! { p.soft { "The results of its tests are of another version." } };
    };
    let failed = report.failed().count();
    html! {
        details id={ "gate-" (id) } {
            summary { "Gate: " (report.tests.len()) " tests, " (failed) " failed" }
            div.scroll { table {
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
}

fn step_list(steps: &[Step], now_ms: u64) -> Markup {
    if steps.is_empty() {
        let next = html! { "A step is made once a batch of judged replies is there and you are away, or when you ask for one." };
        return empty("No step was made yet.", &next);
    }
    html! {
        ul.cards { @for step in steps.iter().rev().take(SHOWN) { (step_card(step, now_ms)) } }
        @if steps.len() > SHOWN { p.soft { "Older steps are left out here." } }
    }
}

fn step_card(step: &Step, now_ms: u64) -> Markup {
    let begun = &step.begun;
    let n_turns = u64::try_from(begun.turns.len()).unwrap_or(u64::MAX);
    let id = format!(
        "{}-{}-{}-{}",
        begun.agent, begun.lineage, begun.n, begun.attempt
    );
    html! {
        li.card {
            p { strong { "Step " (begun.n) " of " (begun.agent) } " "
                @match &step.outcome {
                    None => { span.mark.open { "under way" } }
                    Some(StepOutcome::Trained { .. }) if step.taken_back.is_some() => { span.mark.bad { "taken back" } }
                    Some(StepOutcome::Trained { .. }) => { span.mark.good { "served" } }
                    Some(StepOutcome::Declined { .. }) => { span.mark.bad { "declined" } }
                    Some(StepOutcome::Released { .. }) => { span.mark.unclear { "not made" } }
                }
            }
            @match &step.outcome {
                Some(StepOutcome::Declined { why, .. } | StepOutcome::Released { why }) => { p { (why) } }
                Some(StepOutcome::Trained { adapter, .. }) => { p { a href={ "#" (adapter) } { (adapter) } } }
                None => {}
            }
            @if let Some(back) = &step.taken_back {
                p { "Rolled back " (ago(back.at_ms, now_ms)) ": " (back.why) ". Since then "
                    (back.to.as_deref().unwrap_or("the base model")) " serves." }
            }
            p.facts { (ago(step.taken_ms, now_ms)) " · from " (begun.parent.as_deref().unwrap_or("a fresh adapter"))
                " · " (count(n_turns, "turn")) }
            details id={ "turns-" (id) } {
                summary { "Its turns" }
                p.facts { @for (at, turn) in begun.turns.iter().enumerate() {
                    @if at > 0 { ", " } a href={ "/ui/turns/" (turn) } { (turn) }
                } }
            }
            @match &step.outcome {
                Some(StepOutcome::Trained { gate: Some(gate), .. } | StepOutcome::Declined { gate, .. }) => { (gate_results(gate, &id)) }
                _ => {}
            }
        }
    }
}
