//! `metaclaw wire` and `unwire`: point agents at the proxy, and restore their files.

use anyhow::{bail, ensure};
use clap::Args;
use metaclaw_wiring::{AgentProfile, Api, PROFILES, Surroundings, Target, Wires, profile};

use self::{
    goal::{Goal, with_hand},
    row::{Row, State},
};
use super::context::Context;
use crate::{
    out,
    wires::{agent_name, restored_text, surroundings, wires},
};

mod goal;
mod openclaw;
mod row;

#[derive(Debug, Args)]
pub(crate) struct WireArgs {
    /// The agent, for example codex.
    agent: Option<String>,
    /// Print what would change in the agent's files, as a diff in which keys are masked.
    #[arg(long, requires = "agent")]
    dry_run: bool,
    /// Print what to set by hand in this agent, which need not be in the list.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["agent", "json"])]
    show: Option<String>,
    /// Print JSON.
    #[arg(long, conflicts_with = "agent")]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UnwireArgs {
    /// The agent, for example codex.
    agent: Option<String>,
}

// === impl WireArgs ===

impl WireArgs {
    pub(super) fn run(self, context: &Context) -> anyhow::Result<()> {
        if let Some(name) = &self.show {
            let target = Goal::load(context)?.target(name);
            out::line(settings_by_hand(
                name,
                &surroundings(&context.environment),
                &target,
            ))?;
            return Ok(());
        }
        match &self.agent {
            None => self.list(context)?,
            Some(name) if name == openclaw::ID => openclaw::wire(context, self.dry_run)?,
            Some(name) => match profile(name) {
                Some(agent) => wire(context, agent, self.dry_run)?,
                None => refuse(context, name)?,
            },
        }
        Ok(())
    }

    fn list(&self, context: &Context) -> anyhow::Result<()> {
        let rows = rows(context)?;
        if self.json {
            return Ok(out::json(&rows)?);
        }
        if rows.is_empty() {
            out::line("no agent that MetaClaw knows was found on this machine")?;
        } else {
            let cells: Vec<Vec<String>> = rows.into_iter().map(Row::cells).collect();
            out::line(out::table(&["agent", "name", "state"], &cells))?;
        }
        let known = PROFILES.iter().map(|agent| agent.id.as_str());
        let known: Vec<&str> = [openclaw::ID].into_iter().chain(known).collect();
        out::line(format!("known: {}", known.join(", ")))?;
        Ok(out::line(
            "`metaclaw wire --show NAME` says what to set in any other",
        )?)
    }
}

fn wire(context: &Context, agent: &AgentProfile, dry_run: bool) -> anyhow::Result<()> {
    let goal = Goal::load(context)?;
    goal.check(&agent.id)?;
    let (wires, surroundings) = (wires(&context.home), surroundings(&context.environment));
    let target = goal.target(&agent.id);
    let name = &agent.name;
    if dry_run {
        if wires.is_wired_to(&agent.id, &target)? {
            return Ok(out::line(format!(
                "{name} asks MetaClaw already: nothing would change"
            ))?);
        }
        let plan = wires
            .plan(agent, &surroundings, &target)
            .map_err(with_hand)?;
        out::line(plan.diff().trim_end())?;
        return tell(&plan.notes);
    }
    context.home.create()?;
    let notes = if goal.running.is_some() {
        let notes = wires
            .wire(agent, &surroundings, &target)
            .map_err(with_hand)?;
        out::line(format!(
            "{name} asks MetaClaw at {}, {}",
            target.origin, agent.takes_effect
        ))?;
        notes
    } else {
        release(&wires, &agent.id)?;
        let notes = wires
            .accept(agent, &surroundings, &target)
            .map_err(with_hand)?;
        out::line(format!(
            "{name} asks MetaClaw from the next `metaclaw start` on"
        ))?;
        notes
    };
    tell(&notes)?;
    out::line(format!(
        "`metaclaw stop` puts its files back until the next start, `metaclaw unwire {}` for good",
        agent.id
    ))?;
    Ok(())
}

fn tell(notes: &[String]) -> anyhow::Result<()> {
    for note in notes {
        out::line(format!("note: {note}"))?;
    }
    Ok(())
}

/// Restores the agent's files, and prints what was done. Returns whether anything was printed.
fn release(wires: &Wires, agent: &str) -> anyhow::Result<bool> {
    let said = restored_text(agent, &wires.unwire(agent).map_err(with_hand)?);
    let is_told = said.is_some();
    said.map(out::line).transpose()?;
    Ok(is_told)
}

fn refuse(context: &Context, name: &str) -> anyhow::Result<()> {
    let target = Goal::load(context)?.target(name);
    let by_hand = settings_by_hand(name, &surroundings(&context.environment), &target);
    bail!(
        "{name:?} is not supported (`metaclaw wire` lists the agents that are); by hand:\n{by_hand}"
    )
}

// === impl UnwireArgs ===

