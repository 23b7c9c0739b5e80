//! Formats a report as Markdown that is readable as plain text too.

use std::{cmp::Reverse, collections::BTreeMap};

use metaclaw_chat::one_line;
use metaclaw_skills::{Lesson, LessonState, ProposalState, Suspicion};

use super::{DayRow, PeriodReport, StepTold, WrittenSkill};
use crate::figures::{Period, Share, broken_line, grouped};

const MAX_NAMED: usize = 20;

/// Returns the report as text. Sections without content are left out.
pub fn text(report: &PeriodReport) -> String {
    let (heard, waiting) = (report.heard.iter().map(lesson_line), report.waiting.lines());
    let sections = [
        head(report),
        section("Heard", list(heard.map(|line| plain(&line)))),
        section(
            "Skills written after failures",
            list(report.written.iter().map(written_line)),
        ),
        section("Verdicts", verdicts(report)),
        section("Not used", list(by_reason(&report.unused))),
        section("Weights", list(report.steps.iter().map(step_line))),
        section("Tokens", tokens(report)),
        section("Prompt cache", prompt_cache(report)),
        section("Upstreams", upstreams(report)),
        section(
            "Skills given",
            list(
                report
                    .skills
                    .iter()
                    .map(|(name, n)| format!("{name}: {}", count(*n, "turn"))),
            ),
        ),
        section(
            "Waiting for you",
            list(waiting.iter().map(|line| plain(line))),
        ),
        section("Days", days(report)),
    ];
    let sections: Vec<String> = sections
        .into_iter()
        .filter(|section| !section.is_empty())
        .collect();
    sections.join("\n\n")
}

fn section(title: &str, text: String) -> String {
    if text.is_empty() {
        return text;
    }
    format!("## {title}\n\n{text}")
}

fn list(lines: impl IntoIterator<Item = String>) -> String {
    let lines: Vec<String> = lines.into_iter().map(|line| format!("- {line}")).collect();
    lines.join("\n")
}

fn head(report: &PeriodReport) -> String {
    let Period { first, last } = report.period;
    let when = if first == last {
        first.to_string()
    } else {
        format!("{first} to {last}")
    };
    let mut most: Vec<_> = report.agents.iter().collect();
    most.sort_by_key(|(_, n)| Reverse(**n));
    let n_more = most.len().saturating_sub(MAX_NAMED);
    most.truncate(MAX_NAMED);
    most.sort();
    let named = most.iter().map(|(agent, n)| format!("{agent} {n}"));
    let mut agents: Vec<String> = named.collect();
    if n_more > 0 {
        agents.push(format!("and {n_more} other agents with fewer turns"));
    }
    let agents = if agents.is_empty() {
        String::new()
    } else {
        format!(" ({})", agents.join(", "))
    };
    let (turns, sessions) = (
        count(report.turns, "turn"),
        count(report.sessions, "session"),
    );
    let gone = match report.gone {
        0 => String::new(),
        n => format!(
            "\n\nThe texts of {} are deleted. They are counted here, but not their sessions, upstreams and skills, nor why they were not used.",
            count(n, "turn")
        ),
    };
    format!("# MetaClaw, {when} (UTC)\n\n{turns} in {sessions}{agents}.{gone}")
}

fn written_line(WrittenSkill { agent, name, state }: &WrittenSkill) -> String {
    let state = match state {
        ProposalState::Waiting => "waits for your look (skills review)".to_owned(),
        ProposalState::Accepted => format!("in force (skills revert {name})"),
        ProposalState::Rejected => "rejected".to_owned(),
        ProposalState::Reverted => "taken back".to_owned(),
        ProposalState::AgedOut => "aged out".to_owned(),
        ProposalState::Declined => "declined by its trial".to_owned(),
        ProposalState::Forgotten => "forgotten".to_owned(),
    };
    format!("skill {name} of {agent}: {state}")
}

fn verdicts(report: &PeriodReport) -> String {
    let line = report.verdicts.line();
    line.map_or_else(String::new, |line| {
        let hinted = report.hinted;
        format!("{line}; {hinted} with a hint of what would have been better.")
    })
}

fn by_reason(reasons: &BTreeMap<String, u64>) -> impl Iterator<Item = String> {
    reasons.iter().map(|(why, n)| format!("{n} {}", plain(why)))
}

