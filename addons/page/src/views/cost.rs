//! What was spent: tokens of the chat and of learning, today and by day, and at a training server that costs money.

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::now_ms;
use metaclaw_control::{
    cloud_spend::CloudSpend,
    figures::{Period, PrefixReport, broken_line, date_of},
    operations::process::{GetReport, GetStatus},
    report::PeriodReport,
    token_budget::Spend,
};

use crate::{
    elements::{count, live, number},
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
};

/// Days in the table, today among them.
const DAYS: u32 = 14;

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
) -> Result<Markup, PageFailure> {
    let period = Period::until(date_of(now_ms()), DAYS);
    let report = state.ask(GetReport(period)).await?;
    let status = state.ask(GetStatus).await.ok();
    let spend = status.as_ref().map(|it| &it.spend);
    let cloud = status.as_ref().and_then(|it| it.cloud.as_ref());
    let body = html! {
        h1 { "What did this cost?" }
        (live("today-cost", &today(spend, cloud)))
        (live("days-cost", &days(&report)))
        (live("prefix", &prefix(&report.prefix)))
        section aria-labelledby="limits" {
            h2 #limits { "The limit" }
            p { "Learning may spend the larger of a fixed number of tokens each day and a share of what the chat used. "
                code { "budget.tokens_per_day" } " and " code { "budget.share" } " in " code { "config.yaml" } " change that. "
                "Chats themselves are never held back." }
        }
    };
    Ok(frame.page("What did this cost?", Section::Cost, &body))
}

fn today(spend: Option<&Spend>, cloud: Option<&CloudSpend>) -> Markup {
    let Some(spend) = spend else {
        return html! { p.notice { "What was spent today is not known now. " a href="/ui/health" { "Health" } } };
    };
    let spent = &spend.spent;
    html! {
        p.lead { "Today " (number(spent.chat)) " tokens of chat, and " (number(spent.learning)) " of learning." }
        p { "Of its " (number(spend.limit)) " tokens of today (UTC), learning has " (number(spend.left())) " left. "
            (count(spent.n_answered, "question")) " to models were answered"
            @if spent.n_failed > 0 { ", " (number(spent.n_failed)) " were not" } "." }
        (meter(spent.learning, spend.limit))
        @if let Some(cloud) = cloud { p { "At the training server: " (cloud.line()) "." } }
    }
}

fn meter(used: u64, limit: u64) -> Markup {
    html! {
        meter.budget aria-label="Learning's tokens of today that are used" min="0" max=(limit.max(1)) value=(used.min(limit)) { (number(used)) " of " (number(limit)) }
    }
}

fn days(report: &PeriodReport) -> Markup {
    let chat = &report.chat;
    html! {
        section aria-labelledby="by-day" {
            h2 #by-day { "The last " (DAYS) " days" }
            p { "Chat: " (number(chat.prompt)) " tokens in, " (number(chat.completion)) " out. "
                @if let Some(share) = chat.cache_share().percent() {
                    "The provider had " (share) " % of the prompts in its cache. "
                }
                @if chat.n_uncounted > 0 { "Of " (count(chat.n_uncounted, "turn")) " the upstream gave no number. " }
            }
            div.scroll { table {
                thead { tr { th { "Day (UTC)" } th.number { "Turns" } th.number { "Chat tokens" } th.number { "Learning tokens" } th.number { "Lessons" } } }
                tbody { @for day in report.days.iter().rev() { tr {
                    td { (day.day) }
                    td.number { (number(day.turns)) }
                    td.number { (number(day.tokens)) }
                    td.number { (number(day.learning)) }
                    td.number { (number(day.lessons)) }
                } } }
            } }
        }
    }
}

/// Prompts that a provider could not serve from its cache, because their beginning had changed.
fn prefix(prefix: &PrefixReport) -> Markup {
    html! {
        section aria-labelledby="broken" {
            h2 #broken { "Prompts that the provider's cache could not serve" }
            p { "A provider charges less for the beginning of a prompt that it has just read. "
                "If something in that beginning changes within a session, it is charged in full again. "
                @match prefix.counts_line() {
                    Some(line) => { "In these days " (line) "." }
                    None => { "In these days no prompt changed so." }
                }
            }
            @if !prefix.latest.is_empty() {
                ul { @for broken in &prefix.latest { li {
                    a href={ "/ui/turns/" (broken.turn) } { (broken_line(broken)) }
                } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_broken_prompt_leads_to_its_turn_and_its_words_are_text() {
        let broken = json!({"turn": "7-0", "agent": "main", "session": "a", "started_ms": 1, "prompt_tokens": 900,
            "cached_tokens": 0, "cause": "lesson", "what": "a wish was added", "before": "", "now": "<b>Be brief"});
        let counts = json!({"own": 1, "client": 0, "upstream": 0});
        let report = json!({"counts": counts, "latest": [broken]});
        let shown = prefix(&serde_json::from_value(report).unwrap()).into_string();
        for part in [
            "broke once: 1 by a lesson",
            "/ui/turns/7-0",
            "a wish was added",
            "&lt;b&gt;Be brief",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        let none = prefix(&PrefixReport::default()).into_string();
        assert!(none.contains("no prompt changed so"), "{none}");
    }
}
