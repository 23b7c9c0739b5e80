//! The first minute: with nothing configured, the agent's own model is found, shown, and asked about
//! once.

use std::path::Path;

use anyhow::bail;
use clap::Args;
use metaclaw_settings::{Loaded, Policy};
use metaclaw_wiring::{
    AgentProfile, Credential, Found, Models, OPENCLAW, PROFILES, Target, detect, models,
};

use crate::{
    commands::context::Context,
    connect::{
        self,
        goal::{Goal, asks_text},
    },
    out,
    wires::{MAIN_AGENT, is_answered, surroundings, target_of, wires},
};

const OTHERWISE: &str = "`metaclaw setup` asks for another provider";

/// What may be done to the agent's own configuration.
#[derive(Debug, Default, Args)]
pub(super) struct AgentArgs {
    /// Relay the agent's own model, and point the agent at the proxy, without asking.
    #[arg(short, long)]
    pub yes: bool,
    /// Do not change the agent's configuration, and restore what was changed.
    #[arg(long, conflicts_with = "yes")]
    pub no_wire: bool,
}

/// At the first start, or with `--yes`: finds OpenClaw, asks its owner, writes `llm.*` to the settings, and records the
/// consent to rewire it.
///
/// # Errors
/// If there is nothing to relay, the owner declines at the first start, or a file cannot be read or written.
pub(super) fn prepare(
    context: &Context,
    loaded: &Loaded,
    file: Option<&Path>,
    args: &AgentArgs,
) -> anyhow::Result<()> {
    let is_first =
        file.is_none() && !context.home.config().exists() && !context.relays(&loaded.config)?;
    let wires = wires(&context.home);
    let record = wires.record(OPENCLAW)?;
    let is_asked_for = args.yes || record.is_some();
    if !is_first && (!is_asked_for || args.no_wire || !loaded.config.wires_agent()) {
        return Ok(());
    }
    // While it is pointed at us, its file says nothing of what it asked before.
    if !is_first && wires.standing(OPENCLAW)?.is_pointed() {
        return Ok(());
    }
    let found = match detect(&surroundings(&context.environment)) {
        Ok(Some(found)) => found,
        Ok(None) if is_first => return offer_others(context, args, true),
        Err(error) if is_first => {
            bail!("nothing to relay yet; {OTHERWISE}: {error}");
        }
        Err(error) if args.yes => return Err(error.into()),
        Ok(None) | Err(_) => return Ok(()),
    };
    let config = &loaded.config;
    let policy = Policy::from_config(config, &context.environment.cache())?;
    let is_answered = is_answered(MAIN_AGENT, config, &policy);
    if is_answered && record.as_ref().is_some_and(|record| record.is_of(&found)) {
        return Ok(());
    }
    // An upstream that the owner wrote into the settings is not replaced.
    let is_ours = record.is_some() && config.llm.api_base.is_some();
    let adopts = !is_answered || is_ours && context.home.config().exists();
    let mut target = target_of(MAIN_AGENT, config, &policy, config.gateway.proxy.address());
    target.has_provider_key |= adopts && matches!(found.credential, Credential::Key { .. });
    let shown = shown(context, &found, &target, adopts, args.no_wire);
    if !agreed(args, &found, &shown, is_first)? {
        return Ok(());
    }
    if adopts {
        let file = file.map_or_else(|| context.settings_file(), Path::to_owned);
        Goal::of_file(context, file, None)?.adopt(&found)?;
    }
    if !args.no_wire && loaded.config.wires_agent() {
        wires.accept_found(&found)?;
        if is_first {
            offer_others(context, args, false)?;
        }
    }
    Ok(())
}

fn agreed(args: &AgentArgs, found: &Found, shown: &str, is_first: bool) -> anyhow::Result<bool> {
    if args.yes || args.no_wire {
        out::line(shown)?;
        return Ok(true);
    }
    if out::can_ask() {
        out::line(shown)?;
        let said = out::ask("Relay it through MetaClaw?", true)?;
        if !said && is_first {
            bail!("nothing was changed; {OTHERWISE}");
        }
        return Ok(said);
    }
    if is_first {
        bail!(
            "nothing to relay yet: `metaclaw start --yes` relays what OpenClaw asks ({}/{}), and points it at the proxy; {OTHERWISE}",
            found.provider,
            found.model
        );
    }
    Ok(false)
}

fn shown(context: &Context, found: &Found, target: &Target, adopts: bool, no_wire: bool) -> String {
    let Models { ours, former } = models(found, target);
    let config = context.home.config();
    let key = match &found.credential {
        _ if !adopts => "not copied, because the provider in your settings answers".to_owned(),
        Credential::Key { key, from } => {
            format!(
                "{key} ({from}), copied to {} (only you can read it)",
                config.display()
            )
        }
        Credential::Reference(_) | Credential::Login => {
            "OpenClaw's own login, passed on and never stored; so rules alone detect wishes, and no model helps to learn".to_owned()
        }
    };
    let mut lines = vec![
        format!("Found OpenClaw: {}", found.file.display()),
        format!(
            "  model     {} at {} ({})",
            found.model,
            found.base_url,
            found.api.as_str()
        ),
        format!("  key       {key}"),
    ];
    if !no_wire {
        lines.push(format!(
            "  change    while MetaClaw runs, OpenClaw asks {ours}, and {former} where that fails: two keys in that file, after a copy"
        ));
        lines.push("  undo      `metaclaw stop` puts the file back; `metaclaw uninstall` removes everything".to_owned());
    }
    lines.extend(found.notes.iter().map(|note| format!("  note      {note}")));
    lines.push("  reboots   `metaclaw service install` starts it with this machine".to_owned());
    lines.join("\n")
}

/// Offers each other agent that is found here.
///
/// # Errors
/// If there is nothing else to relay, and no agent was taken.
fn offer_others(context: &Context, args: &AgentArgs, is_needed: bool) -> anyhow::Result<()> {
    let surroundings = surroundings(&context.environment);
    let is_offered = |agent: &&AgentProfile| agent.id != OPENCLAW && surroundings.has(agent);
    let agents = PROFILES.iter().filter(is_offered);
    let agents = agents.filter_map(|agent| Some((agent, agent.asked_today(&surroundings).ok()??)));
    let may_ask = out::can_ask() && !args.yes && !args.no_wire;
    let (mut commands, mut is_taken) = (Vec::new(), false);
    for (agent, asks) in agents {
        let AgentProfile { id, name, .. } = agent;
        commands.push(format!("`metaclaw wire {id}`"));
        if may_ask {
            let model = asks_text(asks.model.as_deref(), &asks.url);
            out::line(format!(
                "Found {name}: asks {model}, and keeps its model and its login"
            ))?;
            if out::ask("Relay it through MetaClaw?", true)? {
                let mut goal = Goal::load(context)?;
                connect::keep(&mut goal, agent, &asks)?;
                connect::connect(&goal, agent)?
                    .iter()
                    .try_for_each(out::line)?;
                is_taken = true;
            }
        }
    }
    if is_taken || !is_needed {
        return Ok(());
    }
    if commands.is_empty() {
        bail!(
            "nothing to relay yet, and no agent that MetaClaw knows was found here: `metaclaw setup`"
        );
    }
    bail!(
        "nothing to relay yet: {} relays what that agent asks today; {OTHERWISE}",
        commands.join(" or ")
    )
}
