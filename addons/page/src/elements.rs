//! Pieces that several views use.

use jiff::{Timestamp, Zoned, tz::TimeZone};
use maud::{Markup, Render, html};
use metaclaw_chat::Score;
use metaclaw_control::figures::{effect_line, grouped};
use metaclaw_control::replies::{LessonCounts, StreamEnd, TurnState};

pub(crate) struct ActionForm<'a> {
    /// The address below `/ui/do/`.
    pub(crate) action: &'a str,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    pub(crate) label: &'a str,
    /// What the button is about, for people who do not see what stands beside it.
    pub(crate) about: &'a str,
    pub(crate) back: &'a str,
    pub(crate) kind: ButtonKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ButtonKind {
    Main,
    Plain,
    /// What it does cannot be undone.
    Final,
}

// === impl ActionForm ===

impl Render for ActionForm<'_> {
    fn render(&self) -> Markup {
        html! {
            form.action method="post" action={ "/ui/do/" (self.action) } {
                (hidden(self.fields, self.back))
                button class=(self.kind.class()) aria-label={ (self.label) ": " (self.about) } { (self.label) }
            }
        }
    }
}

// === impl ButtonKind ===

impl ButtonKind {
    fn class(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Plain => "plain",
            Self::Final => "final",
        }
    }
}

pub(crate) fn hidden(fields: &[(&str, &str)], back: &str) -> Markup {
    html! {
        @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
        input type="hidden" name="back" value=(back);
    }
}

/// A form that has to be opened before it can be sent, for what cannot be undone.
pub(crate) fn confirmed(id: &str, question: &str, warning: &str, form: &ActionForm<'_>) -> Markup {
    html! {
        details.confirm id=(id) {
            summary { (question) }
            div { p { (warning) } (form) }
        }
    }
}

/// A region that the script replaces when it has changed.
pub(crate) fn live(id: &str, body: &Markup) -> Markup {
    html! { div id=(id) data-live { (body) } }
}

pub(crate) fn empty(what: &str, next: &Markup) -> Markup {
    html! { div.empty { p { (what) } p.soft { (next) } } }
}

pub(crate) fn ago(at_ms: u64, now_ms: u64) -> Markup {
    let exact = exact(at_ms);
    let ago = match now_ms.saturating_sub(at_ms) {
        0..1_000 => "now".to_owned(),
        ms => format!("{} ago", distance(ms)),
    };
    html! { time datetime=(exact) title=(exact) { (ago) } }
}

pub(crate) fn distance(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (unit, name) = match seconds {
        0..60 => (1, "s"),
        60..3_600 => (60, "min"),
        3_600..86_400 => (3_600, "h"),
        _ => (86_400, "d"),
    };
    match seconds {
        0 => "less than a second".to_owned(),
        _ => format!("{} {name}", seconds / unit),
    }
}

/// A moment in RFC 3339, in this machine's time zone.
fn exact(at_ms: u64) -> String {
    zoned(at_ms).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

pub(crate) fn clock(at_ms: u64) -> Markup {
    let exact = exact(at_ms);
    html! { time datetime=(exact) title=(exact) { (zoned(at_ms).strftime("%A %H:%M")) } }
}

fn zoned(at_ms: u64) -> Zoned {
    let at = i64::try_from(at_ms).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(at).unwrap_or(Timestamp::MAX);
    at.to_zoned(TimeZone::system())
}

/// What an operation says that it did, without the command that takes it back: the page has a button for that.
pub(crate) fn without_command(told: &str) -> &str {
    told.split_once("(metaclaw ")
        .map_or(told, |(told, _)| told.trim_end())
}

pub(crate) fn number(n: u64) -> String {
    grouped(&n.to_string(), '\u{202f}')
}

pub(crate) fn count(n: u64, noun: &str) -> String {
    let plural = match noun.strip_suffix('y') {
        _ if n == 1 => noun.to_owned(),
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{noun}s"),
    };
    format!("{} {plural}", number(n))
}

/// A verdict as a word with a colour; the space is kept where there is none yet.
pub(crate) fn mark(score: Option<Score>) -> Markup {
    let (class, word) = match score {
        Some(Score::Good) => ("good", "good"),
        Some(Score::Bad) => ("bad", "bad"),
        Some(Score::Unclear) => ("unclear", "unclear"),
        None => ("open", "no verdict"),
    };
    html! { span.mark.(class) { (word) } }
}

pub(crate) fn outcome(end: StreamEnd, state: &TurnState) -> String {
    match (end, state) {
        (StreamEnd::Complete, TurnState::Captured) => "not judged yet".to_owned(),
        (StreamEnd::Cut, TurnState::Captured) => "the connection to the model broke".to_owned(),
        (StreamEnd::ClientGone, TurnState::Captured) => "the agent disconnected".to_owned(),
        (StreamEnd::UpstreamError { status: 200 }, TurnState::Captured) => {
            "the model's server sent an error".to_owned()
        }
        (StreamEnd::UpstreamError { status }, TurnState::Captured) => {
            format!("the model's server answered with error {status}")
        }
        (StreamEnd::Overflowed, TurnState::Captured) => "too long to keep".to_owned(),
        (_, TurnState::Judged) => "judged".to_owned(),
        (_, TurnState::Taken { n }) => format!("in training step {n} now"),
        (_, TurnState::Trained { n }) => format!("trained on in step {n}"),
        (_, TurnState::Spent { why }) => format!("not used for training: {why}"),
        (_, TurnState::HeldOut) => "kept out of training, to test with".to_owned(),
    }
}

pub(crate) fn effect(counts: &LessonCounts) -> Markup {
    html! {
        div.effect {
            p { (effect_line(counts)) }
            p.soft { "Added to the prompt of " (count(counts.injected, "turn")) "." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_text_is_shown_as_text() {
        let form = ActionForm {
            action: "wish",
            fields: &[("wish", "\"><script>alert(1)</script>")],
            label: "Undo",
            about: "<b>bold</b>",
            back: "/ui",
            kind: ButtonKind::Plain,
        };
        let shown = form.render().into_string();
        assert!(
            !shown.contains("<script>") && !shown.contains("<b>"),
            "{shown}"
        );
        assert!(shown.contains("&lt;script&gt;"), "{shown}");
    }

    #[test]
    fn plurals_are_right() {
        for (n, noun, text) in [
            (1, "reply", "1 reply"),
            (0, "reply", "0 replies"),
            (2, "day", "2 days"),
            (4, "turn", "4 turns"),
        ] {
            assert_eq!(count(n, noun), text);
        }
    }
}
