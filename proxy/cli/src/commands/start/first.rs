//! The first minute: with nothing configured, the agent's own model is found, shown, and asked about
//! once.

use anyhow::bail;
use clap::Args;
use metaclaw_control::home::Home;
use metaclaw_settings::{Loaded, Policy};
use metaclaw_wiring::{
    AgentProfile, Credential, DetectError, Found, Models, OPENCLAW, PROFILES, Target, detect,
    models,
};

use crate::{
    commands::context::Context,
    connect::{
        self,
        goal::{Goal, asks_text},
    },
    out,
    wires::{MAIN_AGENT, surroundings, target_of, wires},
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
    home: &Home,
    file_named: bool,
    args: &AgentArgs,
) -> anyhow::Result<()> {
    let is_first =
        !file_named && !context.home.config().exists() && !context.relays(&loaded.config)?;
    let wires = wires(home);
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
        Err(error) if is_first => return Err(nothing_found(error)),
        Err(error) if args.yes => return Err(error.into()),
        Ok(None) | Err(_) => return Ok(()),
    };
    if record.is_some_and(|record| record.is_of(&found)) && !is_first {
        return Ok(());
    }
    let target = first_target(loaded, context, &found)?;
    if !agreed(context, args, &found, &target, is_first)? {
        return Ok(());
    }
    // An upstream that the owner wrote into the settings is not replaced.
    let is_ours = wires.record(OPENCLAW)?.is_some() && loaded.config.llm.api_base.is_some();
    if is_first || is_ours && context.home.config().exists() {
        Goal::load(context)?.adopt(&found)?;
    }
    if !args.no_wire && loaded.config.wires_agent() {
        wires.accept_found(&found)?;
        if is_first {
            offer_others(context, args, false)?;
        }
    }
    Ok(())
}

fn nothing_found(error: DetectError) -> anyhow::Error {
    anyhow::Error::from(error).context(format!("nothing to relay yet; {OTHERWISE}"))
}

fn first_target(loaded: &Loaded, context: &Context, found: &Found) -> anyhow::Result<Target> {
    let config = &loaded.config;
    let policy = Policy::from_config(config, &context.environment.cache())?;
    let mut target = target_of(MAIN_AGENT, config, &policy, config.gateway.proxy.address());
    if matches!(found.credential, Credential::Key { .. }) {
        target.has_provider_key = true;
    }
    Ok(target)
}

fn agreed(
    context: &Context,
    args: &AgentArgs,
    found: &Found,
    target: &Target,
    is_first: bool,
) -> anyhow::Result<bool> {
    let shown = shown(context, found, target, args.no_wire);
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

fn shown(context: &Context, found: &Found, target: &Target, no_wire: bool) -> String {
    let Models { ours, former } = models(found, target);
    let config = context.home.config();
    let key = match &found.credential {
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
