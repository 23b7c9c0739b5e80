//! The product under test: `metaclaw start` in a home of its own, with a row's configuration. The home stays until all of its
//! runs are at their ends.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use metaclaw_tests::{
    client::Client,
    external,
    home::{Home, Proxy},
};
use serde_json::{Map, Value, json};

use crate::{rows::Row, trainer::Trainer};

/// Where the folders of products lie until their runs are at their ends.
pub const HOMES: &str = "homes";
/// Its home, in its folder.
const HOME: &str = "home";

/// What its gate has asked of the base model, in a home: figures that hold for the next product as well.
const OF_BASE: &str = "learning/gate.json";

/// A proxy with its control.
#[derive(Debug)]
pub struct Product {
    pub proxy: Proxy,
    /// With its home, and what its runs keep.
    pub folder: PathBuf,
    home: Home,
    control: reqwest::Client,
    address: String,
    token: String,
    /// `rl.batch_size`, as it is in force.
    pub batch_size: u64,
}

/// Why a row cannot be run with this build.
#[derive(Debug)]
pub struct NotRun(pub String);

// === impl Product ===

impl Product {
    /// Starts one of this name before `trainer` with `judge.*`, unless the build does not have what the row sets.
    pub async fn start(
        bin_dir: &Path,
        out: &Path,
        name: &str,
        trainer: &Trainer,
        row: &Row,
        judge: &Value,
    ) -> Result<Result<Self, NotRun>> {
        let mut config = json!({"mode": "rl", "judge": judge});
        let is_by_tinker = row.config["rl"]["backend"] == "tinker";
        let at = if is_by_tinker {
            by_tinker(trainer)
        } else {
            json!({"rl": {"backend": "remote", "remote_url": trainer.url}})
        };
        merge(&mut config, &at);
        merge(&mut config, &row.config);
        // JSON is YAML.
        let folder = out.join(HOMES).join(name);
        let config = serde_json::to_string_pretty(&config)?;
        let home = Home::at(&folder.join(HOME), bin_dir, &config);
        let in_force = match home.ask(&["config", "--json"]).await {
            Ok(in_force) => in_force,
            Err(refused) => return Ok(Err(NotRun(last_line(&format!("{refused:#}"))))),
        };
        if let Some(key) = without_effect(&row.config, &in_force) {
            let why = format!("{key} does nothing in this build");
            return Ok(Err(NotRun(why)));
        }
        let batch_size = value(&in_force, "rl.batch_size").and_then(Value::as_u64);
        let known = out.join(OF_BASE);
        if known.exists() {
            fs::create_dir_all(home.path().join("learning"))?;
            fs::copy(known, home.path().join(OF_BASE))?;
        }
        let proxy = match home.start().await {
            Ok(proxy) => proxy,
            Err(refused) => return Ok(Err(NotRun(last_line(&format!("{refused:#}"))))),
        };
        let run: Value = serde_json::from_slice(&fs::read(home.path().join("run.json"))?)?;
        let text = |key: &str| run[key].as_str().map(str::to_owned);
        Ok(Ok(Self {
            control: reqwest::Client::builder()
                .no_proxy()
                .timeout(Duration::from_secs(30))
                .build()?,
            address: text("control").context("run.json has no control")?,
            token: text("token").context("run.json has no token")?,
            batch_size: batch_size.context("config --json has no rl.batch_size")?,
            proxy,
            folder,
            home,
        }))
    }

    /// A client that speaks as this agent.
    pub fn client(&self, agent: &str) -> Client {
        Client::with_headers(&self.proxy.base_url, &[("x-agent-id", agent)])
    }

    /// What `metaclaw status` shows.
    pub async fn status(&self) -> Result<Value> {
        let url = format!("http://{}/status", self.address);
        let request = self.control.post(url).bearer_auth(&self.token).json(&());
        let response = request.send().await?;
        let status = response.status();
        if !status.is_success() {
            bail!("the control of metaclaw answers {status}");
        }
        Ok(response.json().await?)
    }

