//! The owner's own questions, answered with and without what was learned, one at a time.

use axum::{Form, extract::State, http::StatusCode};
use maud::{Markup, html};
use metaclaw_chat::AgentId;
use metaclaw_control::compare::{
    Compare, ComparedAnswer, ComparedQuestion, Comparison, GivenLessons, MAX_ANSWER,
};
use serde::Deserialize;

use super::lessons::{AgentQuery, agent_tabs};
use crate::{
    elements::{empty, number},
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
    view_query::ViewQuery,
};

const OFFERED: usize = 5;

#[derive(Debug, Deserialize)]
pub(crate) struct CompareForm {
    agent: AgentId,
    question: String,
}

pub(crate) async fn offer(
    State(state): State<PageState>,
    frame: Frame,
    ViewQuery(query): ViewQuery<AgentQuery>,
) -> Result<Markup, PageFailure> {
    let agents = state.agents().await?;
    let agent = match query.agent {
        Some(agent) => agent,
        None => state.newest_agent(&agents.shown).await?,
    };
    let wanted = Compare {
        agent: agent.clone(),
        n: OFFERED,
        questions: Vec::new(),
        asks: false,
    };
    let plan = match state.ask(wanted).await {
        Ok(plan) => plan,
        // A link leads here, and that no model can be asked is nothing that went wrong.
        Err(failure) if failure.status == StatusCode::CONFLICT => {
            let body = html! {
                h1 { "With and without" }
                (agent_tabs("/ui/compare", &agents.shown, &agent))
                (empty("There is no model to ask.", &html! { (failure.message) }))
            };
            return Ok(frame.page("With and without", Section::Lessons, &body));
        }
        Err(failure) => return Err(failure),
    };
    let body = html! {
        h1 { "With and without" }
        (agent_tabs("/ui/compare", &agents.shown, &agent))
        (agents.left_out())
        p.lead { "Your own questions, asked again: once without what was learned, once with it." }
        p.soft { "They go to " (plan.model) ". The answers are not kept, and nothing is learned from them. Each has at most "
            (MAX_ANSWER) " tokens." }
        @if plan.questions.is_empty() {
            (empty("You have asked this agent nothing yet that could be asked again.", &html! { "Write a question of yours below." }))
        }
        ul.cards { @for planned in &plan.questions { (offered(planned, &plan, &agent)) } }
        form.stack method="post" action="/ui/do/compare" {
            input type="hidden" name="agent" value=(agent);
            label for="question" { "Another question" }
            textarea #question name="question" rows="2" maxlength="2000" required { }
            button.main { "Ask both ways" }
        }
    };
    Ok(frame.page("With and without", Section::Lessons, &body))
}

fn offered(planned: &ComparedQuestion, plan: &Comparison, agent: &AgentId) -> Markup {
    let columns = plan.columns(planned);
    html! {
        li.card {
            p.words { (planned.question) }
            @if columns.len() < 2 {
                p.soft { "Nothing that was learned fits this question: both answers would be the same." }
            } @else {
                @if let Some(lessons) = &planned.lessons { details { summary { "What is added" } pre.added { (lessons) } } }
                form.action method="post" action="/ui/do/compare" {
                    input type="hidden" name="agent" value=(agent);
                    input type="hidden" name="question" value=(planned.question);
                    button.plain aria-label={ "Ask both ways: " (planned.question) } { "Ask both ways" }
                }
                " " span.soft { "sends " (columns.len()) " requests" }
            }
        }
    }
}

pub(crate) async fn ask(
    State(state): State<PageState>,
    frame: Frame,
    Form(form): Form<CompareForm>,
) -> Result<Markup, PageFailure> {
    let wanted = Compare {
        agent: form.agent,
        n: 1,
        questions: vec![form.question],
        asks: true,
    };
    let compared = state.ask(wanted).await?.questions;
    let body = html! {
        h1 { "With and without" }
        @for question in &compared {
            p.words { (question.question) }
            div.columns { @for (given, answer) in &question.answers { (column(*given, answer)) } }
            @if question.answers.len() < 2 { p.notice { "Nothing that was learned fits this question." } }
        }
        p { a href="/ui/compare" { "Another question" } }
    };
    Ok(frame.page("With and without", Section::Lessons, &body))
}

fn column(given: GivenLessons, answer: &ComparedAnswer) -> Markup {
    let title = match given {
        GivenLessons::Nothing => "Without",
        GivenLessons::Lessons => "With wishes and skills",
        GivenLessons::Weights => "With all that was learned",
    };
    html! {
        section {
            h2 { (title) }
            p.words { (answer.text) }
            @if let Some(usage) = &answer.usage {
                p.soft { (number(usage.prompt_tokens)) " tokens in, " (number(usage.completion_tokens)) " out" }
            }
        }
    }
}
