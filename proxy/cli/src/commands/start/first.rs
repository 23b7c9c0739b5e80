//! The first minute: with nothing configured, the agent's own model is found, shown, and asked about
//! once.

use anyhow::{Context as _, bail};
use clap::Args;
use metaclaw_control::home::{Home, write_private};
use metaclaw_settings::{Loaded, Policy, edit};
use metaclaw_wiring::{Api, Credential, DetectError, Found, Models, Standing, Target};

use crate::{
    agent::{find, surroundings, target, wiring},
    commands::context::Context,
    out,
};

/// Whose dialect is known by its address.
const ANTHROPIC: &str = "https://api.anthropic.com";
const OTHERWISE: &str = "`metaclaw setup` asks for another provider";

/// What may be done to the agent's own configuration.
#[derive(Debug, Args)]
pub(super) struct AgentArgs {
    /// Yes to what would be asked: relay the agent's own model, and point the agent at the proxy.
    #[arg(short, long)]
    pub yes: bool,
    /// Leave the agent's own configuration alone, and put back what was changed.
    #[arg(long, conflicts_with = "yes")]
    pub no_wire: bool,
}

/// Sees to it that there is something to relay, and remembers whether an agent may be pointed at us.
///
/// # Errors
///
/// When there is nothing to relay, with the one command that is missing.
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
    let found = match find(&surroundings(&context.environment)) {
        Ok(Some(found)) => found,
        Ok(None) if is_first => {
            bail!("nothing to relay yet, and no OpenClaw is configured here: `metaclaw setup`")
        }
        Err(error) if is_first => return Err(nothing_found(error)),
        Err(error) if args.yes => return Err(error.into()),
        Ok(None) | Err(_) => return Ok(()),
    };
    if record.is_some_and(|it| it.is_of(&found)) && !is_first {
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

/// The proxy as it will be, for the names that the agent is to be given.
fn first_target(loaded: &Loaded, context: &Context, found: &Found) -> anyhow::Result<Target> {
    let config = &loaded.config;
    let policy = Policy::from_config(config, &context.environment.cache())?;
    let mut target = target(config, &policy, config.gateway.proxy.address());
    if matches!(found.credential, Credential::Key { .. }) {
        target.has_provider_key = true;
    }
    Ok(target)
}

/// Shows what was found, and asks.
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
            "nothing to relay yet: `metaclaw start --yes` relays what {} asks ({}/{}), and points it at the proxy; {OTHERWISE}",
            found.agent.name(),
            found.provider,
            found.model
        );
    }
    Ok(false)
}

/// What was found and what would be done, in a few lines.
fn shown(context: &Context, found: &Found, target: &Target, no_wire: bool) -> String {
    let name = found.agent.name();
    let Models { ours, former } = Models::planned(found, target);
    let config = context.home.config();
    let key = match &found.credential {
        Credential::Key { key, from } => {
            format!(
                "{key} ({from}), copied to {} (only you can read it)",
                config.display()
            )
        }
        Credential::Reference(_) | Credential::Login => format!(
            "{name}'s own login, passed on and never kept; so wishes are heard by rules alone, and no model helps to learn"
        ),
    };
    let mut lines = vec![
        format!("Found {name}: {}", found.file.display()),
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
            "  change    while MetaClaw runs, {name} asks {ours}, and {former} where that fails: two keys in that file, after a copy"
        ));
        lines.push("  undo      `metaclaw stop` puts the file back; `metaclaw uninstall` removes everything".to_owned());
    }
    lines.extend(found.notes.iter().map(|note| format!("  note      {note}")));
    lines.push("  reboots   `metaclaw service install` starts it with this machine".to_owned());
    lines.join("\n")
}