    /// Ends it; its log and its last status stay in `out`, and its folder if it `has_more` to do.
    pub async fn stop(self, out: &Path, name: &str, has_more: bool) -> Result<()> {
        let logs = out.join("logs");
        fs::create_dir_all(&logs)?;
        if let Ok(status) = self.status().await {
            let text = serde_json::to_string_pretty(&status)?;
            fs::write(logs.join(format!("{name}.status.json")), text)?;
        }
        let stopped = self.proxy.stop().await;
        let known = self.home.path().join(OF_BASE);
        if known.exists() {
            fs::create_dir_all(out.join("learning"))?;
            fs::copy(known, out.join(OF_BASE))?;
        }
        fs::write(logs.join(format!("{name}.log")), self.home.log())?;
        if !has_more {
            fs::remove_dir_all(&self.folder)?;
        }
        stopped
    }
}

/// The training server as one that is reached by Tinker's API, with a key that it does not ask for.
fn by_tinker(trainer: &Trainer) -> Value {
    json!({
        "rl": {
            "tinker_base_url": trainer.url,
            "tinker_api_key": "tml-of-the-bench",
            "model": external::model().file_stem().unwrap_or_default().to_string_lossy(),
            "tokenizer": external::converted(),
        },
        "privacy": {"cloud_training_ok": true},
    })
}

/// Puts `more` over `config`, key by key.
fn merge(config: &mut Value, more: &Value) {
    match (config, more) {
        (Value::Object(config), Value::Object(more)) => {
            for (key, value) in more {
                merge(config.entry(key).or_insert(Value::Null), value);
            }
        }
        (config, more) => *config = more.clone(),
    }
}

/// The paths of all values, as in `rl.batch_size`.
fn paths(config: &Map<String, Value>, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in config {
        let path = format!("{prefix}{key}");
        match value {
            Value::Object(inner) => found.extend(paths(inner, &format!("{path}."))),
            _ => found.push(path),
        }
    }
    found
}

/// The first key of a row that the build takes without doing anything: it is not among those that work.
fn without_effect(config: &Value, in_force: &Value) -> Option<String> {
    let set = paths(config.as_object()?, "");
    let works = |path: &String| {
        in_force
            .as_array()
            .into_iter()
            .flatten()
            .any(|it| it["key"] == **path && !it["origin"].is_null())
    };
    set.into_iter().find(|path| !works(path))
}

fn value<'a>(in_force: &'a Value, key: &str) -> Option<&'a Value> {
    let found = in_force.as_array()?.iter().find(|it| it["key"] == key);
    Some(&found?["value"])
}

/// What a program said last, which is why it ended.
fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rows_keys_come_over_the_others() {
        let mut config = json!({"mode": "rl", "rl": {"backend": "remote"}});
        merge(
            &mut config,
            &json!({"mode": "skills_only", "rl": {"w_rl": 1}, "gate": {"enabled": false}}),
        );
        let expected = json!({"mode": "skills_only", "rl": {"backend": "remote", "w_rl": 1}, "gate": {"enabled": false}});
        assert_eq!(config, expected);
    }

    #[test]
    fn a_key_that_does_nothing_is_named() {
        let in_force = json!([
            {"key": "rl.w_rl", "value": 1, "origin": "config.yaml"},
            {"key": "rl.batch_size", "value": 4, "origin": null},
        ]);
        let row = |config: Value| without_effect(&config, &in_force);
        assert_eq!(row(json!({"rl": {"w_rl": 1}})), None);
        assert_eq!(
            row(json!({"rl": {"w_rl": 1, "reuse": 4}})),
            Some("rl.reuse".to_owned())
        );
        assert_eq!(
            row(json!({"gate": {"enabled": true}})),
            Some("gate.enabled".to_owned())
        );
        assert_eq!(value(&in_force, "rl.batch_size"), Some(&json!(4)));
    }

    #[test]
    fn the_reason_is_what_was_said_last() {
        assert_eq!(
            last_line("a\n  rl.method opd is not built yet\n\n"),
            "rl.method opd is not built yet"
        );
    }
}
