//! One reply: what was said, why it was judged so, what was in the prompt, who answered, and what became of it.

use axum::extract::{Path, State};
use maud::{Markup, html};
use metaclaw_chat::{
    JudgedBy, Message, Role, Score, Speaker, TurnId, Verdict, now_ms, utterance_at,
};
use metaclaw_control::operations::turns::GetTurn;
use metaclaw_control::replies::{POLICY_UPSTREAM, Turn, TurnState};
use serde::Deserialize;

use super::{
    sessions::address,
    talk::{added, asked, calls, hint_source, reply, times},
};
use crate::{
    elements::{ago, count, hidden, live, mark, number, outcome},
    failure::PageFailure,
    layout::{Frame, Section},
    markdown::{plain, rendered},
    query::encoded,
    state::PageState,
    view_query::ViewQuery,
};

/// The turn that followed is among so many next ones; side turns may lie between.
const NEXT: u32 = 6;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct TurnQuery {
    /// Whether the whole request is shown, which may be long.
    #[serde(default)]
    whole: bool,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
    Path(id): Path<String>,
    ViewQuery(query): ViewQuery<TurnQuery>,
) -> Result<Markup, PageFailure> {
    let missing = || {
        PageFailure::not_found(format!(
            "There is no turn {id}; it may have been forgotten."
        ))
    };
    let turn_id: TurnId = id.parse().map_err(|_| missing())?;
    let turn = state.ask(GetTurn(turn_id)).await?.ok_or_else(missing)?;
    let followed = following(&state, &turn).await?;
    let backend = state
        .running()
        .map(|rooms| rooms.training.backend.is_some());
    let trains = backend.unwrap_or(true);
    let body = html! {
        h1 { "Why did it say that?" }
        p.facts {
            a href=(address(&turn.agent, &turn.session)) { "Conversation" }
            " of " (turn.agent) " · " (ago(turn.meta.ended_ms, now_ms())) " · turn " code { (turn.id) }
        }
        div.columns.reply {
            div {
                (said(&turn, followed.as_ref().map_or(&[], Turn::evidence)))
                (live("verdict", &judged(&turn, followed.as_ref())))
                (prompt(&turn))
            }
            div {
                (live("rating", &rating(&turn, &frame.here)))
                (served(&turn))
                (live("fate", &fate(&turn, trains)))
            }
        }
        (request(&turn, query.whole))
    };
    Ok(frame.page("Why did it say that?", Section::Conversations, &body))
}

/// The turn whose request continues this one's reply: what it begins with is the evidence.
async fn following(state: &PageState, turn: &Turn) -> Result<Option<Turn>, PageFailure> {
    for n in 1..=NEXT {
        let seq = turn.id.seq.saturating_add(n);
        let next = state.ask(GetTurn(TurnId { seq, ..turn.id })).await?;
        if let Some(next) = next.filter(|next| next.parent == Some(turn.id)) {
            return Ok(Some(next));
        }
    }
    Ok(None)
}

fn said(turn: &Turn, later: &[Message]) -> Markup {
    html! {
        section.talk aria-label="What was said" {
            (asked(turn))
            div.agent { span.who { "Reply" } (reply(turn, later)) }
        }
    }
}

fn judged(turn: &Turn, followed: Option<&Turn>) -> Markup {
    html! {
        section aria-labelledby="why" {
            h2 #why { "The verdict" }
            @match &turn.verdict {
                Some(verdict) => { (reasons(verdict, 0)) }
                None => {
                    p { (mark(None)) " " (outcome(turn.meta.end, &turn.state)) "." }
                    p.soft { "A reply is judged by what follows it, or when its conversation has ended. "
                        "No verdict is given where nothing would use it." }
                }
            }
            @if let Some(followed) = followed { (evidence(followed)) }
            @if !turn.overruled.is_empty() {
                details #overruled {
                    summary { "Verdicts before this one" }
                    @for (at, verdict) in turn.overruled.iter().enumerate().rev() { (reasons(verdict, at + 1)) }
                }
            }
        }
    }
}

/// A verdict with its reasons; `at` tells the verdicts of a turn apart.
fn reasons(verdict: &Verdict, at: usize) -> Markup {
    html! {
        p { (mark(Some(verdict.score))) " by " (judge(verdict.by))
            @if verdict.at_session_end { ", when the conversation had ended and nothing had followed" }
            "."
        }
        @if let Some(hint) = &verdict.hint {
            figure.quote { blockquote { (hint) } figcaption { (hint_source(verdict)) } }
        }
        @for remark in verdict.judge_hints.iter().filter(|it| Some(*it) != verdict.hint.as_ref()) {
            figure.quote { blockquote { (remark) } figcaption { "The judge’s remark" } }
        }
        @if verdict.votes.len() > 1 {
            details id={ "votes-" (at) } {
                summary { (verdict.votes.len()) " votes" }
                ul { @for vote in &verdict.votes { li { (mark(Some(vote.score)))
                    @if let Some(model) = &vote.model { " by " (model) }
                    @if let Some(hint) = &vote.hint { " " (hint) } } } }
            }
        }
        @if verdict.weight < 1.0 { p.soft { "It counts as " (format!("{:.2}", verdict.weight)) " of a verdict." } }
    }
}

fn judge(by: JudgedBy) -> &'static str {
    match by {
        JudgedBy::Rules => "your rules",
        JudgedBy::Llm => "the judge model",
        JudgedBy::Base => "your own model, without its adapter",
        JudgedBy::Http => "your reward function",
        JudgedBy::Owner => "you",
        JudgedBy::Import => "the system it was imported from",
        JudgedBy::Rollout => "the outcome of its rollout",
    }
}

