//! Changes unsafe settings before they are used, and reports each change.

use std::path::Path;

use metaclaw_learner::JudgeKind;

use super::{InertUse, Loaded, Problem, SettingsError};
use crate::address::{host, is_bedrock, is_bedrocks_messages};

// === impl Loaded ===

impl Loaded {
    /// Without a key, the proxy does not listen to other machines.
    ///
    /// The Python original's default was 0.0.0.0 and is in every file that it wrote, so this address is replaced by
    /// this machine's; any other address was chosen, and is refused.
    pub(super) fn require_key_beyond_loopback(&mut self) -> Result<(), SettingsError> {
        let listen = &mut self.config.gateway.proxy;
        if listen.host.is_loopback() || listen.requires_key() {
            return Ok(());
        }
        if listen.host.is_unspecified() && listen.host.is_ipv4() {
            listen.host = std::net::Ipv4Addr::LOCALHOST.into();
            self.notices
                .push("proxy.host 0.0.0.0 without a key: listening on 127.0.0.1 only".to_owned());
            return Ok(());
        }
        let given = listen.host.to_string();
        let reason = "without a key, 127.0.0.1 or ::1; set proxy.api_key, or make one with `metaclaw keys add`, to be reached from elsewhere";
        Err(self.refusal("proxy.host", given, reason))
    }

    fn refusal(&self, key: &str, given: String, reason: &str) -> SettingsError {
        let origin = self.origin(key);
        SettingsError::Values(vec![Problem {
            key: key.to_owned(),
            origin: origin.map_or_else(|| "the defaults".to_owned(), ToString::to_string),
            given,
            reason: reason.to_owned(),
        }])
    }

    /// A judge at a provider needs a key, so it is not asked without one.
    ///
    /// The Python original wrote OpenAI's address into every file, with or without a key, so texts would be sent there
    /// without any use. The judge's default address uses `llm.api_key`; `judge.kind: llm` uses a model that needs no
    /// key.
    pub(super) fn require_key_of_judge(&mut self) {
        let kind = self.config.learner.judge.kind;
        if kind == Some(JudgeKind::Http) {
            // The owner named this reward function, so it gets only the key that is given for it, and no model's key.
            return;
        }
        let is_meant = kind == Some(JudgeKind::Llm);
        let (judge, llm) = (&mut self.config.judge.address, &self.config.llm);
        let evolver = &mut self.config.evolver.address;
        for (key, model) in [("judge.url", &mut *judge), ("evolver.url", evolver)] {
            if model.url.as_deref().is_some_and(is_bedrocks_messages) {
                self.inert.push(InertUse {
                    key: key.to_owned(),
                    reason: "models are asked in OpenAI's chat completions, which Claude does not have at Bedrock: llm.* is asked in its place; name another model of Bedrock",
                });
                (model.url, model.model) = (None, None);
            }
        }
        let Some(url) = judge.url.as_deref().filter(|_| judge.key.is_none()) else {
            return;
        };
        let is_llms = llm.api_base.as_deref().map(host) == Some(host(url));
        if is_llms && llm.api_key.is_some() {
            judge.key.clone_from(&llm.api_key);
        } else if url.starts_with("https://") && !is_meant && !is_bedrock(url) {
            self.inert.push(InertUse {
                key: "judge.url".to_owned(),
                reason: "it has no key (judge.key, rl.prm_api_key) and is not asked: llm.* judges, else the policy model if weights are trained, else rules; judge.kind: llm asks it without one",
            });
            (judge.url, judge.model) = (None, None);
        }
    }