impl UnwireArgs {
    pub(super) fn run(self, context: &Context) -> anyhow::Result<()> {
        let wires = wires(&context.home);
        let mut any = false;
        let wired = wires.agents()?;
        let (openclaw, agents) = match self.agent.as_deref() {
            None => (true, wired),
            Some(openclaw::ID) => (true, Vec::new()),
            Some(name) => {
                ensure!(
                    profile(name).is_some() || wired.iter().any(|agent| agent == name),
                    "{name:?} is no agent that MetaClaw knows or has wired: `metaclaw wire` lists them"
                );
                (false, vec![name.to_owned()])
            }
        };
        if openclaw {
            any |= openclaw::unwire(context)?;
        }
        for agent in agents {
            let was_wired = wires.record(&agent)?.is_some();
            let is_told = release(&wires, &agent)?;
            wires.forget(&agent)?;
            if was_wired && !is_told {
                out::line(format!(
                    "{}: its files are as they were, and stay so",
                    agent_name(&agent)
                ))?;
            }
            any |= was_wired;
        }
        if !any {
            out::line("nothing is wired: all files are as they were")?;
        }
        Ok(())
    }
}

/// Returns the new content of each file for a known agent. For any other agent, returns the address, the key and the
/// header.
fn settings_by_hand(name: &str, surroundings: &Surroundings, target: &Target) -> String {
    let settings = profile(name).and_then(|agent| agent.settings(surroundings, target).ok());
    match settings {
        Some(settings) => settings.by_hand(target),
        None => format!("{}{}", any_agent(name, target), commands_of(name, target)),
    }
}

fn any_agent(name: &str, target: &Target) -> String {
    let key = match (&target.key, target.has_provider_key) {
        (Some(_), _) => {
            "a key of MetaClaw's own: proxy.api_key, or one that `metaclaw keys add` made"
        }
        (None, true) => "any text: MetaClaw asks for none, and has the provider's",
        (None, false) => "the provider's: MetaClaw passes it on",
    };
    let model = target.model.as_deref().map_or_else(
        || "the provider's name of it".to_owned(),
        |model| format!("any name: MetaClaw asks for {model}"),
    );
    format!(
        "\
OpenAI's APIs    {chat}
                 as OPENAI_BASE_URL, OPENAI_API_BASE, or the \"base URL\" of an OpenAI-compatible provider
Anthropic's API  {messages}
                 as ANTHROPIC_BASE_URL, without /v1
key              {key}
model            {model}
header           X-Agent-Id: {name}
                 With it, the agent has lessons of its own. Without it, it shares those of all that send none
fallback         if it has a list of providers: the one that it uses today, as the next one",
        chat = target.base_url(Api::OpenaiCompletions),
        messages = target.base_url(Api::AnthropicMessages),
    )
}

fn commands_of(name: &str, target: &Target) -> String {
    if name != "nemoclaw" {
        return String::new();
    }
    let base_url = target.base_url(Api::OpenaiCompletions);
    let model = target.model.as_deref().unwrap_or("MODEL");
    format!(
        "\n\nNemoClaw, by its documentation; not tried:
  openshell provider create --name metaclaw --type openai --credential OPENAI_API_KEY=KEY --config OPENAI_BASE_URL={base_url}
  openshell inference set --provider metaclaw --model {model}"
    )
}

fn rows(context: &Context) -> anyhow::Result<Vec<Row>> {
    let (wires, surroundings) = (wires(&context.home), surroundings(&context.environment));
    let is_running = context.home.holder()?.is_some();
    let mut rows: Vec<Row> = openclaw::row(context, is_running)?.into_iter().collect();
    let found = PROFILES.iter().filter(|agent| surroundings.has(agent));
    let mut agents = wires.agents()?;
    agents.extend(found.map(|agent| agent.id.clone()));
    // Agents come in the order of the documentation. Those that are no longer supported come last.
    let place = |id: &String| PROFILES.iter().position(|agent| agent.id == *id);
    agents.sort_by_key(|id| (place(id).unwrap_or(PROFILES.len()), id.clone()));
    agents.dedup();
    for agent in agents {
        let is = State::from_standing(wires.standing(&agent)?, is_running);
        let said = match profile(&agent) {
            Some(_) => is.text(&agent),
            None => format!("is no longer supported: `metaclaw unwire {agent}`"),
        };
        rows.push(Row {
            name: agent_name(&agent).to_owned(),
            said,
            is,
            agent,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, key: Option<&str>) -> String {
        let target = Target {
            origin: "http://127.0.0.1:30000".to_owned(),
            key: key.map(Into::into),
            has_provider_key: true,
            is_own: false,
            model: Some("gpt-5.2".to_owned()),
            upstream: None,
            context_window: None,
        };
        let surroundings = Surroundings {
            variables: Vec::new(),
            home: "/nonexistent".into(),
        };
        settings_by_hand(name, &surroundings, &target)
    }

    #[test]
    fn an_agent_that_is_known_gets_its_file() {
        insta::assert_snapshot!(shown("codex", Some("sk-ours-123456")), @r#"
        /nonexistent/.codex/config.toml:
          model_provider = "metaclaw"

          [model_providers.metaclaw]
          name = "MetaClaw"
          base_url = "http://127.0.0.1:30000/v1"
          wire_api = "responses"
          http_headers = { X-Agent-Id = "codex" }
          experimental_bearer_token = "(the proxy's key)"
        "#);
    }

    #[test]
    fn any_other_gets_address_key_and_name() {
        let text = shown("mine", None);
        for part in [
            "http://127.0.0.1:30000/v1",
            "X-Agent-Id: mine",
            "asks for gpt-5.2",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(shown("nemoclaw", None).contains("openshell inference set"));
        assert!(!shown("mine", Some("sk-ours-123456")).contains("sk-ours"));
    }
}