fn evidence(next: &Turn) -> Markup {
    let messages = &next.request.messages;
    html! {
        h3 { "What followed" }
        p.soft { "Verdicts are based on this. " a href={ "/ui/turns/" (next.id) } { "The next turn" } }
        div.talk { @for at in next.new_from..messages.len() { (message(messages, at)) } }
    }
}

/// One message; of a user's message, what was typed.
fn message(messages: &[Message], at: usize) -> Markup {
    let message = &messages[at];
    let typed = utterance_at(messages, at);
    let is_client = typed
        .as_ref()
        .is_some_and(|typed| typed.speaker == Speaker::Client);
    let text = match typed {
        Some(typed) if !is_client => typed.text,
        _ => message.text(),
    };
    let who = match message.role() {
        _ if is_client => "Added by the agent",
        Role::System => "System",
        Role::User => "You",
        Role::Assistant => "Reply",
        Role::Tool => "Tool",
        Role::Other => "Other",
    };
    let id = format!("message-{at}");
    html! {
        div.owner[message.role() == Role::User] {
            span.who { (who) }
            @if message.role() == Role::Assistant { (rendered(&text, &id)) }
            @else if !text.is_empty() { (plain(&text, &id)) }
            (calls(message, &messages[at..], &format!("calls-{at}")))
        }
    }
}

fn rating(turn: &Turn, here: &str) -> Markup {
    let id = turn.id.to_string();
    let options = [
        ("good", "Good", Score::Good),
        ("unclear", "Neither", Score::Unclear),
        ("bad", "Bad", Score::Bad),
    ];
    let now = turn.verdict.as_ref().map(|it| it.score);
    html! {
        section aria-labelledby="rate" {
            h2 #rate { "Your verdict" }
            form.stack method="post" action="/ui/do/rate" {
                (hidden(&[("turn", &id)], here))
                fieldset {
                    legend { "Was this a good reply?" }
                    @for (value, label, score) in options {
                        label.choice { input type="radio" name="score" value=(value) required checked[now == Some(score)]; " " (label) }
                    }
                }
                label for="rate-text" { "What would have been better? " span.soft { "Optional. A wish written here counts as if you had said it." } }
                textarea #rate-text name="text" rows="2" maxlength="2000" { }
                button.main { "Save verdict" }
            }
        }
    }
}

fn prompt(turn: &Turn) -> Markup {
    let (served, added) = (&turn.served, added(turn));
    html! {
        section aria-labelledby="prompt" {
            h2 #prompt { "What MetaClaw added to the prompt" }
            @if added.is_empty() {
                p.soft { "Nothing: no lesson was in force, or none fitted." }
            } @else {
                @if !served.skills.is_empty() {
                    p { "Skills: "
                        @for (at, skill) in served.skills.iter().enumerate() {
                            @if at > 0 { ", " }
                            a href={ "/ui/skill?agent=" (encoded(turn.agent.as_str())) "&name=" (encoded(&skill.name)) } { (skill.name) }
                        }
                    }
                }
                @for text in added { pre.added { (text) } }
                p { a href={ "/ui/lessons?agent=" (encoded(turn.agent.as_str())) } { "Undo a lesson" } }
            }
        }
    }
}

fn served(turn: &Turn) -> Markup {
    let (served, meta) = (&turn.served, &turn.meta);
    html! {
        section aria-labelledby="served" {
            h2 #served { "Who answered" }
            dl.facts {
                div { dt { "Model" } dd {
                    @match (&served.adapter, served.upstream == POLICY_UPSTREAM) {
                        (Some(adapter), _) => { "your own model, with the adapter " a href={ "/ui/training#" (adapter) } { (adapter) } }
                        (None, true) => { "your own model, without an adapter" }
                        (None, false) => { (served.model) ", upstream " (served.upstream) }
                    }
                } }
                @if let Some(usage) = &meta.usage {
                    div { dt { "Tokens" } dd { (number(usage.prompt_tokens)) " in, of these " (number(usage.cached_tokens)) " from the provider’s cache; "
                        (number(usage.completion_tokens)) " out" } }
                }
                div { dt { "Took" } dd { (times(meta)) } }
                @if let Some(file) = &served.imported { div { dt { "Origin" } dd { "imported from " (file) } } }
                @if meta.masked { div { dt { "Masked" } dd { "something that looked like a secret was not kept" } } }
            }
        }
    }
}

fn fate(turn: &Turn, trains: bool) -> Markup {
    html! {
        section aria-labelledby="fate-title" {
            h2 #fate-title { "Use for training" }
            p { (outcome(turn.meta.end, &turn.state))
                @if turn.state == TurnState::Judged && !trains { "; not used for training in this mode" } "." }
            @if !turn.uses.is_empty() {
                ul { @for it in &turn.uses { li { "step " (it.n) " of lineage " code { (it.lineage) } } } }
            }
        }
    }
}

fn request(turn: &Turn, is_whole: bool) -> Markup {
    let messages = &turn.request.messages;
    let n = u64::try_from(messages.len()).unwrap_or(u64::MAX);
    html! {
        section #whole aria-label="What the agent sent" {
            @if is_whole {
                h2 { "What the agent sent" }
                p.soft { "What MetaClaw added on the way is shown above." }
                div.talk { @for at in 0..messages.len() { (message(messages, at)) } }
            } @else {
                p { a href={ "/ui/turns/" (turn.id) "?whole=true#whole" } { "Everything that the agent sent, " (count(n, "message")) } }
            }
        }
    }
}
