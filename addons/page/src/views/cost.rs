//! What was spent: money by model, agent and day, tokens of the chat and of learning, and what a training server took.

use std::{cmp::Reverse, collections::BTreeMap};

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::now_ms;
use metaclaw_control::{
    costs::{CostRow, dollars, list_prices_as_of},
    figures::{Period, Share, broken_line, date_of},
    operations::process::{GetReport, GetStatus},
    report::{DayRow, PeriodReport},
    status::ProcessStatus,
};

use crate::{
    elements::{count, empty, live, number},
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
};

const DAYS: u32 = 14;
/// Letters of a token, about, as the rest of the program estimates them.
const LETTERS: u64 = 4;

/// What some turns cost together.
#[derive(Debug, Default, Clone, Copy)]
struct SpentSum {
    turns: u64,
    prompt: u64,
    cached: u64,
    completion: u64,
    cost: u64,
    /// Tokens whose price is not known.
    unpriced: u64,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
) -> Result<Markup, PageFailure> {
    let period = Period::until(date_of(now_ms()), DAYS);
    let report = state.ask(GetReport(period)).await?;
    let status = state.ask(GetStatus).await.ok();
    let body = html! {
        h1 { "Cost" }
        (live("sum-cost", &sum(&report)))
        (live("days-cost", &days(&report)))
        (live("learning-cost", &learning(&report, status.as_ref())))
    };
    Ok(frame.page("Cost", Section::Cost, &body))
}

fn sum(report: &PeriodReport) -> Markup {
    let rows = &report.costs;
    if rows.is_empty() {
        let next = html! { "Each chat appears here with what it cost, by model, agent and day." };
        return empty("Nothing was spent in these days.", &next);
    }
    let all = SpentSum::of(rows);
    let unknown = rows
        .iter()
        .find(|row| row.cost.is_none() && !row.model.is_empty());
    html! {
        p.lead { "Chats of the last " (DAYS) " days: " strong { (all.cost_text()) } " for " (number(all.tokens())) " tokens." }
        p.soft { "Counted by the list prices of " (list_prices_as_of()) " and the prices that you set (" code { "budget.prices" } "). "
            "Models on this machine cost nothing. With a subscription, you pay its fixed price instead. "
            @if report.gone > 0 { (count(report.gone, "deleted turn")) " could not be counted." } }
        @if let Some(row) = unknown {
            p.notice { "MetaClaw does not know the price of " (row.model) ". Set it in dollars for a million tokens in and out: "
                code { "metaclaw config budget.prices '[\"" (row.model) " 3 15\"]'" } }
        }
        div.pair {
            (table("By model", rows, |row| &row.model))
            (table("By agent", rows, |row| row.agent.as_str()))
        }
    }
}

fn table<'a>(title: &str, rows: &'a [CostRow], name: fn(&'a CostRow) -> &'a str) -> Markup {
    let mut sums: BTreeMap<&str, SpentSum> = BTreeMap::new();
    for row in rows {
        sums.entry(name(row)).or_default().add(row);
    }
    let mut sums: Vec<(&str, SpentSum)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| Reverse((sum.cost, sum.tokens())));
    let bar = bars(sums.iter().map(|(_, sum)| *sum));
    html! {
        section {
            h2 { (title) }
            div.scroll { table.dense {
                thead { tr { th { "Name" } th.number { "Cost" } th { } th.number { "Tokens in" } th.number { "Cached" } th.number { "Tokens out" } th.number { "Turns" } } }
                tbody { @for (name, sum) in &sums { tr {
                    td { @if name.is_empty() { "not named" } @else { (name) } }
                    td.number { (sum.cost_text()) }
                    td { (bar(*sum)) }
                    td.number { (number(sum.prompt)) }
                    td.number { (percent(sum.cached, sum.prompt)) }
                    td.number { (number(sum.completion)) }
                    td.number { (number(sum.turns)) }
                } } }
            } }
        }
    }
}

fn percent(n: u64, of: u64) -> String {
    let share = Share { n, of }.percent();
    format!("{} %", share.unwrap_or_default())
}

