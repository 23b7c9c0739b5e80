//! A temporary home for the tests, with the configuration files of agents.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::{
    document,
    format::Format,
    found::Found,
    openclaw::detect,
    outcome::WiringError,
    profile,
    profile::AgentProfile,
    surroundings::Surroundings,
    target::Target,
    wires::{WayBack, WireStanding, Wires},
};

pub(crate) const OPENCLAW: &str = ".openclaw/openclaw.json";

pub(crate) struct House {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) surroundings: Surroundings,
    pub(crate) wires: Wires,
}

impl House {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let surroundings = Surroundings {
            variables: Vec::new(),
            home: folder.path().to_owned(),
        };
        let ours = folder.path().join("ours/wiring");
        Self {
            folder,
            surroundings,
            wires: Wires::new(ours),
        }
    }

    pub(crate) fn with(path: &str, text: &str) -> Self {
        let house = Self::new();
        house.put(path, text);
        house
    }

    pub(crate) fn openclaw(text: &str) -> Self {
        Self::with(OPENCLAW, text)
    }

    pub(crate) fn found(&self) -> Found {
        detect(&self.surroundings).unwrap().unwrap()
    }

    pub(crate) fn config(&self) -> Value {
        document::value(&self.text(OPENCLAW)).unwrap()
    }

    pub(crate) fn wire_openclaw(&self, target: &Target) {
        self.try_wire(profile::OPENCLAW, target).unwrap();
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn try_wire(
        &self,
        agent: &str,
        target: &Target,
    ) -> Result<Vec<String>, WiringError> {
        self.wires.wire(of(agent), &self.surroundings, target)
    }

    pub(crate) fn wire(&self, agent: &str) {
        self.try_wire(agent, &target()).unwrap();
        assert_eq!(self.standing(agent), WireStanding::Wired);
    }

    pub(crate) fn standing(&self, agent: &str) -> WireStanding {
        self.wires.standing(agent).unwrap()
    }

    pub(crate) fn unwire(&self, agent: &str) -> WayBack {
        self.wires.unwire(agent).unwrap()
    }

    /// Returns every file and folder below the home except MetaClaw's own, each file with its text.
    pub(crate) fn all(&self) -> Vec<(PathBuf, String)> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && path != self.path("ours") {
                    folders.push(path.clone());
                    found.push((path, String::new()));
                } else if path.is_file() {
                    found.push((path.clone(), fs::read_to_string(&path).unwrap()));
                }
            }
        }
        found.sort();
        found
    }
}

pub(crate) fn of(agent: &str) -> &'static AgentProfile {
    profile(agent).unwrap()
}

pub(crate) fn target() -> Target {
    Target {
        origin: "http://127.0.0.1:30000".to_owned(),
        key: None,
        has_provider_key: true,
        is_own: false,
        model: Some("gpt-5.2".to_owned()),
        upstream: Some("https://api.openai.com/v1".to_owned()),
        context_window: None,
    }
}

pub(crate) fn usual() -> House {
    let house = House::new();
    let files = Format::Yaml
        .values(include_str!("house/usual.yaml"))
        .unwrap();
    for (path, text) in files.as_object().unwrap() {
        house.put(path, text.as_str().unwrap());
    }
    house
}
