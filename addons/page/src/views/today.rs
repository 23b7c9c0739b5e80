//! The first view: how to set it up while nothing was said yet; then what waits for a decision, and what happened last.

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::now_ms;
use metaclaw_control::replies::{ConversationSummary, Lesson, LessonState, Proposal};
use metaclaw_control::{
    agents::FoundAgent,
    home::origin,
    operations::{
        agents::ListAgents,
        lessons::{GetJournal, ListProposals},
        process::GetStatus,
        turns::ConversationFilter,
    },
    privacy::off_text,
    status::ProcessStatus,
};

use super::{
    lessons::{lesson_row, waiting},
    sessions::address,
};
use crate::{
    elements::{ActionForm, ButtonKind, ago, empty, live, number, without_command},
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
};

const SHOWN: usize = 6;

struct TodayView<'a> {
    status: Option<&'a ProcessStatus>,
    lessons: &'a [Lesson],
    proposals: &'a [Proposal],
    talks: &'a [ConversationSummary],
    /// The agents of this machine, if they could be looked for.
    agents: Option<&'a [FoundAgent]>,
    here: &'a str,
    now_ms: u64,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
) -> Result<Markup, PageFailure> {
    let last = ConversationFilter {
        limit: SHOWN,
        ..ConversationFilter::default()
    };
    let (lessons, proposals) = (
        state.ask(GetJournal).await?,
        state.ask(ListProposals).await?,
    );
    let talks = state.ask(last).await?.conversations;
    // Everything else can be shown without it.
    let status = state.ask(GetStatus).await.ok();
    let agents = state.ask(ListAgents).await.ok();
    let view = TodayView {
        agents: agents.as_deref(),
        status: status.as_ref(),
        lessons: &lessons,
        proposals: &proposals,
        talks: &talks,
        here: &frame.here,
        now_ms: now_ms(),
    };
    let is_new = talks.is_empty() && lessons.is_empty();
    let body = html! {
        h1 { @if is_new { "Connect your agent" } @else { "Today" } }
        (live("standing", &view.standing()))
        @if is_new { (view.set_up()) } @else { (view.news()) }
    };
    Ok(frame.page("Today", Section::Today, &body))
}

// === impl TodayView ===

impl TodayView<'_> {
    fn set_up(&self) -> Markup {
        html! {
            ol.set-up {
                li {
                    h2 { "Connect it" }
                    @if let Some(agents) = self.agents { (super::agents::list(agents, self.here)) }
                    p { "Or in a terminal: this command lists the agents on this machine. Add a name to connect one, as in " code { "metaclaw wire codex" }
                        ". The agent keeps its model and its login." }
                    (copied("metaclaw wire"))
                    @if let Some(status) = self.status {
                        @let base = origin(status.proxy);
                        p { "Any other client needs one setting, its base URL. For clients of OpenAI’s API:" }
                        (copied(&format!("{base}/v1")))
                        p { "For clients of Anthropic’s API:" }
                        (copied(&base))
                    }
                }
                li {
                    h2 { "Say one sentence to it" }
                    (copied("From now on, please answer in one or two sentences."))
                    p.soft { "The conversation and the wish appear here within two seconds. If nothing comes, "
                        a href="/ui/health" { "Health" } " says why." }
                }
            }
        }
    }

    fn news(&self) -> Markup {
        html! {
            (live("waiting", &waiting(self.lessons, self.proposals, self.here, self.now_ms)))
            div.columns {
                section aria-labelledby="last-lessons" {
                    h2 #last-lessons { "Last lessons" }
                    (live("lessons", &self.lessons()))
                }
                section aria-labelledby="last-talks" {
                    h2 #last-talks { "Last conversations" }
                    (live("talks", &self.talks()))
                }
            }
            details #set-up { summary { "Connect another agent" } (self.set_up()) }
        }
    }

    fn standing(&self) -> Markup {
        let Some(status) = self.status else {
            return html! { p.notice { "The state of MetaClaw is not known now. See " a href="/ui/health" { "Health" } } };
        };
        html! {
            dl.facts {
                div { dt { "Who answers" } dd { (status.about.serves) } }
                @if let Some(share) = status.spend.learning_share() {
                    @let spent = &status.spend.spent;
                    div { dt { a href="/ui/cost" { "Tokens today" } } dd {
                        (number(spent.chat)) " for chats, and " (number(spent.learning)) " more for learning (" (share) " of the chats)"
                    } }
                }
                @if let Some(line) = status.verdicts.line() {
                    div { dt { a href="/ui/curves" { "Replies today" } } dd { (line) } }
                }
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

    /// The last conversations, each by its newest turn.
    fn talks(&self) -> Markup {
        if self.talks.is_empty() {
            let next = html! { "If nothing comes although you talked to your agent, " a href="/ui/health" { "Health" } " says why." };
            return empty("No conversation was kept yet.", &next);
        }
        html! {
            ol.turns { @for talk in self.talks {
                @let last = &talk.last;
                li.turn {
                    a href=(address(&last.agent, &last.session)) {
                        span.asked { (talk.asked.as_deref().unwrap_or("(nothing that you typed)")) }
                    }
                    p.facts { (last.agent) " · " (last.model) " · " (ago(last.ended_ms, self.now_ms)) }
                }
            } }
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

/// A line to copy; the script serves the button.
fn copied(text: &str) -> Markup {
    html! { div.code.line { button.copy type="button" aria-label={ "Copy: " (text) } { "Copy" } pre { (text) } } }
}