fn days(report: &PeriodReport) -> Markup {
    let mut costs: BTreeMap<_, SpentSum> = BTreeMap::new();
    for row in &report.costs {
        costs.entry(row.day).or_default().add(row);
    }
    let bar = bars(costs.values().copied());
    let is_idle = |day: &DayRow| day.turns + day.tokens + day.learning + day.lessons == 0;
    let newest: Vec<&DayRow> = report.days.iter().rev().collect();
    html! {
        section aria-labelledby="by-day" {
            h2 #by-day { "By day" }
            div.scroll { table.dense {
                thead { tr { th { "Day (UTC)" } th.number { "Cost of chat" } th { } th.number { "Chat tokens" } th.number { "Learning tokens" } th.number { "Turns" } th.number { "Lessons" } } }
                tbody { @for run in newest.chunk_by(|one, next| is_idle(one) && is_idle(next)) {
                    @let day = run[0];
                    @if is_idle(day) { tr.soft { td { @if run.len() > 1 { (run[run.len() - 1].day) " to " } (day.day) } td colspan="6" { "nothing" } } }
                    @else { tr {
                        @let cost = costs.get(&day.day).copied().unwrap_or_default();
                        td { (day.day) }
                        td.number { @if cost.turns > 0 { (cost.cost_text()) } }
                        td { (bar(cost)) }
                        td.number { (number(day.tokens)) }
                        td.number { (number(day.learning)) }
                        td.number { (number(day.turns)) }
                        td.number { (number(day.lessons)) }
                    } }
                } }
            } }
        }
    }
}

/// What is known of what learning took and gave. What a lesson saves is not among it.
fn learning(report: &PeriodReport, status: Option<&ProcessStatus>) -> Markup {
    let (chat, prefix) = (&report.chat, &report.prefix);
    let added = report.added_chars / LETTERS;
    let sent: u64 = report
        .costs
        .iter()
        .map(|row| row.tokens.prompt_tokens)
        .sum();
    let all = report.learning + chat.prompt + chat.completion;
    html! {
        section aria-labelledby="learning-title" {
            h2 #learning-title { "Learning and the cache" }
            dl.facts {
                div { dt { "Learning itself" } dd { (number(report.learning)) " tokens, " (percent(report.learning, all))
                    " of all. They are counted for all models together, so no price is shown." } }
                div { dt { "Lessons in prompts" } dd { "about " (number(added)) " tokens, " (percent(added, sent)) " of what was sent" } }
                div { dt { "Read from a cache" } dd { (percent(chat.cached, chat.prompt)) " of prompt tokens. "
                    @if let Some(line) = prefix.counts_line() { "In these days " (line) "." }
                    @else { "No prompt of these days broke the cache." }
                    @if !prefix.latest.is_empty() { ul { @for broken in &prefix.latest { li {
                        a href={ "/ui/turns/" (broken.turn) } { (broken_line(broken)) }
                    } } } }
                } }
                @if let Some(status) = status {
                    div { dt { "Left for learning today" } dd { (number(status.spend.left())) " of " (number(status.spend.limit)) " tokens ("
                        code { "budget.tokens_per_day" } ", " code { "budget.share" } "). Chats have no limit." } }
                    @if let Some(cloud) = &status.cloud { div { dt { "At the training server" } dd { (cloud.line()) } } }
                }
            }
            p.soft { "What lessons save, in fewer questions or shorter replies, is not counted in money. "
                a href="/ui/curves" { "Curves" } " shows complaints and lengths over time." }
        }
    }
}