/// Writes what to relay to: a new file, or `llm.*` of the one that is there.
fn configure(
    context: &Context,
    found: &Found,
    is_first: bool,
    is_ours: bool,
) -> anyhow::Result<()> {
    let path = context.home.config();
    if is_first {
        let dir = context.home.dir();
        context
            .home
            .create()
            .with_context(|| format!("cannot make {}", dir.display()))?;
        return write_private(&path, config_text(found).as_bytes())
            .with_context(|| format!("cannot write {}", path.display()));
    }
    // Whoever wrote another upstream there meant it.
    if is_ours && path.exists() {
        let mut keys = vec![
            ("llm.api_base".to_owned(), found.base_url.clone()),
            ("llm.model_id".to_owned(), found.model.clone()),
        ];
        if let Credential::Key { key, .. } = &found.credential {
            keys.push(("llm.api_key".to_owned(), key.expose().to_owned()));
        }
        edit::set_all_in_file(&path, &keys)?;
    }
    Ok(())
}

fn config_text(found: &Found) -> String {
    // A JSON text is a YAML text.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let name = found.agent.name();
    let key = match &found.credential {
        Credential::Key { key, from } => {
            format!("  api_key: {}   # from {from}", quoted(key.expose()))
        }
        Credential::Reference(_) | Credential::Login => format!(
            "  # api_key: none, so {name}'s own login is passed on; with one here, a model may help to learn as well"
        ),
    };
    let mut text = format!(
        "# Written by `metaclaw start` from {}. `metaclaw config example` shows every setting.\n\
         mode: skills_only   # relay, and learn wishes and skills; no weights are trained\n\
         llm:   # the model that {name} asked\n  api_base: {}\n  model_id: {}\n{key}\n",
        found.file.display(),
        quoted(&found.base_url),
        quoted(&found.model),
    );
    if found.api == Api::AnthropicMessages && !found.base_url.starts_with(ANTHROPIC) {
        text.push_str("upstreams:\n  llm: {dialect: anthropic}   # how it wants its key\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use metaclaw_settings::Layer;

    fn found(api: Api, base_url: &str, credential: Credential) -> Found {
        let text = r#"{agents: {defaults: {model: "p/m: #1"}}, models: {providers: {p: {baseUrl: "http://h", apiKey: "k", api: "openai-completions"}}}}"#;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("openclaw.json");
        std::fs::write(&file, text).unwrap();
        let variables = vec![(
            "OPENCLAW_CONFIG_PATH".to_owned(),
            file.display().to_string(),
        )];
        let home = folder.path().to_owned();
        let surroundings = metaclaw_wiring::Surroundings { variables, home };
        let mut found = find(&surroundings).unwrap().unwrap();
        base_url.clone_into(&mut found.base_url);
        (found.api, found.credential) = (api, credential);
        found
    }

    #[test]
    fn what_is_written_is_read_as_it_was_found() {
        let key = Credential::Key {
            key: "sk-\"1".into(),
            from: "OpenClaw's file".to_owned(),
        };
        let found = found(Api::AnthropicMessages, "https://a.example", key);
        let layer = Layer::text("config.yaml".into(), &config_text(&found)).unwrap();
        let loaded = Loaded::new(vec![layer]).unwrap();
        assert!(loaded.unknown.is_empty() && loaded.inert.is_empty());
        let llm = loaded.config.llm;
        assert_eq!(llm.api_base.as_deref(), Some("https://a.example"));
        assert_eq!(llm.model_id.as_deref(), Some("m: #1"));
        assert_eq!(llm.api_key.unwrap().expose(), "sk-\"1");
        assert!(loaded.config.gateway.upstreams.contains_key("llm"));
    }

    #[test]
    fn a_login_leaves_no_key() {
        let found = found(
            Api::OpenaiResponses,
            "https://a.example/v1",
            Credential::Login,
        );
        let layer = Layer::text("config.yaml".into(), &config_text(&found)).unwrap();
        let loaded = Loaded::new(vec![layer]).unwrap();
        assert!(loaded.config.llm.api_key.is_none());
        assert_eq!(loaded.config.learner.mode, metaclaw_chat::Mode::SkillsOnly);
        assert!(loaded.config.gateway.upstreams.is_empty());
    }
}