fn step_line(step: &StepTold) -> String {
    let outcome = match (&step.adapter, &step.declined, &step.taken_back) {
        (Some(adapter), None, Some(why)) => format!(
            "{adapter} served and was taken back, as verdicts got worse: {}",
            plain(why)
        ),
        (Some(adapter), None, None) if step.tested => format!("{adapter} passed the gate"),
        (Some(adapter), None, None) => format!("{adapter}, which the gate did not test"),
        (Some(adapter), Some(why), _) => format!("{adapter} was declined: {}", plain(why)),
        (None, why, _) => format!("not made: {}", plain(why.as_deref().unwrap_or_default())),
    };
    let turns = count(step.n_turns as u64, "turn");
    format!("step {} of {} from {turns}: {outcome}", step.n, step.agent)
}

fn tokens(report: &PeriodReport) -> String {
    let chat = &report.chat;
    let share = chat.cache_share().percent();
    let share = share.map_or_else(String::new, |percent| format!(", {percent} %,"));
    let uncounted = match chat.n_uncounted {
        0 => String::new(),
        1 => "; the upstream reported no count for 1 reply".to_owned(),
        n => format!("; the upstream reported no count for {n} replies"),
    };
    format!(
        "Chat: {} in ({} of them{share} from the provider's cache), {} out{uncounted}.\n\nLearning: {}, in and out.",
        number(chat.prompt),
        number(chat.cached),
        number(chat.completion),
        number(report.learning)
    )
}

fn prompt_cache(report: &PeriodReport) -> String {
    let Some(counts) = report.prefix.counts_line() else {
        return String::new();
    };
    let latest = report.prefix.latest.iter();
    let latest = list(latest.map(|one| format!("turn {}: {}", one.turn, plain(&broken_line(one)))));
    format!("In these days {counts}.\n\n{latest}")
        .trim_end()
        .to_owned()
}

fn upstreams(report: &PeriodReport) -> String {
    list(report.upstreams.iter().map(|(name, upstream)| {
        let errors: Vec<String> = by_reason(&upstream.errors).collect();
        let errors = if errors.is_empty() {
            "no errors".to_owned()
        } else {
            errors.join("; ")
        };
        format!("{name}: {}, {errors}", count(upstream.turns, "turn"))
    }))
}

fn days(report: &PeriodReport) -> String {
    if report.days.len() < 2 {
        return String::new();
    }
    let percent = |n, of| {
        let percent = Share { n, of }.percent();
        percent.map_or_else(String::new, |percent| format!("{percent} %"))
    };
    let row = |day: &DayRow| {
        let cells = [
            day.day.to_string(),
            day.turns.to_string(),
            day.verdicts.followed.to_string(),
            day.verdicts.bad.to_string(),
            day.verdicts.good.to_string(),
            day.lessons.to_string(),
            number(day.tokens),
            percent(day.cached, day.prompt),
            number(day.learning),
        ];
        format!("| {} |", cells.join(" | "))
    };
    let rows: Vec<String> = report.days.iter().map(row).collect();
    format!(
        "| day | turns | answered | bad | good | lessons | tokens | cached | learning |\n|---|---|---|---|---|---|---|---|---|\n{}",
        rows.join("\n")
    )
}

/// Returns a text on one line, in which Markdown links, pictures, code and tags are escaped.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '<' => plain.push_str("&lt;"),
            '[' | ']' | '`' => plain.extend(['\\', c]),
            other => plain.push(other),
        }
    }
    plain
}

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn number(n: u64) -> String {
    grouped(&n.to_string(), ',')
}

fn lesson_line(lesson: &Lesson) -> String {
    let Lesson { n, state, .. } = lesson;
    let (heard, wish) = (one_line(&lesson.heard), one_line(&lesson.wish));
    let heard = if heard == wish {
        String::new()
    } else {
        format!("heard \"{heard}\" -> ")
    };
    match state {
        LessonState::InForce => format!("{heard}wish: {wish}  (undo {n})"),
        LessonState::Replaced { .. } | LessonState::Repeated => {
            format!("{heard}{wish}  ({n}, {state})")
        }
        LessonState::Noted => format!("{heard}said once more, it is a wish: {wish}  (undo {n})"),
        LessonState::Review { why } if why[..] == [Suspicion::Unsure] => {
            format!("{heard}a wish? {wish}  (wishes review --accept {n}, or --dismiss {n})")
        }
        LessonState::Review { why } => {
            let reasons: Vec<String> = why.iter().map(ToString::to_string).collect();
            let why = reasons.join(", ");
            format!(
                "{heard}waits for your review, because {why}: {wish}  (wishes review --accept {n})"
            )
        }
        LessonState::Undone => format!("{heard}taken back: {wish}  ({n})"),
        LessonState::Forgotten => format!("forgotten  ({n})"),
    }
}
