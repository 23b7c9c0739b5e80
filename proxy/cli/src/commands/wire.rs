//! `metaclaw wire` and `unwire`: point agents at the proxy, and restore their files.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use metaclaw_chat::substituted;
use metaclaw_control::agents::{AgentChange, FoundAgent};
use metaclaw_wiring::{AgentProfile, Api, AskedToday, PROFILES, Surroundings, Target, profile};

use super::{
    calling::call,
    context::{Context, runtime},
    start::StartArgs,
};
use crate::{
    connect::{
        self,
        goal::{Goal, asks_text},
    },
    out,
    wires::{is_answered, surroundings, wires},
};

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct WireArgs {
    /// The agent, for example codex.
    agent: Option<String>,
    /// Print what would change in the agent's files, as a diff in which keys are masked.
    #[arg(long, requires = "agent")]
    dry_run: bool,
    /// Have MetaClaw's model answer the agent. Without it, the agent keeps its own model and login.
    #[arg(long, requires = "agent")]
    replace_model: bool,
    /// Do not start MetaClaw if it does not run.
    #[arg(long, requires = "agent")]
    no_start: bool,
    /// Print what to set by hand in any agent, also one that MetaClaw does not know.
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
    pub(super) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        if let Some(name) = &self.show {
            out::line(by_hand(context, name)?)?;
        } else if let Some(id) = &self.agent {
            match profile(id) {
                Some(agent) => return self.wire(context, agent),
                None => refuse(context, id)?,
            }
        } else {
            self.list(context)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn list(&self, context: &Context) -> anyhow::Result<()> {
        let found = connect::agents(&Goal::load(context)?)?;
        if self.json {
            return Ok(out::json(&found)?);
        }
        if found.is_empty() {
            out::line("no agent that MetaClaw knows was found on this machine")?;
        } else {
            let cells: Vec<Vec<String>> = found.into_iter().map(cells).collect();
            out::line(out::table(&["agent", "name", "its model", "state"], &cells))?;
        }
        let known = PROFILES.iter().map(|agent| agent.id.as_str());
        let known: Vec<&str> = known.collect();
        out::line(format!("supported: {}", known.join(", ")))?;
        Ok(out::line(
            "`metaclaw wire --show NAME` says what to set in any other",
        )?)
    }

    /// The whole set-up: the agent's own provider becomes its upstream, MetaClaw is started, and the agent asks it.
    fn wire(&self, context: &Context, agent: &AgentProfile) -> anyhow::Result<ExitCode> {
        let mut goal = Goal::load(context)?;
        if self.dry_run {
            tell(&connect::plan(&goal, agent, self.replace_model)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let asks = connect::asked_today(context, agent)?;
        match &asks {
            Some(asks) => self.settle(&mut goal, agent, asks)?,
            None => goal.check(agent.caller()).with_context(|| {
                format!(
                    "the settings of {} do not say what it asks today",
                    agent.name
                )
            })?,
        }
        if goal.running.is_some() {
            runtime()?.block_on(call(context, "wire", AgentChange::Reroute))?;
        }
        tell(&connect::connect(&goal, agent)?)?;
        out::line(format!(
            "`metaclaw stop` puts its files back until the next start, `metaclaw unwire {}` for good",
            agent.id
        ))?;
        if goal.running.is_some() || self.no_start {
            return Ok(ExitCode::SUCCESS);
        }
        StartArgs::in_background().run(context)
    }

    /// Decides whose model answers the agent, and writes it into the settings.
    fn settle(
        &self,
        goal: &mut Goal,
        agent: &AgentProfile,
        asks: &AskedToday,
    ) -> anyhow::Result<()> {
        if goal.is_settled(agent) {
            return Ok(());
        }
        let name = &agent.name;
        let today = format!(
            "{name} asks {} today",
            asks_text(asks.model.as_deref(), &asks.url)
        );
        if self.replace_model {
            return replace(goal, agent);
        }
        let Some(other) = goal.other_answer(agent, asks) else {
            connect::keep(goal, agent, asks)?;
            return Ok(out::line(format!(
                "{today}, and goes on asking it through MetaClaw"
            ))?);
        };
        out::line(format!("{today}. Here {other} would answer it."))?;
        if out::can_ask() {
            if !out::ask("Keep its own model?", true)? {
                return replace(goal, agent);
            }
        } else {
            out::line("It keeps its own model; --replace-model takes the other one")?;
        }
        connect::keep(goal, agent, asks)
    }
}

fn cells(agent: FoundAgent) -> Vec<String> {
    let asks = agent.asks.unwrap_or_default();
    vec![agent.agent, agent.name, asks, agent.said]
}

fn tell(lines: &[String]) -> anyhow::Result<()> {
    Ok(lines
        .iter()
        .try_for_each(|line| out::line(line.trim_end()))?)
}

fn refuse(context: &Context, name: &str) -> anyhow::Result<()> {
    let by_hand = by_hand(context, name)?;
    bail!(
        "{name:?} is not supported (`metaclaw wire` lists the agents that are); by hand:\n{by_hand}"
    )
}

fn by_hand(context: &Context, name: &str) -> anyhow::Result<String> {
    let goal = Goal::load(context)?;
    let target = goal.target(name);
    let mut text = settings_by_hand(name, &surroundings(&context.environment), &target);
    if !is_answered(name, &goal.loaded.config, &goal.policy) {
        text += "\nNobody answers it yet: `metaclaw setup` asks for a provider that answers every agent";
    }
    Ok(text)
}

// === impl UnwireArgs ===

impl UnwireArgs {
    pub(super) fn run(self, context: &Context) -> anyhow::Result<()> {
        let agents = if let Some(name) = self.agent {
            vec![name]
        } else {
            wires(&context.home).agents()?
        };
        let mut any = false;
        for agent in agents {
            let told = connect::disconnect(context, &agent)?;
            any |= told.is_some();
            told.map(out::line).transpose()?;
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
        None => any_agent(name, target),
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
    let mut text = include_str!("../../data/agent_by_hand.txt").to_owned();
    if name == "nemoclaw" {
        text += include_str!("../../data/nemoclaw_by_hand.txt");
    }
    let filled = substituted(&text, |word| match word {
        "chat" => Some(target.base_url(Api::OpenaiCompletions)),
        "messages" => Some(target.base_url(Api::AnthropicMessages)),
        "key" => Some(key.to_owned()),
        "model" => Some(model.clone()),
        _ => Some(name.to_owned()),
    });
    filled.trim_end().to_owned()
}

fn replace(goal: &mut Goal, agent: &AgentProfile) -> anyhow::Result<()> {
    let told = connect::replace(goal, agent)?;
    Ok(told.map_or(Ok(()), out::line)?)
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
