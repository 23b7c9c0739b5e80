//! A temporary home for the tests, with the configuration files of agents.

use std::{fs, path::PathBuf};

use crate::{
    agent::Surroundings,
    profile,
    profile::AgentProfile,
    target::Target,
    wires::{WayBack, WireStanding, Wires},
};

/// A temporary home in which agents are wired.
pub(super) struct House {
    pub(super) folder: tempfile::TempDir,
    pub(super) surroundings: Surroundings,
    pub(super) wires: Wires,
}

impl House {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let surroundings = Surroundings {
            variables: Vec::new(),
            home: folder.path().to_owned(),
        };
        let wires = Wires::new(folder.path().join("ours/wiring"));
        Self {
            folder,
            surroundings,
            wires,
        }
    }

    /// Creates a home that has one file, at `path` below the home folder.
    pub(super) fn with(path: &str, text: &str) -> Self {
        let house = Self::new();
        house.put(path, text);
        house
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(super) fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub(super) fn wire(&self, agent: &str) {
        self.wires
            .wire(of(agent), &self.surroundings, &target())
            .unwrap();
        assert_eq!(self.standing(agent), WireStanding::Wired);
    }

    pub(super) fn standing(&self, agent: &str) -> WireStanding {
        self.wires.standing(of(agent)).unwrap()
    }

    pub(super) fn unwire(&self, agent: &str) -> WayBack {
        self.wires.unwire(of(agent)).unwrap()
    }

    /// Returns every file and folder below the home except MetaClaw's own, each file with its text.
    pub(super) fn all(&self) -> Vec<(PathBuf, String)> {
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

pub(super) fn of(agent: &str) -> &'static dyn AgentProfile {
    profile(agent).unwrap()
}

pub(super) fn target() -> Target {
    Target {
        origin: "http://127.0.0.1:30000".to_owned(),
        key: None,
        has_provider_key: true,
        model: Some("gpt-5.2".to_owned()),
        upstream: Some("https://api.openai.com/v1".to_owned()),
        context_window: None,
    }
}

/// Configuration files as users have them, with keys in them: path below the home folder, and text.
pub(super) const USUAL: [(&str, &str); 12] = [
    (
        ".claude/settings.json",
        "{\n  \"permissions\": {\"allow\": [\"Bash(ls:*)\"]},\n  \"env\": {\"ANTHROPIC_CUSTOM_HEADERS\": \"x-team: sk-user-team\"}\n}\n",
    ),
    (
        ".codex/config.toml",
        "# mine\nmodel = \"gpt-5.5\"\nmodel_provider = \"work\"\n\n[model_providers.work]\nbase_url = \"https://work.example/v1\"\nexperimental_bearer_token = \"sk-user-codex\"\n\n[projects.\"/home/me\"]\ntrust_level = \"trusted\"\n",
    ),
    (
        ".config/opencode/opencode.jsonc",
        "{\n  // mine\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"model\": \"work/big\",\n  \"provider\": { \"work\": { \"options\": { \"apiKey\": \"sk-user-opencode\" }, \"models\": { \"big\": { \"limit\": { \"context\": 64000, \"output\": 8000 } } } } },\n}\n",
    ),
    (
        ".hermes/config.yaml",
        "# mine\nmodel:\n  default: claude-opus-5\n  provider: anthropic\n  api_key: sk-user-hermes   # paid by work\n\nagent:\n  max_turns: 90\n",
    ),
    (
        ".nanobot/config.json",
        "{\n  \"agents\": {\n    \"defaults\": {\n      \"model\": \"anthropic/claude-opus-4-5\",\n      \"maxTokens\": 4096\n    }\n  },\n  \"providers\": {\n    \"anthropic\": {\n      \"apiKey\": \"sk-user-nanobot\"\n    }\n  }\n}\n",
    ),
    (
        ".copaw.secret/providers/active_model.json",
        "{\n  \"provider_id\": \"dashscope\",\n  \"model\": \"qwen3-max\"\n}",
    ),
    (
        ".aider.conf.yml",
        "# mine\nmodel: sonnet\nanthropic-api-key: sk-user-aider\nauto-commits: false\n",
    ),
    (
        ".config/io.datasette.llm/extra-openai-models.yaml",
        "- model_id: local\n  model_name: m\n  api_base: http://localhost:1/v1\n",
    ),
    (
        ".config/io.datasette.llm/default_model.txt",
        "gpt-4o-mini\n",
    ),
    (
        ".ironclaw/.env",
        "# mine\nDATABASE_URL=postgres://me:sk-user-db@localhost/ironclaw\nLLM_BACKEND=anthropic\nANTHROPIC_API_KEY='sk-user-ironclaw'\n",
    ),
    (
        ".picoclaw/config.json",
        "{\"agents\": {\"defaults\": {\"model_name\": \"gpt4\"}}, \"model_list\": [{\"model_name\": \"gpt4\", \"model\": \"openai/gpt-5.2\", \"api_key\": \"sk-user-pico\"}]}",
    ),
    (
        ".zeroclaw/config.toml",
        "default_provider = \"anthropic\"\napi_key = \"sk-user-zero\"\ndefault_model = \"claude-sonnet-4-6\"\n\n[memory]\nbackend = \"sqlite\"\n",
    ),
];

/// Creates a home that has [`USUAL`] and NanoClaw's file.
pub(super) fn usual() -> House {
    let house = House::new();
    for (path, text) in USUAL {
        house.put(path, text);
    }
    house.put(
        "nanoclaw/.env",
        "ANTHROPIC_API_KEY=sk-user-nanoclaw\nTZ=UTC\n",
    );
    house
}