/// Returns what draws the bar of a sum beside the largest one: by cost, or by tokens where nothing costs anything.
fn bars(sums: impl Iterator<Item = SpentSum> + Clone) -> impl Fn(SpentSum) -> Markup {
    let has_cost = sums.clone().any(|sum| sum.cost > 0);
    let size = move |sum: SpentSum| if has_cost { sum.cost } else { sum.tokens() };
    let most = sums.map(size).max().unwrap_or_default().max(1);
    move |sum| {
        let width = u128::from(size(sum)) * 100 / u128::from(most);
        html! { svg.bar viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true" { rect width=(width) height="1" {} } }
    }
}

// === impl SpentSum ===

impl SpentSum {
    fn of(rows: &[CostRow]) -> Self {
        let mut sum = Self::default();
        for row in rows {
            sum.add(row);
        }
        sum
    }

    fn add(&mut self, row: &CostRow) {
        let tokens = &row.tokens;
        self.turns += row.turns;
        self.prompt += tokens.prompt_tokens;
        self.cached += tokens.cached_tokens;
        self.completion += tokens.completion_tokens;
        match row.cost {
            Some(cost) => self.cost = self.cost.saturating_add(cost),
            None => self.unpriced += tokens.prompt_tokens + tokens.completion_tokens,
        }
    }

    fn tokens(&self) -> u64 {
        self.prompt + self.completion
    }

    fn cost_text(&self) -> String {
        match self.unpriced {
            0 => dollars(self.cost),
            unpriced if unpriced == self.tokens() => "not known".to_owned(),
            _ => format!("at least {}", dollars(self.cost)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(day: &str, agent: &str, model: &str, cents: Option<u64>) -> CostRow {
        serde_json::from_value(
            json!({"day": day, "agent": agent, "model": model, "turns": 2, "upstream": "llm",
            "tokens": {"prompt_tokens": 900, "cached_tokens": 450, "completion_tokens": 100},
            "cost": cents.map(|cents| cents * 10_000_000_000)}),
        )
        .unwrap()
    }

    #[test]
    fn costs_are_summed_and_what_has_no_price_is_said() {
        let priced = row("2026-03-01", "main", "gpt-5", Some(150));
        let free = row("2026-03-01", "main", "demo", Some(0));
        let unpriced = row("2026-03-02", "codex", "new", None);
        for (rows, text) in [
            (vec![], "nothing"),
            (vec![priced.clone(), priced.clone()], "$3.00"),
            (vec![free.clone()], "nothing"),
            (vec![unpriced.clone()], "not known"),
            (vec![priced.clone(), unpriced.clone()], "at least $1.50"),
        ] {
            assert_eq!(SpentSum::of(&rows).cost_text(), text);
        }
        let report = PeriodReport {
            costs: vec![priced, unpriced],
            ..PeriodReport::default()
        };
        let shown = sum(&report).into_string();
        for part in [
            "at least $1.50",
            "list prices of 20",
            "does not know the price of new.",
            "50 %",
            "codex",
            "width=\"100\"",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let none = PeriodReport {
            costs: vec![free],
            ..PeriodReport::default()
        };
        assert!(!sum(&none).into_string().contains("does not know"));
    }

    #[test]
    fn days_without_anything_are_one_row() {
        let day = |day: &str, turns: u64| DayRow {
            day: day.parse().unwrap(),
            turns,
            ..DayRow::default()
        };
        let report = PeriodReport {
            days: vec![
                day("2026-03-01", 3),
                day("2026-03-02", 0),
                day("2026-03-03", 0),
                day("2026-03-04", 1),
                day("2026-03-05", 0),
            ],
            ..PeriodReport::default()
        };
        let shown = days(&report).into_string();
        assert_eq!(shown.matches("<tr").count(), 5, "{shown}");
        assert!(
            shown.contains("2026-03-02 to 2026-03-03") && !shown.contains("2026-03-05 to"),
            "{shown}"
        );
    }

    #[test]
    fn a_broken_prompt_leads_to_its_turn_and_its_words_are_text() {
        let broken = json!({"turn": "7-0", "agent": "main", "session": "a", "started_ms": 1, "prompt_tokens": 900,
            "cached_tokens": 0, "cause": "lesson", "what": "a wish was added", "before": "", "now": "<b>Be brief"});
        let counts = json!({"own": 1, "client": 0, "upstream": 0});
        let report = |prefix| PeriodReport {
            prefix: serde_json::from_value(prefix).unwrap(),
            ..PeriodReport::default()
        };
        let some = report(json!({"counts": counts, "latest": [broken]}));
        let shown = learning(&some, None).into_string();
        for part in [
            "cost the cache once: 1 by a lesson",
            "/ui/turns/7-0",
            "a wish was added",
            "&lt;b&gt;Be brief",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        let none = learning(&PeriodReport::default(), None).into_string();
        assert!(
            none.contains("No prompt of these days broke the cache"),
            "{none}"
        );
    }
}