    /// Memories are files in a folder.
    ///
    /// `memory.store_path` of the Python original names an SQLite file, `memory.db`. The proxy does not read it, and uses
    /// the folder that contains it. Any other file was chosen by mistake, and is refused.
    pub(super) fn require_folder_of_memories(&mut self) -> Result<(), SettingsError> {
        let Some(dir) = self.config.memory.dir.clone() else {
            return Ok(());
        };
        let ending = dir.extension().and_then(|ending| ending.to_str());
        let is_database = ending.is_some_and(|it| matches!(it, "db" | "sqlite" | "sqlite3"));
        if is_database && !dir.is_dir() {
            let folder = dir.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or_else(|| Path::new(".")).to_owned();
            self.notices.push(format!(
                "memory.dir (memory.store_path) {}: databases of the Python MetaClaw are not read; memories are stored in the folder {}",
                dir.display(),
                folder.display()
            ));
            self.config.memory.dir = Some(folder);
            return Ok(());
        }
        if !dir.is_file() {
            return Ok(());
        }
        let reason = "this is a file; name a folder, which is created if it does not exist";
        Err(self.refusal("memory.dir", dir.display().to_string(), reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layer;

    fn judge(text: &str) -> (Option<String>, Option<String>, usize) {
        let layer = Layer::text("config.yaml".into(), text).unwrap();
        let loaded = Loaded::new(vec![layer]).unwrap();
        let judge = loaded.config.judge.address;
        let key = judge.key.map(|key| key.expose().to_owned());
        (judge.url, key, loaded.inert.len())
    }

    #[test]
    fn memories_are_kept_beside_the_originals_database() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        let load = |text: &str| Loaded::new(vec![Layer::text(file.clone(), text).unwrap()]);
        std::fs::write(folder.path().join("memory.db"), "SQLite format 3").unwrap();
        for name in ["memory.db", "absent.sqlite3"] {
            let loaded = load(&format!("memory: {{store_path: {name}}}\n")).unwrap();
            let path = folder.path().join(name);
            assert_eq!(loaded.config.memory.dir.as_deref(), path.parent());
            assert!(
                loaded.notices[0].contains("are not read"),
                "{:?}",
                loaded.notices
            );
        }
        let kept = load("memory: {dir: mine, store_path: memory.db}\n").unwrap();
        assert_eq!(kept.config.memory.dir, Some(folder.path().join("mine")));
        std::fs::write(folder.path().join("notes"), "x").unwrap();
        let refused = load("memory: {dir: notes}\n").unwrap_err().to_string();
        let (key, path) = ("memory.dir in", folder.path().join("notes"));
        assert!(
            refused.starts_with(key) && refused.contains(&path.display().to_string()),
            "{refused}"
        );
    }

    #[test]
    fn a_judge_without_a_key_is_sent_nothing() {
        let python =
            "rl: {prm_url: 'https://api.openai.com/v1', prm_model: gpt-5.2, prm_api_key: ''}\n";
        assert_eq!(judge(python), (None, None, 1));
        let kept = "judge: {url: 'https://h.example/v1', model: m, key: k}\n";
        assert_eq!(judge(kept).1.as_deref(), Some("k"));
        let meant = "judge: {kind: llm, url: 'https://h.example/v1', model: m}\n";
        assert_eq!(judge(meant).2, 0);
        let here = "judge: {url: 'http://127.0.0.1:9/v1', model: m}\n";
        assert_eq!(judge(here).0.as_deref(), Some("http://127.0.0.1:9/v1"));
        let same = "llm: {api_base: 'https://h.example/v1', api_key: k1}\njudge: {url: 'https://h.example/v2', model: m}\n";
        assert_eq!(judge(same).1.as_deref(), Some("k1"));
        let function = "llm: {api_base: 'https://h.example/v1', api_key: k1}\njudge: {kind: http, url: 'https://h.example/score'}\n";
        let url = "https://h.example/score".to_owned();
        assert_eq!(judge(function), (Some(url), None, 0));
        let bedrock = "llm: {api_base: 'https://h.example/v1', api_key: k1, model_id: m}\nrl: {prm_provider: bedrock, prm_model: us.anthropic.judge}\n";
        let layer = Layer::text("config.yaml".into(), bedrock).unwrap();
        assert_eq!(
            Loaded::new(vec![layer]).unwrap().config.judge.address.model,
            None
        );
        let signed = "rl: {prm_provider: bedrock, prm_model: qwen.qwen3-32b}\n";
        let url = "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1".to_owned();
        assert_eq!(judge(signed), (Some(url), None, 0));
        let http = "llm: {api_base: 'https://h.example/v1', api_key: k1}\njudge: {url: 'https://h.example.org/v1', model: m}\n";
        assert_eq!(
            judge(http),
            (None, None, 1),
            "the key of one address is not for another"
        );
    }
}
