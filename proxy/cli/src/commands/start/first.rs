//! The first minute: with nothing configured, the agent's own model is found, shown, and asked about
//! once.

use anyhow::{Context as _, bail};
use clap::Args;
use metaclaw_control::home::Home;
use metaclaw_settings::{Loaded, Policy, edit};
use metaclaw_wiring::{Credential, DetectError, Found, Models, Standing, Target, detect};

use crate::{
    agent::{surroundings, target, wiring},
    commands::{
        context::Context,
        setup::answers::{MODE, SetupAnswers},
    },
    out,
};

const OTHERWISE: &str = "`metaclaw setup` asks for another provider";

/// What may be done to the agent's own configuration.
#[derive(Debug, Args)]
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
    let wiring = wiring(home);
    let record = wiring.record()?;
    let is_asked_for = args.yes || record.is_some();
    if !is_first && (!is_asked_for || args.no_wire || !loaded.config.wires_agent()) {
        return Ok(());
    }
    // While it is pointed at us, its file says nothing of what it asked before.
    if !is_first && wiring.standing()? != Standing::Unwired {
        return Ok(());
    }
    let found = match detect(&surroundings(&context.environment)) {
        Ok(Some(found)) => found,
        Ok(None) if is_first => {
            bail!("nothing to relay yet, and no OpenClaw is configured here: `metaclaw setup`")
        }
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
    let is_ours = wiring.record()?.is_some();
    configure(
        context,
        &found,
        is_first,
        is_ours && loaded.config.llm.api_base.is_some(),
    )?;
    if !args.no_wire && loaded.config.wires_agent() {
        wiring.accept(&found)?;
    }
    Ok(())
}

fn nothing_found(error: DetectError) -> anyhow::Error {
    anyhow::Error::from(error).context(format!("nothing to relay yet; {OTHERWISE}"))
}

fn first_target(loaded: &Loaded, context: &Context, found: &Found) -> anyhow::Result<Target> {
    let config = &loaded.config;
    let policy = Policy::from_config(config, &context.environment.cache())?;
    let mut target = target(config, &policy, config.gateway.proxy.address());
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
    let Models { ours, former } = Models::planned(found, target);
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

fn configure(
    context: &Context,
    found: &Found,
    is_first: bool,
    is_ours: bool,
) -> anyhow::Result<()> {
    let path = context.home.config();
    // Whoever wrote another upstream there meant it.
    let may_write = is_first || is_ours && path.exists();
    if !may_write {
        return Ok(());
    }
    let dir = context.home.dir();
    (context.home.create()).with_context(|| format!("cannot create {}", dir.display()))?;
    let loaded = context.settings_of(path.clone())?;
    let mut answers = SetupAnswers::of_agent(&loaded, found);
    if is_first {
        answers.set(MODE, Some("skills_only".to_owned()));
    }
    Ok(edit::answer_in_file(&path, &answers.changes())?)
}
