//! What left the machine, to whom, and what stayed; and the switches that hold it back.

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_control::replies::TurnSummary;
use metaclaw_control::{
    figures::{Period, date_of},
    operations::{
        process::{GetReport, GetStatus},
        turns::TurnsQuery,
    },
    privacy::off_text,
    report::PeriodReport,
    status::ProcessStatus,
};

use crate::{
    elements::{
        ActionForm, ButtonKind, ago, confirmed, count, empty, live, number, without_command,
    },
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
};

const DAYS: u32 = 14;
const LISTED: usize = 30;

/// How far back is forgotten: hours, and in words.
const REACHES: [(&str, &str); 3] = [
    ("1", "the last hour"),
    ("24", "the last day"),
    ("168", "the last week"),
];

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
) -> Result<Markup, PageFailure> {
    let period = Period::until(date_of(now_ms()), DAYS);
    let report = state.ask(GetReport(period)).await?;
    let newest = TurnsQuery {
        limit: LISTED,
        ..TurnsQuery::default()
    };
    let turns = state.ask(newest).await?;
    let agents = state.agents().await?;
    let status = state.ask(GetStatus).await.ok();
    let body = html! {
        h1 { "Sent to others" }
        (live("leaves", &leaves(status.as_ref())))
        (live("sent", &sent(&report, status.as_ref())))
        (live("requests", &requests(&turns, status.as_ref())))
        (live("switches", &switches(status.as_ref(), &agents.shown, &frame.here)))
        @if agents.n_more > 0 { p.soft { (agents.n_more) " more agents with fewer turns are not listed: " code { "metaclaw off --agent NAME" } } }
        (forget(&frame.here))
    };
    Ok(frame.page("Sent to others", Section::Privacy, &body))
}

fn leaves(status: Option<&ProcessStatus>) -> Markup {
    let Some(status) = status else {
        return html! { p.notice { "Where texts may go is not known now. See " a href="/ui/health" { "Health" } } };
    };
    let counts = &status.counts;
    html! {
        p.lead { "By your settings, this is what others are sent:" }
        dl.facts { @for line in status.about.leaves.lines() {
            @let (receiver, what) = line.split_once(": ").unwrap_or((line, ""));
            div { dt { (receiver) } dd { (what) } }
        } }
        @if counts.relayed_only + counts.off_record > 0 {
            p.soft { "Since the start, " (count(counts.relayed_only, "chat")) " were only passed on, and "
                (number(counts.off_record)) " were off the record. Nothing of them is kept here." }
        }
    }
}

fn sent(report: &PeriodReport, status: Option<&ProcessStatus>) -> Markup {
    html! {
        section aria-labelledby="sent-title" {
            h2 #sent-title { "Sent in the last " (DAYS) " days" }
            @if report.upstreams.is_empty() && report.learning == 0 {
                (empty("Nothing was sent to a model.", &html! { "Each chat appears here with who answered it." }))
            } @else {
                div.scroll { table.dense {
                    thead { tr { th { "To" } th.number { "Turns" } th { "Failed" } } }
                    tbody { @for (name, day) in &report.upstreams { tr {
                        td { (place(name, status)) @if place(name, status) != name { " (" (name) ")" } }
                        td.number { (number(day.turns)) }
                        td { @for (why, n) in &day.errors { (n) " " (why) " " } }
                    } } }
                } }
                p.soft { "Learning (judging, detecting wishes, writing skills) used " (number(report.learning))
                    " tokens more, replies included." }
            }
        }
    }
}

/// Where an upstream is, if the settings still have it.
fn place<'a>(name: &'a str, status: Option<&'a ProcessStatus>) -> &'a str {
    let place = status.and_then(|status| status.about.places.get(name));
    place.map_or(name, String::as_str)
}

fn requests(turns: &[TurnSummary], status: Option<&ProcessStatus>) -> Markup {
    let now_ms = now_ms();
    html! {
        section aria-labelledby="requests-title" {
            h2 #requests-title { "Last chats" }
            p.soft { "The requests of learning are not listed one by one." }
            @if turns.is_empty() { p.soft { "None was kept." } } @else {
                div.scroll { table.dense {
                    thead { tr { th { "When" } th { "To" } th { "Model" } th { "What was asked" } th.number { "Tokens in" } } }
                    tbody { @for turn in turns { tr {
                        td { (ago(turn.ended_ms, now_ms)) }
                        td { (place(&turn.upstream, status)) }
                        td { (turn.adapter.as_deref().unwrap_or(&turn.model)) }
                        td { a href={ "/ui/turns/" (turn.id) } { (turn.asked.as_deref().unwrap_or("sent by the agent itself")) } }
                        td.number { @if let Some(usage) = &turn.usage { (number(usage.prompt_tokens)) } @else { "?" } }
                    } } }
                } }
            }
        }
    }
}

fn switches(status: Option<&ProcessStatus>, agents: &[AgentId], here: &str) -> Markup {
    let off = status.map(|it| &it.off);
    let is_off = off.is_some_and(|off| off.all);
    let everyone = if is_off {
        ("false", "Learn again")
    } else {
        ("true", "Pause learning")
    };
    html! {
        section aria-labelledby="switch" {
            h2 #switch { "Pause learning" }
            p { "While learning is paused, requests and replies pass through unchanged. Nothing is added to prompts, kept, judged or learned." }
            @if let Some(told) = off.and_then(off_text) { p.notice { (without_command(&told)) } }
            div.actions {
                (ActionForm {
                    action: "switch", fields: &[("off", everyone.0)], label: everyone.1, about: "every agent", back: here,
                    kind: if is_off { ButtonKind::Main } else { ButtonKind::Plain },
                })
            }
            @if agents.len() > 1 && !is_off {
                h3 { "Single agents" }
                @for agent in agents {
                    @let is_off = off.is_some_and(|off| off.agents.contains(agent));
                    div.actions {
                        (ActionForm {
                            action: "switch",
                            fields: &[("off", if is_off { "false" } else { "true" }), ("agent", agent.as_str())],
                            label: if is_off { "Learn again" } else { "Pause learning" }, about: agent.as_str(), back: here,
                            kind: ButtonKind::Plain,
                        })
                        span { (agent) }
                    }
                }
            }
        }
    }
}

fn forget(here: &str) -> Markup {
    html! {
        section aria-labelledby="forget-title" {
            h2 #forget-title { "Forget" }
            p { "What was said is deleted from the disk, with the lessons that were learned from it. A single conversation is forgotten on "
                a href="/ui/sessions" { "its own page" } "." }
            @for (hours, words) in REACHES {
                (confirmed(
                    &format!("forget-{hours}"), &format!("Forget {words} …"),
                    "Every conversation in which something was said in that time is deleted whole. This cannot be undone. Weights that were trained on it stay.",
                    &ActionForm {
                        action: "forget", fields: &[("hours", hours)], label: "Forget for good", about: words,
                        back: here, kind: ButtonKind::Final,
                    },
                ))
            }
        }
    }
}
