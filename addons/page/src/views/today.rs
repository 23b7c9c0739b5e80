//! The first view: what waits for a decision, and what happened last.

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::now_ms;
use metaclaw_control::replies::TurnSummary;
use metaclaw_control::replies::{Lesson, LessonState, Proposal};
use metaclaw_control::{
    operations::{
        lessons::{GetJournal, ListProposals},
        process::GetStatus,
        turns::TurnsQuery,
    },
    privacy::off_text,
    status::ProcessStatus,
};

use super::lessons::{lesson_row, waiting_lesson, waiting_skill};
use crate::{
    elements::{ActionForm, ButtonKind, count, empty, live, number, turn_row, without_command},
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
};

const SHOWN: usize = 6;

struct TodayView<'a> {
    status: Option<&'a ProcessStatus>,
    lessons: &'a [Lesson],
    proposals: &'a [Proposal],
    turns: &'a [TurnSummary],
    here: &'a str,
    now_ms: u64,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
) -> Result<Markup, PageFailure> {
    let turns = TurnsQuery {
        limit: SHOWN,
        ..TurnsQuery::default()
    };
    let (lessons, proposals) = (
        state.ask(GetJournal).await?,
        state.ask(ListProposals).await?,
    );
    let turns = state.ask(turns).await?;
    // Everything else can be shown without it.
    let status = state.ask(GetStatus).await.ok();
    let view = TodayView {
        status: status.as_ref(),
        lessons: &lessons,
        proposals: &proposals,
        turns: &turns,
        here: &frame.here,
        now_ms: now_ms(),
    };
    Ok(frame.page("Today", Section::Today, &view.body()))
}

// === impl TodayView ===

impl TodayView<'_> {
    fn body(&self) -> Markup {
        html! {
            h1 { "Today" }
            (live("standing", &self.standing()))
            (questions())
            div.columns {
                div {
                    (live("waiting", &self.waiting()))
                    section aria-labelledby="last-lessons" {
                        h2 #last-lessons { "Last lessons" }
                        (live("lessons", &self.lessons()))
                    }
                }
                section aria-labelledby="last-turns" {
                    h2 #last-turns { "Last replies" }
                    (live("turns", &self.turns()))
                }
            }
        }
    }

    fn standing(&self) -> Markup {
        let Some(status) = self.status else {
            return html! { p.notice { "MetaClaw does not say how it is. " a href="/ui/health" { "Health" } } };
        };
        html! {
            p.lead { "Who answers: " (status.about.serves) }
            p.soft {
                (count(status.funnel.turns, "turn")) " kept, " (number(status.funnel.judged)) " judged. "
                "Today " (number(status.spend.spent.chat)) " tokens of chat and "
                (number(status.spend.spent.learning)) " of learning."
                @if let Some(line) = status.verdicts.line() { " " (line) "." }
            }
            @if let Some(told) = off_text(&status.off) {
                div.notice {
                    p { (without_command(&told)) }
                    (ActionForm {
                        action: "switch", fields: &[("off", "false")], label: "Learn again", about: "for every agent",
                        back: self.here, kind: ButtonKind::Main,
                    })
                }
            }
        }
    }

    fn waiting(&self) -> Markup {
        let lessons = self.lessons.iter();
        let lessons: Vec<&Lesson> = lessons
            .filter(|it| matches!(it.state, LessonState::Review { .. }))
            .collect();
        let skills: Vec<&Proposal> = self.proposals.iter().filter(|it| it.is_waiting()).collect();
        html! {
            section aria-labelledby="waits" {
                h2 #waits { "Waits for you" }
                @if lessons.is_empty() && skills.is_empty() {
                    p.soft { "Nothing waits for your decision." }
                }
                ul.cards {
                    @for it in &lessons { (waiting_lesson(it, self.here, self.now_ms)) }
                    @for it in &skills { (waiting_skill(it, self.here, self.now_ms)) }
                }
            }
        }
    }

    fn turns(&self) -> Markup {
        if self.turns.is_empty() {
            let next = html! { "Say something to your agent. If nothing comes, "
            a href="/ui/health" { "Health" } " says why." };
            return empty("No turn was kept yet.", &next);
        }
        html! {
            ol.turns { @for turn in self.turns { (turn_row(turn, self.now_ms)) } }
            p { a href="/ui/sessions" { "All conversations" } }
        }
    }

    fn lessons(&self) -> Markup {
        let shown: Vec<&Lesson> = self
            .lessons
            .iter()
            .rev()
            .filter(|it| it.state != LessonState::Forgotten)
            .take(SHOWN)
            .collect();
        if shown.is_empty() {
            let next = html! { "Tell your agent how you want it: “please always answer in one sentence”. Or "
            a href="/ui/lessons#add" { "write a wish down" } "." };
            return empty("Nothing was learned yet.", &next);
        }
        html! {
            ul.lessons { @for it in shown { (lesson_row(it, self.here, self.now_ms)) } }
            p { a href="/ui/lessons" { "All lessons" } }
        }
    }
}

fn questions() -> Markup {
    html! {
        nav.questions aria-label="Questions" {
            a href="/ui/turns" { strong { "Why did it say that?" } span { "Replies, verdicts, and what was in the prompt" } }
            a href="/ui/lessons" { strong { "Take it back" } span { "Lessons in force, each with its undo" } }
            a href="/ui/cost" { strong { "What did this cost?" } span { "Tokens of chat and of learning, by day" } }
            a href="/ui/privacy" { strong { "What left?" } span { "Who was sent what, and what stayed here" } }
        }
    }
}
