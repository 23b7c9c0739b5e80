//! What an agent asks while it is not pointed at the proxy, as its row in `data/agents.yaml` says.

use metaclaw_chat::{Secret, substituted};

use crate::{
    format::Format,
    found::{Api, Credential, DetectError, Found},
    openclaw::{detect, known},
    profile::{AgentProfile, OPENCLAW},
    settings::read,
    surroundings::Surroundings,
    tree,
};

/// The provider and the model that an agent asks by its own settings.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedToday {
    /// The address of the provider.
    pub url: String,
    pub api: Api,
    /// The model that its settings name. None if the agent chooses one by itself.
    pub model: Option<String>,
    /// The key in its settings, if the agent does not send it to the proxy.
    pub key: Option<Secret>,
    /// Whether the agent sends its own key or login to the proxy, which passes it on.
    pub sends_login: bool,
}

/// The file with a user's keys, in the folder of the agent.
const ENV: &str = "/.env";

struct Lookup<'a> {
    agent: &'a AgentProfile,
    surroundings: &'a Surroundings,
    provider: String,
}

impl AgentProfile {
    /// Returns what the agent asks by its files and the environment, or `None` if they do not say it. The files must be
    /// as its owner wrote them.
    ///
    /// # Errors
    ///
    /// Returns [`DetectError`] if OpenClaw's configuration does not say it.
    pub fn asked_today(
        &self,
        surroundings: &Surroundings,
    ) -> Result<Option<AskedToday>, DetectError> {
        if self.id == OPENCLAW {
            return Ok(detect(surroundings)?.as_ref().map(AskedToday::from));
        }
        Ok(self.asked_by_row(surroundings))
    }

    fn asked_by_row(&self, surroundings: &Surroundings) -> Option<AskedToday> {
        let row = self.today.as_ref()?;
        let mut lookup = Lookup {
            agent: self,
            surroundings,
            provider: String::new(),
        };
        if lookup.first(&row.unless).is_some() {
            return None;
        }
        let provider = lookup.first(&row.provider).unwrap_or_default();
        // Some write the provider before the model: provider/model.
        let provider = provider.split('/').next().unwrap_or_default();
        provider.clone_into(&mut lookup.provider);
        let known = known::provider(&lookup.provider);
        let of_provider = row.address_of.get(&lookup.provider);
        let url = lookup.first(&row.address);
        let url = url.or_else(|| lookup.first(of_provider?));
        let key = lookup.first(&row.key);
        let variable = || surroundings.get(known?.variable).map(str::to_owned);
        Some(AskedToday {
            url: url.or_else(|| Some(known?.base_url.to_owned()))?,
            api: (row.api)
                .or_else(|| known.map(|known| known.api))
                .unwrap_or(Api::OpenaiCompletions),
            model: lookup.first(&row.model),
            key: key.or_else(variable).map(Secret::from),
            sends_login: self.credential.is_some(),
        })
    }
}

impl From<&Found> for AskedToday {
    fn from(found: &Found) -> Self {
        let key = match &found.credential {
            Credential::Key { key, .. } => Some(key.clone()),
            Credential::Reference(_) | Credential::Login => None,
        };
        Self {
            url: found.base_url.clone(),
            api: found.api,
            model: Some(found.model.clone()),
            sends_login: key.is_none(),
            key,
        }
    }
}

// === impl Lookup ===

impl Lookup<'_> {
    fn first(&self, places: &[String]) -> Option<String> {
        places.iter().find_map(|place| {
            let (place, meaning) = match place.split_once(" => ") {
                Some((place, meaning)) => (place, Some(meaning.to_owned())),
                None => (place.as_str(), None),
            };
            let found = self.at(place)?;
            Some(meaning.unwrap_or(found))
        })
    }

    fn at(&self, place: &str) -> Option<String> {
        if let Some(value) = place.strip_prefix('=') {
            return Some(value.to_owned());
        }
        let (file, path) = place.split_once('#').unwrap_or(("", place));
        if let Some(variable) = path.strip_prefix('$').filter(|name| !name.contains('{')) {
            return self.surroundings.get(variable).map(str::to_owned);
        }
        let names: Vec<String> = path.split('.').map(|name| self.filled(name)).collect();
        let values = self.values(file)?;
        let text = tree::get(&values, &names).as_str()?.replace("{env:", "${");
        let variable = |name: &str| self.surroundings.get(name).map(str::to_owned);
        let text = substituted(&text, variable).trim().to_owned();
        Some(text).filter(|text| !text.is_empty() && !text.contains("${"))
    }

    /// Returns the values of a file. Without a name, it is the agent's first one.
    fn values(&self, name: &str) -> Option<serde_json::Value> {
        let folder = self.agent.folder(self.surroundings);
        let Some(row) = self.agent.files.first().filter(|_| name.is_empty()) else {
            let format = if name == ENV {
                Format::Env
            } else {
                Format::Json
            };
            let path = self.surroundings.place(&folder, &[name.to_owned()]);
            return read(&path, format).ok();
        };
        read(&self.surroundings.place(&folder, &row.path), row.format).ok()
    }

    fn filled(&self, name: &str) -> String {
        substituted(name, |word| match word {
            "provider" => Some(self.provider.clone()),
            "variable" => Some(known::provider(&self.provider)?.variable.to_owned()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
