//! Conversations: a table to search in, and one whole.

use std::{fmt::Display, str::FromStr};

use axum::extract::State;
use maud::{Markup, html};
use metaclaw_chat::{AgentId, Score, SessionId, TurnId, now_ms};
use metaclaw_control::operations::turns::{ConversationFilter, GetTurn, TurnsQuery};
use metaclaw_control::replies::{ConversationPage, ConversationSummary, Turn, TurnKind};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::talk::{added, hint_source, owner, reply, times, took};
use crate::{
    elements::{ActionForm, ButtonKind, ago, confirmed, count, empty, live, mark, number},
    failure::PageFailure,
    layout::{Frame, Section},
    query::encoded,
    state::PageState,
    view_query::ViewQuery,
};

const ROWS: usize = 60;
/// The most characters of a search, in an address of at most 8 KiB.
const LONGEST: usize = 500;
/// The most turns of a conversation on one page.
const SHOWN: usize = 100;
const DAY_MS: u64 = 24 * 3_600 * 1_000;
const VERDICTS: [(Score, &str); 3] = [
    (Score::Good, "Good"),
    (Score::Bad, "Bad"),
    (Score::Unclear, "Neither"),
];

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Search {
    words: String,
    #[serde(deserialize_with = "given")]
    agent: Option<AgentId>,
    #[serde(deserialize_with = "given")]
    verdict: Option<i8>,
    model: String,
    #[serde(deserialize_with = "given")]
    days: Option<u16>,
    before: Option<TurnId>,
}

/// Reads a field of a form. Browsers send one that was left out as an empty text.
fn given<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    let value = (!text.is_empty()).then(|| text.parse());
    value
        .transpose()
        .map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
}

#[derive(Debug, Deserialize)]
pub(crate) struct SessionQuery {
    agent: AgentId,
    session: SessionId,
    before: Option<TurnId>,
}

pub(crate) async fn list(
    State(state): State<PageState>,
    frame: Frame,
    ViewQuery(search): ViewQuery<Search>,
) -> Result<Markup, PageFailure> {
    let now_ms = now_ms();
    let agents = state.agents().await?;
    let page = state.ask(search.filter(now_ms)?).await?;
    let older = page.older.map(|last| older(&frame.here, last));
    let body = html! {
        h1 { "Conversations" }
        (search.form(&agents.shown))
        (live("sessions", &search.table(&page, older.as_deref(), now_ms)))
    };
    Ok(frame.page("Conversations", Section::Conversations, &body))
}

// === impl Search ===

impl Search {
    fn filter(&self, now_ms: u64) -> Result<ConversationFilter, PageFailure> {
        let score = self.verdict.map(Score::try_from).transpose();
        let days_ms = self.days.map(|days| u64::from(days) * DAY_MS);
        Ok(ConversationFilter {
            agent: self.agent.clone(),
            words: self.words.clone(),
            model: self.model.trim().to_owned(),
            score: score.map_err(|error| PageFailure::bad_request(format!("verdict: {error}")))?,
            since_ms: days_ms.map_or(0, |days_ms| now_ms.saturating_sub(days_ms)),
            limit: ROWS,
            before: self.before,
        })
    }

    fn form(&self, agents: &[AgentId]) -> Markup {
        let option = |value: &str, is_chosen: bool, label: &str| html! { option value=(value) selected[is_chosen] { (label) } };
        html! {
            form.search role="search" action="/ui/sessions" {
                input #search type="search" name="words" maxlength=(LONGEST) value=(self.words) aria-label="Words" placeholder="Words that you or the agent said";
                select name="agent" aria-label="Agent" {
                    (option("", false, "All agents"))
                    @for agent in agents { (option(agent.as_str(), self.agent.as_ref() == Some(agent), agent.as_str())) }
                }
                select name="verdict" aria-label="Verdict" {
                    (option("", false, "Any verdict"))
                    @for (score, label) in VERDICTS { (option(&i8::from(score).to_string(), self.verdict == Some(score.into()), label)) }
                }
                input name="model" maxlength=(LONGEST) value=(self.model) aria-label="Model" placeholder="Model";
                select name="days" aria-label="Days" {
                    (option("", false, "Any time"))
                    @for days in [1, 7, 30] { (option(&days.to_string(), self.days == Some(days), &format!("Last {}", count(days.into(), "day")))) }
                }
                button.main { "Search" }
                @if *self != Self::default() { a href="/ui/sessions" { "Show all" } }
            }
        }
    }

    fn table(&self, page: &ConversationPage, older: Option<&str>, now_ms: u64) -> Markup {
        if page.conversations.is_empty() {
            return self.nothing(page, older);
        }
        html! {
            table.rows {
                thead { tr {
                    th { "When" } th { "Agent" } th { "First words" } th.number { "Turns" } th { "Verdicts" }
                    th { "Model" } th.number { "Tokens" } th.number title="How long the last reply took" { "Took" }
                } }
                tbody { @for talk in &page.conversations { (row(talk, now_ms)) } }
            }
            @if let Some(address) = older { p { a.older href=(address) { "Older conversations" } } }
        }
    }

    fn nothing(&self, page: &ConversationPage, older: Option<&str>) -> Markup {
        match older {
            Some(address) => {
                let what = format!("Nothing found in {} searched turns.", page.n_read);
                empty(&what, &html! { a href=(address) { "Search older turns" } })
            }
            None if *self == Self::default() => {
                let next = html! { "Say something to your agent; the conversation appears here within a second or two. If it does not, "
                a href="/ui/health" { "Health" } " says why." };
                empty("No conversation was kept yet.", &next)
            }
            None => empty(
                "No conversation matches.",
                &html! { a href="/ui/sessions" { "Show all" } },
            ),
        }
    }
}

