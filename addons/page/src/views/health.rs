//! How the running process is: who serves, who answers, the log, and the window of learning.

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::now_ms;
use metaclaw_control::replies::{SavedState, UpstreamAnswers};
use metaclaw_control::{
    home::origin,
    operations::process::{GetSchedule, GetStatus},
    policy_context::too_short,
    status::{LogStatus, ProcessStatus, TrainerStatus},
};

use crate::{
    elements::{ago, clock, distance, live, number},
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
};

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
) -> Result<Markup, PageFailure> {
    let status = state.ask(GetStatus).await?;
    let schedule = state.ask(GetSchedule).await.ok();
    let now_ms = now_ms();
    let body = html! {
        h1 { "Health" }
        (live("problems", &problems(&status)))
        (live("process", &process(&status, now_ms)))
        (live("upstreams", &upstreams(&status, now_ms)))
        (live("window", &window(schedule.as_ref(), now_ms)))
        section {
            h2 { "This browser" }
            form.action method="post" action="/ui/do/sign-out" { button.plain { "Sign out every browser" } }
        }
    };
    Ok(frame.page("Health", Section::Health, &body))
}

fn problems(status: &ProcessStatus) -> Markup {
    let found = complaints(status);
    html! {
        @if found.is_empty() { p.lead { "No problem is known." } }
        @for it in &found { p.notice.bad { (it) } }
        @if !found.is_empty() { p.soft { code { "metaclaw doctor" } " looks further, and says what to do." } }
    }
}

fn complaints(status: &ProcessStatus) -> Vec<String> {
    let mut found = log_complaints(&status.log);
    if let Some(file) = &status.config_changed {
        found.push(format!(
            "{} has changed since the start: `metaclaw stop` and `metaclaw start` use it.",
            file.display()
        ));
    }
    found.extend(status.trainer.as_ref().and_then(trainer_complaint));
    for lost in &status.lost {
        found.push(format!(
            "{} cannot serve {}, so the base model answers: {}",
            lost.adapter, lost.agent, lost.why
        ));
    }
    found.extend(too_short(status.context.unwrap_or_default()));
    let failing = status.upstreams.iter().filter(|(_, it)| fails(it));
    for (name, it) in failing {
        let why = it.last_failure.as_deref().unwrap_or("no answer");
        found.push(format!("The upstream {name} fails: {why}."));
    }
    if let Some(why) = status
        .learner
        .as_ref()
        .and_then(|it| it.judging.failing.as_ref())
    {
        found.push(format!("The judge does not answer: {why}."));
    }
    if status.dropped_lines > 0 {
        found.push(format!(
            "{} log lines were dropped, because nobody read them in time.",
            status.dropped_lines
        ));
    }
    found
}

fn trainer_complaint(trainer: &TrainerStatus) -> Option<String> {
    Some(match trainer {
        TrainerStatus::Silent { .. } => "The training server runs, and does not answer.".to_owned(),
        TrainerStatus::Down { reason } => {
            format!("The training server is down ({reason}); it is started again.")
        }
        TrainerStatus::Ended => "The training server has ended.".to_owned(),
        TrainerStatus::WithoutModel { url, why } => format!("{url} has no model: {why}"),
        TrainerStatus::Away { url, why } => format!("{url} cannot be used: {why}"),
        TrainerStatus::Starting | TrainerStatus::Ready { .. } | TrainerStatus::Answers { .. } => {
            return None;
        }
    })
}

fn log_complaints(log: &LogStatus) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(why) = &log.broken {
        found.push(format!("Nothing is kept: {why}."));
    }
    if let Some(place) = &log.moved_aside {
        found.push(format!(
            "The log of turns was damaged. It lies in {} now, and an empty one began.",
            place.display()
        ));
    }
    if log.n_lost > 0 {
        found.push(format!(
            "The log had lost its last {} changes before this start.",
            log.n_lost
        ));
    }
    found
}

fn fails(it: &UpstreamAnswers) -> bool {
    it.last_failed_ms.is_some() && it.last_failed_ms > it.last_good_ms
}

fn process(status: &ProcessStatus, now_ms: u64) -> Markup {
    let (about, base) = (&status.about, origin(status.proxy));
    html! {
        section aria-labelledby="process-title" {
            h2 #process-title { "What runs" }
            dl.facts {
                div { dt { "Who answers" } dd { (about.serves) } }
                div { dt { "Learns" } dd { (about.learns) } }
                div { dt { "Mode" } dd { (about.mode) } }
                div { dt { "Base URL" } dd { code { (base) "/v1" } " for clients of OpenAI’s API, " code { (base) } " for Anthropic’s" } }
                div { dt { "Running for" } dd { (distance(now_ms.saturating_sub(status.since_ms))) ", version " (status.version) ", process " (status.pid) } }
                @if let Some(trainer) = &status.trainer { div { dt { "Training server" } dd { (trainer) } } }
                div { dt { "Requests" } dd { (number(status.counts.requests)) " received, " (number(status.counts.refused)) " refused, "
                    (number(status.counts.active_streams)) " running now" } }
                @if let Some(unread) = status.unread() { div { dt { "Not read" } dd { (unread) } } }
            }
        }
    }
}

fn upstreams(status: &ProcessStatus, now_ms: u64) -> Markup {
    html! {
        section aria-labelledby="upstreams-title" {
            h2 #upstreams-title { "Requests since the start" }
            @if status.upstreams.is_empty() { p.soft { "No model was asked yet." } } @else {
                div.scroll { table {
                    thead { tr { th { "Upstream" } th.number { "Answered" } th.number { "Failed" } th { "Last failure" } } }
                    tbody { @for (name, it) in &status.upstreams { tr {
                        td { (name) }
                        td.number { (number(it.n_good)) }
                        td.number { (number(it.n_failed)) }
                        td { @if let Some(at_ms) = it.last_failed_ms { (it.last_failure.as_deref().unwrap_or("?")) ", " (ago(at_ms, now_ms)) } }
                    } } }
                } }
            }
        }
    }
}

fn window(schedule: Option<&SavedState>, now_ms: u64) -> Markup {
    html! {
        section aria-labelledby="window-title" {
            h2 #window-title { "When learning may run" }
            @if let Some(state) = schedule {
                @let (window, next) = state.at(now_ms);
                p { "Now: " (window) "." }
                @if let Some(next) = next.filter(|_| !window.is_open()) {
                    p { "It opens in " (distance(next.at_ms.saturating_sub(now_ms))) ", on "
                        (clock(next.at_ms)) ", if nothing is said or typed until then." }
                }
                @for problem in &state.problems { p.notice.bad { (problem) } }
            } @else { p.soft { "Not known." } }
        }
    }
}
