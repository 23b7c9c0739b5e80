//! Formats a digest as Markdown that a person can read unrendered.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use metaclaw_chat::one_line;
use metaclaw_skills::ProposalState;

use super::{
    DayRow, FunnelStage, InForce, Period, PeriodReport, StepTold, UpstreamDay, WrittenSkill,
    broken_line, percent,
};
use crate::lesson_line::lesson_line;

/// The number of agents whose turns are named.
const MAX_NAMED: usize = 20;

/// Returns the text; a picture's name is linked above the days.
pub fn text(report: &PeriodReport, picture: Option<&str>) -> String {
    let sections = [
        Some(head(report)),
        Some(section("Heard", &heard(report))),
        written(report),
        Some(section("Verdicts", &[verdicts(report)])),
        Some(section("How far turns came", &funnel(report))),
        steps(report),
        Some(section("Tokens", &tokens(report))),
        prefix(report),
        Some(section("Upstreams", &upstreams(report))),
        Some(section("In force", &in_force(&report.in_force))),
        waiting(report),
        days(report, picture),
    ];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    sections.join("\n\n")
}

fn section(title: &str, lines: &[String]) -> String {
    format!("## {title}\n\n{}", lines.join("\n"))
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
    let mut agents: Vec<String> = most
        .iter()
        .map(|(agent, n)| format!("{agent} {n}"))
        .collect();
    if n_more > 0 {
        agents.push(format!("and {n_more} other agents with fewer turns"));
    }
    let agents = match agents.as_slice() {
        [] => String::new(),
        some => format!(" ({})", some.join(", ")),
    };
    let turns = counted(report.turns, "turn");
    let sessions = counted(report.sessions, "session");
    let text = match (report.gone, report.turns - report.gone) {
        (0, _) => format!("{turns} in {sessions}{agents}."),
        (_, 0) if first == last => {
            format!("{turns}{agents}.\n\nThe texts of this day are gone; the numbers are kept.")
        }
        (_, 0) => {
            format!("{turns}{agents}.\n\nThe texts of these days are gone; the numbers are kept.")
        }
        (gone, there) => format!(
            "{turns}{agents}, {there} of them in {sessions}.\n\nThe texts of the other {gone} are gone; the numbers are kept."
        ),
    };
    format!("# MetaClaw, {when}\n\n{text}")
}

fn heard(report: &PeriodReport) -> Vec<String> {
    if report.heard.is_empty() {
        return vec!["Nothing.".to_owned()];
    }
    let line = |lesson| format!("- {}", plain(&lesson_line(lesson)));
    report.heard.iter().map(line).collect()
}

/// Lists the skills that a model wrote.
fn written(report: &PeriodReport) -> Option<String> {
    let line = |WrittenSkill { agent, name, state }: &WrittenSkill| {
        let state = match state {
            ProposalState::Waiting => "waits for your look (skills review)".to_owned(),
            ProposalState::Accepted => format!("in force (skills revert {name})"),
            ProposalState::Rejected => "rejected".to_owned(),
            ProposalState::Reverted => "taken back".to_owned(),
            ProposalState::AgedOut => "aged out".to_owned(),
            ProposalState::Declined => "declined by its trial".to_owned(),
            ProposalState::Forgotten => "forgotten".to_owned(),
        };
        format!("- skill {name} of {agent}: {state}")
    };
    let lines: Vec<String> = report.written.iter().map(line).collect();
    (!lines.is_empty()).then(|| section("Written from what went wrong", &lines))
}

fn waiting(report: &PeriodReport) -> Option<String> {
    let lines = report.waiting.lines().into_iter();
    let lines: Vec<String> = lines.map(|it| format!("- {}", plain(&it))).collect();
    (!lines.is_empty()).then(|| section("Waiting for you", &lines))
}

fn verdicts(report: &PeriodReport) -> String {
    let it = &report.verdicts;
    match percent(it.good, it.n()) {
        None => "None.".to_owned(),
        Some(share) => format!(
            "{} of {} good ({share} %), {} bad, {} unclear; {} with a hint of what would have been better.",
            it.good,
            it.n(),
            it.bad,
            it.unclear,
            it.hinted
        ),
    }
}

/// Prints the stages as a table, and the reasons.
fn funnel(report: &PeriodReport) -> Vec<String> {
    let mut lines = vec![
        "| stage | turns | those that came no further |".to_owned(),
        "|---|---|---|".to_owned(),
    ];
    lines.extend(report.funnel.iter().map(stage));
    if !report.weights {
        lines.push(String::new());
        lines.push(
            "No weights are trained here, so token ids, hints and training are no stages."
                .to_owned(),
        );
    }
    lines
}

fn stage(stage: &FunnelStage) -> String {
    let stayed: Vec<String> = by_reason(&stage.stayed);
    format!("| {} | {} | {} |", stage.name, stage.n, stayed.join("; "))
}

fn by_reason(reasons: &BTreeMap<String, u64>) -> Vec<String> {
    let told = reasons.iter().map(|(why, n)| format!("{n} {why}"));
    told.collect()
}