/// The same search, further back.
fn older(here: &str, last: TurnId) -> String {
    let given = here.split("before=").next().unwrap_or(here);
    let search = given.trim_end_matches(['?', '&']);
    let joint = if search.contains('?') { '&' } else { '?' };
    format!("{search}{joint}before={last}")
}

fn row(talk: &ConversationSummary, now_ms: u64) -> Markup {
    let last = &talk.last;
    let address = address(&last.agent, &last.session);
    let asked = talk.asked.as_deref().unwrap_or("(nothing that you typed)");
    html! {
        tr {
            td.when { (ago(last.ended_ms, now_ms)) }
            td.agent { (last.agent) }
            td.what {
                @match &talk.excerpt {
                    Some(excerpt) => { a data-row href={ (address) "#t-" (talk.matched) } { (asked) } span.soft { (excerpt) } }
                    None => { a data-row href=(address) { (asked) } }
                }
            }
            td.number { (talk.n_turns) span.unit { @if talk.n_turns == 1 { " turn" } @else { " turns" } } }
            td.verdicts {
                @if talk.n_good > 0 { span.mark.good { (talk.n_good) " good" } " " }
                @if talk.n_bad > 0 { span.mark.bad { (talk.n_bad) " bad" } }
            }
            td.model { (last.model) }
            td.number title={ (number(talk.prompt_tokens)) " in, " (number(talk.completion_tokens)) " out" } {
                (number(talk.prompt_tokens + talk.completion_tokens)) span.unit { " tokens" }
            }
            td.number { (took(last.ended_ms.saturating_sub(last.started_ms))) }
        }
    }
}

pub(crate) fn address(agent: &AgentId, session: &SessionId) -> String {
    format!(
        "/ui/session?agent={}&session={}",
        encoded(agent.as_str()),
        encoded(session.as_str())
    )
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
    ViewQuery(query): ViewQuery<SessionQuery>,
) -> Result<Markup, PageFailure> {
    let SessionQuery {
        agent,
        session,
        before,
    } = query;
    let newest = TurnsQuery {
        agent: Some(agent.clone()),
        session: Some(session.clone()),
        before,
        limit: SHOWN,
        ..TurnsQuery::default()
    };
    let listed = state.ask(newest).await?;
    let Some(oldest) = listed.last() else {
        let message =
            format!("Agent {agent} has no conversation {session}; it may have been forgotten.");
        return Err(PageFailure::not_found(message));
    };
    let mut turns = Vec::new();
    for line in listed.iter().rev() {
        turns.extend(state.ask(GetTurn(line.id)).await?);
    }
    let forget = ActionForm {
        action: "forget",
        fields: &[("agent", agent.as_str()), ("session", session.as_str())],
        label: "Forget for good",
        about: "this conversation",
        back: "/ui/sessions",
        kind: ButtonKind::Final,
    };
    let warning = "Its turns are deleted from the disk, with the lessons that were learned from it. This cannot be undone. Weights that were trained on it stay.";
    let body = html! {
        h1 { "Conversation" }
        p.facts { "Agent " (agent) ", session " code { (session) } }
        @if listed.len() == SHOWN {
            p { a href={ (address(&agent, &session)) "&before=" (oldest.id) } { "Earlier turns" } }
        }
        (live("turns", &exchanges(&turns, now_ms())))
        (confirmed("forget", "Forget this conversation …", warning, &forget))
    };
    Ok(frame.page("Conversation", Section::Conversations, &body))
}

fn exchanges(turns: &[Turn], now_ms: u64) -> Markup {
    html! {
        @for (at, turn) in turns.iter().enumerate() {
            @let followed = turns[at + 1..].iter().find(|next| next.parent == Some(turn.id));
            @let before = at.checked_sub(1).map(|before| added(&turns[before]));
            article.exchange.side[turn.meta.kind == TurnKind::Side] #{ "t-" (turn.id) } {
                @if let Some(said) = turn.new_words() { (owner("You", &said.text, &format!("said-{}", turn.id))) }
                div.agent { (reply(turn, followed.map_or(&[], Turn::evidence))) }
                aside { (facts(turn, now_ms)) (newly_added(turn, before)) }
            }
        }
    }
}

fn facts(turn: &Turn, now_ms: u64) -> Markup {
    let Turn { meta, served, .. } = turn;
    html! {
        @if let Some(verdict) = &turn.verdict {
            p { (mark(Some(verdict.score))) @if let Some(hint) = &verdict.hint { " " (hint_source(verdict)) ": “" (hint) "”" } }
        }
        p.facts {
            span { a data-row href={ "/ui/turns/" (turn.id) } { "Why this reply?" } " " (ago(meta.ended_ms, now_ms)) }
            @if meta.kind == TurnKind::Side { span { "sent by the agent itself" } }
            span { (served.adapter.as_ref().unwrap_or(&served.model)) }
            @if let Some(usage) = &meta.usage { span { (number(usage.prompt_tokens)) " tokens in, " (number(usage.completion_tokens)) " out" } }
            span { (times(meta)) }
        }
    }
}

/// What was put into the prompt of a turn, unless the turn before had the same.
fn newly_added(turn: &Turn, before: Option<Vec<&String>>) -> Markup {
    let added = added(turn);
    if added.is_empty() || before.is_some_and(|before| before == added) {
        return html! {};
    }
    html! {
        details #{ "added-" (turn.id) } {
            summary { "Added to the prompt from here on" }
            @for text in added { pre.added { (text) } }
        }
    }
}
