//! `metaclaw keys`: who may come in, for which agents.
//!
//! A key stands in the file, in `proxy.keys`, and is told to the running process, so that it opens at
//! once. It is shown in full when it is made, and never again.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use metaclaw_chat::AgentId;
use metaclaw_control::{
    client::ControlClient,
    operations::process::{KeyChange, NewKey},
};
use metaclaw_gateway::KeyConfig;
use metaclaw_settings::edit;
use metaclaw_wiring::OPENCLAW;
use serde::Serialize;
use serde_json::json;

use super::context::Context;
use crate::{out, wires::wires};

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    what: KeysCommand,
    /// The file of settings. Without it, config.yaml in the home folder.
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Make a key for some agents, and print it once.
    Add {
        /// A name of your choice, for example phone.
        name: String,
        /// The agents that its holder may speak for. The first one counts if a caller names none.
        #[arg(long, required = true, value_delimiter = ',')]
        agent: Vec<AgentId>,
    },
    /// List the keys: name, last characters and agents.
    List,
    /// Remove a key.
    Remove {
        /// The key's name.
        name: String,
    },
}

#[derive(Debug, Serialize)]
struct KeyView {
    name: String,
    key: String,
    agents: Vec<AgentId>,
}

// === impl KeysArgs ===

impl KeysArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let Self { what, config, json } = self;
        let settings = context.settings(config.clone(), Vec::new())?;
        let settings = settings.config.gateway;
        let keys = &settings.proxy.keys;
        let file = config.unwrap_or_else(|| context.home.config());
        match what {
            KeysCommand::List => list(keys, json)?,
            KeysCommand::Add { name, agent } => {
                is_name(&name)?;
                ensure!(
                    !keys.contains_key(&name),
                    "there is a key {name} already: `metaclaw keys remove {name}` takes it back"
                );
                let is_first = keys.is_empty() && settings.proxy.api_key.is_none();
                let key = format!("sk-{:032x}", rand::random::<u128>());
                add(context, &file, &name, &key, &agent).await?;
                out::line(if json {
                    json!({"name": name, "key": key}).to_string()
                } else {
                    key
                })?;
                out::aside("it is shown this once; callers send it as `Authorization: Bearer KEY`");
                if is_first {
                    out::aside(
                        "this is the first key: from now on every caller must show one, and what callers show goes to no upstream (llm.api_key does)",
                    );
                    tell_of_agent(context);
                }
            }
            KeysCommand::Remove { name } => {
                ensure!(
                    keys.contains_key(&name),
                    "no key {name}: see `metaclaw keys list`"
                );
                remove(context, &file, &name).await?;
                tell_of_agent(context);
            }
        }
        Ok(())
    }
}

/// OpenClaw gets its key when it is pointed at us: until then our refusal costs it a fallback at every turn.
fn tell_of_agent(context: &Context) {
    let home = &context.home;
    let is_wired = wires(home)
        .record(OPENCLAW)
        .is_ok_and(|known| known.is_some());
    if is_wired && matches!(home.holder(), Ok(Some(_))) {
        out::aside(
            "OpenClaw is given its key at the start: `metaclaw stop`, then `metaclaw start`; until then its former model may answer it, and nothing is learned from that",
        );
    }
}

fn list(keys: &BTreeMap<String, KeyConfig>, json: bool) -> anyhow::Result<()> {
    let view = |(name, key): (&String, &KeyConfig)| KeyView {
        name: name.clone(),
        key: format!("{:?}", key.key),
        agents: key.agents.clone(),
    };
    let keys: Vec<KeyView> = keys.iter().map(view).collect();
    let row = |key: &KeyView| {
        let agents: Vec<&str> = key.agents.iter().map(AgentId::as_str).collect();
        vec![key.name.clone(), key.key.clone(), agents.join(", ")]
    };
    let head = ["name", "key", "agents"];
    Ok(out::answer_table(&keys, json, &head, row)?)
}

async fn add(
    context: &Context,
    file: &std::path::Path,
    name: &str,
    key: &str,
    agents: &[AgentId],
) -> anyhow::Result<()> {
    let path = |field: &str| format!("proxy.keys.{name}.{field}");
    let listed = serde_json::to_string(agents)?;
    edit::set_all_in_file(
        file,
        &[(path("key"), key.to_owned()), (path("agents"), listed)],
    )?;
    let key = Some(NewKey {
        key: key.to_owned(),
        agents: agents.to_vec(),
    });
    let name = name.to_owned();
    send_change(context, KeyChange { name, key }).await
}

async fn remove(context: &Context, file: &std::path::Path, name: &str) -> anyhow::Result<()> {
    edit::remove_in_file(file, &format!("proxy.keys.{name}"))?;
    let name = name.to_owned();
    send_change(context, KeyChange { name, key: None }).await
}

async fn send_change(context: &Context, change: KeyChange) -> anyhow::Result<()> {
    match ControlClient::of_running(&context.home).await? {
        Some(process) => {
            process.call(&change).await?;
            out::aside("in force now");
        }
        None => out::aside("in force from the next start on"),
    }
    Ok(())
}

fn is_name(name: &str) -> anyhow::Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
        bail!("the name {name:?} is not allowed: 1 to 64 of a-z A-Z 0-9 _ -");
    }
    Ok(())
}