/// Lists what was trained, and which adapters serve.
fn steps(report: &PeriodReport) -> Option<String> {
    let line = |it: &StepTold| {
        let turns = counted(it.n_turns as u64, "turn");
        let came_to = match (&it.adapter, &it.declined) {
            (Some(adapter), None) if it.taken_back.is_some() => {
                let why = plain(it.taken_back.as_deref().unwrap_or_default());
                format!("{adapter} served and was taken back, as verdicts got worse: {why}")
            }
            (Some(adapter), None) if it.tested => format!("{adapter} passed the gate"),
            (Some(adapter), None) => format!("{adapter}, which nothing tested"),
            (Some(adapter), Some(why)) => format!("{adapter} was declined: {}", plain(why)),
            (None, why) => format!("not made: {}", plain(why.as_deref().unwrap_or_default())),
        };
        format!("- step {} of {} from {turns}: {came_to}", it.n, it.agent)
    };
    let lines: Vec<String> = report.steps.iter().map(line).collect();
    (!lines.is_empty()).then(|| section("Weights", &lines))
}

fn tokens(report: &PeriodReport) -> Vec<String> {
    let chat = &report.chat;
    let share = chat.cached_percent().map(|share| format!(", {share} %,"));
    let mut line = format!(
        "Chat: {} in ({} of them{} from the provider's cache), {} out",
        grouped(chat.prompt),
        grouped(chat.cached),
        share.unwrap_or_default(),
        grouped(chat.completion)
    );
    if chat.n_uncounted > 0 {
        let _ = write!(
            line,
            "; of {} the upstream said no number",
            counted(chat.n_uncounted, "reply")
        );
    }
    let mut learning = format!(
        "Learning: {}, in and out (by days of UTC)",
        grouped(report.learning)
    );
    if let Some(budget) = report.budget {
        let _ = write!(
            learning,
            "; {} of {} are left today",
            grouped(budget.left),
            grouped(budget.limit)
        );
    }
    vec![line + ".", String::new(), learning + "."]
}

/// Lists what a provider's cache could not serve, and why.
fn prefix(report: &PeriodReport) -> Option<String> {
    let counts = report.prefix.counts_line()?;
    let mut first = counts.chars();
    let first: String = first
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(first)
        .collect();
    let latest = report.prefix.latest.iter();
    let latest = latest.map(|it| format!("- turn {}: {}", it.turn, plain(&broken_line(it))));
    let mut lines = vec![format!("{first}.")];
    if !report.prefix.latest.is_empty() {
        lines.push(String::new());
    }
    lines.extend(latest);
    Some(section("Prompt cache", &lines))
}

fn upstreams(report: &PeriodReport) -> Vec<String> {
    let upstreams = &report.upstreams;
    if upstreams.is_empty() && report.gone == 0 {
        return vec!["None was asked.".to_owned()];
    }
    let line = |(name, day): (&String, &UpstreamDay)| {
        let errors = by_reason(&day.errors);
        let errors = if errors.is_empty() {
            "no errors".to_owned()
        } else {
            errors.join("; ")
        };
        format!("- {name}: {}, {errors}", counted(day.turns, "turn"))
    };
    let gone = Some(report.gone).filter(|gone| *gone > 0);
    let gone = gone.map(|n| format!("- not kept: {}", counted(n, "turn")));
    upstreams.iter().map(line).chain(gone).collect()
}

fn in_force(agents: &[InForce]) -> Vec<String> {
    if agents.is_empty() {
        return vec!["Nothing yet: no agent has spoken.".to_owned()];
    }
    let mut lines = Vec::new();
    for it in agents {
        let adapter = it.adapter.as_ref().map(|name| format!(", adapter {name}"));
        lines.push(format!(
            "- {}: {}, {} at hand{}",
            it.agent,
            counted(it.wishes.len() as u64, "wish"),
            counted(it.n_skills as u64, "skill"),
            adapter.unwrap_or_default()
        ));
        lines.extend(it.wishes.iter().map(|wish| format!("  - {}", plain(wish))));
        let served = it.skills.iter();
        let served: Vec<String> = served.map(|(name, n)| format!("{name} ({n})")).collect();
        if !served.is_empty() {
            lines.push(format!("  - skills given, by turns: {}", served.join(", ")));
        }
    }
    lines
}

/// Prints the picture, and a row for each day if there are several.
fn days(report: &PeriodReport, picture: Option<&str>) -> Option<String> {
    let mut parts = Vec::new();
    parts.extend(picture.map(|name| {
        format!("![Turns a day, and the share of good ones among the judged]({name})")
    }));
    if report.period.first < report.period.last {
        parts.push(table(report));
    }
    (!parts.is_empty()).then(|| format!("## Days\n\n{}", parts.join("\n\n")))
}

fn table(report: &PeriodReport) -> String {
    let mut lines = vec![
        "| day | turns | judged | good | lessons | tokens | cached | learning |".to_owned(),
        "|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    let row = |it: &DayRow| {
        let good = percent(it.good, it.judged).map(|share| format!("{share} %"));
        let cached = percent(it.cached, it.prompt).map(|share| format!("{share} %"));
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            it.day,
            it.turns,
            it.judged,
            good.unwrap_or_default(),
            it.lessons,
            grouped(it.tokens),
            cached.unwrap_or_default(),
            grouped(it.learning)
        )
    };
    let shown = report.days.iter().filter(|it| report.period.has(it.day));
    lines.extend(shown.map(row));
    lines.join("\n")
}

/// Returns a text on one line without Markdown links, pictures or tags. The escaped parts of a text are the parts of
/// the escaped text.
pub(super) fn plain(text: &str) -> String {
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

/// Returns `1 turn`, `2 turns`, `2 replies`, `2 wishes`.
fn counted(n: u64, what: &str) -> String {
    let many = match what {
        "reply" => "replies",
        "wish" => "wishes",
        "turn" => "turns",
        "session" => "sessions",
        _ => "skills",
    };
    format!("{n} {}", if n == 1 { what } else { many })
}

/// Returns a number with separated thousands: `12,345`.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
