//! The agents of this machine, with a button that points each at the proxy or restores its files.

use axum::{Form, extract::State, response::Response};
use maud::{Markup, html};
use metaclaw_control::{
    agents::{AgentChange, AgentState, FoundAgent},
    operations::agents::ListAgents,
};
use serde::Deserialize;

use crate::{
    actions::{Back, back},
    elements::{ActionForm, ButtonKind, empty, live},
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
};

#[derive(Debug, Deserialize)]
pub(crate) struct ConnectForm {
    agent: String,
    connect: bool,
    back: Back,
}

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
) -> Result<Markup, PageFailure> {
    let agents = state.ask(ListAgents).await?;
    let body = html! {
        h1 { "Agents on this machine" }
        p.lead { "A connected agent keeps its model and its login: MetaClaw passes both on, and learns from what you say." }
        (list(&agents, &frame.here))
    };
    Ok(frame.page("Agents", Section::Health, &body))
}

pub(crate) async fn change(
    State(state): State<PageState>,
    Form(form): Form<ConnectForm>,
) -> Result<Response, PageFailure> {
    let change = if form.connect {
        AgentChange::Connect(form.agent)
    } else {
        AgentChange::Disconnect(form.agent)
    };
    let done = state.ask(change).await?;
    Ok(back(&form.back, &done))
}

/// The agents, each with its state and a button. `here` is the address to which the buttons lead back.
pub(crate) fn list(agents: &[FoundAgent], here: &str) -> Markup {
    if agents.is_empty() {
        let next = html! { "Any other agent is connected by its settings: " code { "metaclaw wire --show NAME" } " says which." };
        return empty(
            "No agent that MetaClaw knows was found on this machine.",
            &next,
        );
    }
    live(
        "agents",
        &html! { ul.cards { @for agent in agents { li.card { (row(agent, here)) } } } },
    )
}

fn row(agent: &FoundAgent, here: &str) -> Markup {
    let asks = agent.asks.as_deref();
    let is_wired = agent.is == AgentState::Wired;
    let button = |connect: bool| {
        let label = if connect {
            format!("Connect {}", agent.name)
        } else {
            "Disconnect".to_owned()
        };
        let fields = [
            ("agent", &*agent.agent),
            ("connect", if connect { "true" } else { "false" }),
        ];
        let kind = if connect {
            ButtonKind::Main
        } else {
            ButtonKind::Plain
        };
        let form = ActionForm {
            action: "agent",
            fields: &fields,
            label: &label,
            about: &agent.name,
            back: here,
            kind,
        };
        html! { (form) }
    };
    html! {
        h3 { (agent.name) }
        p { @match (agent.is, asks) {
            (AgentState::Wired, Some(asks)) => { "Connected. MetaClaw passes its requests on to " (asks) "." }
            (AgentState::Wired, None) => { "Connected." }
            (AgentState::Changed, _) => { "Not connected any more: its settings were changed since." }
            (_, Some(asks)) => { "Asks " (asks) " today." }
            (_, None) => { "Its settings do not say which model it asks: connect it with " code { "metaclaw wire " (agent.agent) } "." }
        } }
        @if !is_wired && asks.is_some() { (button(true)) }
        @if is_wired || agent.is == AgentState::Changed { (button(false)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(is: AgentState, asks: Option<&str>) -> String {
        let agent = FoundAgent {
            agent: "codex".to_owned(),
            name: "Codex <b>".to_owned(),
            is,
            said: String::new(),
            asks: asks.map(str::to_owned),
        };
        list(&[agent], "/ui?x=1").into_string()
    }

    #[test]
    fn each_state_has_its_sentence_and_its_buttons() {
        let asks = Some("gpt-5.5 at api.openai.com");
        for (is, asks, sentence, buttons) in [
            (
                AgentState::NotWired,
                asks,
                "Asks gpt-5.5 at api.openai.com today.",
                ">Connect Codex &lt;b&gt;<",
            ),
            (
                AgentState::NotWired,
                None,
                "<code>metaclaw wire codex</code>",
                "",
            ),
            (
                AgentState::Wired,
                asks,
                "passes its requests on to gpt-5.5",
                ">Disconnect<",
            ),
            (
                AgentState::Changed,
                asks,
                "changed since",
                ">Connect Codex &lt;b&gt;<>Disconnect<",
            ),
        ] {
            let shown = shown(is, asks);
            assert!(
                shown.starts_with("<div id=\"agents\" data-live>"),
                "the script puts the new state in its place: {shown}"
            );
            assert!(shown.contains(sentence), "{shown}");
            assert!(!shown.contains("<b>"), "{shown}");
            let labels = [">Connect Codex &lt;b&gt;<", ">Disconnect<"];
            let found: String = labels
                .into_iter()
                .filter(|label| shown.contains(label))
                .collect();
            assert_eq!(found, buttons, "{shown}");
        }
        assert!(list(&[], "/ui").into_string().contains("No agent"));
    }
}
