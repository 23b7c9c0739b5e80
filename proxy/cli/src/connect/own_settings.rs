//! What `metaclaw wire` wrote into the settings for an agent. `metaclaw unwire` takes it back, and nothing else.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::ensure;
use metaclaw_chat::if_there;
use metaclaw_control::home::{Home, write_private};
use metaclaw_settings::{Layer, edit};
use metaclaw_wiring::AgentProfile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

type Values = BTreeMap<String, Value>;

/// The agent's keys in a file of settings.
#[derive(Debug)]
pub(super) struct OwnSettings<'a> {
    /// Each ends with a dot.
    sections: [String; 2],
    file: &'a Path,
    record: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct WrittenSettings {
    before: Values,
    after: Values,
}

// === impl OwnSettings ===

impl<'a> OwnSettings<'a> {
    pub(super) fn new(home: &Home, file: &'a Path, agent: &AgentProfile) -> Self {
        let (agent, upstream) = (agent.caller(), &agent.id);
        Self {
            sections: [format!("agents.{agent}."), format!("upstreams.{upstream}.")],
            file,
            record: home.wiring().join(format!("{upstream}.settings.json")),
        }
    }

    pub(super) fn in_file(&self) -> anyhow::Result<Values> {
        let mut values = Layer::file(self.file.to_owned(), false)?.values().clone();
        values.retain(|key, _| self.sections.iter().any(|section| key.starts_with(section)));
        Ok(values)
    }

    /// Records what was written since the file had `before`. What an earlier `wire` wrote is not the owner's.
    pub(super) fn record(&self, before: Values) -> anyhow::Result<()> {
        let earlier = self.recorded()?;
        let is_ours = earlier.after == before;
        let written = WrittenSettings {
            before: if is_ours { earlier.before } else { before },
            after: self.in_file()?,
        };
        self.record.parent().map_or(Ok(()), fs::create_dir_all)?;
        Ok(write_private(&self.record, &serde_json::to_vec(&written)?)?)
    }

    /// Restores the keys, unless the owner changed them. Returns what to tell.
    pub(super) fn take_back(&self) -> Option<String> {
        let file = self.file.display();
        match self.restore() {
            Ok(false) => None,
            Ok(true) => Some(format!("what `wire` wrote into {file} is taken out")),
            Err(error) => Some(format!("what `wire` wrote into {file} stays: {error:#}")),
        }
    }

    fn restore(&self) -> anyhow::Result<bool> {
        let (WrittenSettings { before, after }, now) = (self.recorded()?, self.in_file()?);
        let is_there = !after.is_empty() && !now.is_empty();
        if is_there {
            ensure!(now == after, "it was changed since");
            let text = |value: &Value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            };
            let mut changes = Vec::new();
            for section in &self.sections {
                let mut had = before.keys().filter(|key| key.starts_with(section));
                if had.next().is_none() {
                    changes.push((section.trim_end_matches('.').to_owned(), None));
                    continue;
                }
                // `wire` may have removed a key as well.
                let keys = before.keys().chain(after.keys());
                let changed = keys
                    .filter(|key| key.starts_with(section) && before.get(*key) != after.get(*key));
                changes.extend(changed.map(|key| (key.clone(), before.get(key).map(text))));
            }
            edit::answer_in_file(self.file, &changes)?;
        }
        if_there(fs::remove_file(&self.record))?;
        Ok(is_there)
    }

    fn recorded(&self) -> anyhow::Result<WrittenSettings> {
        let text = if_there(fs::read(&self.record))?;
        let nothing = || Ok(WrittenSettings::default());
        Ok(text.map_or_else(nothing, |text| serde_json::from_slice(&text))?)
    }
}
