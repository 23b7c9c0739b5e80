//! Compares what agents' packages send to models with lists of what is known, because a new release may contain an
//! errand that would be taken for the owner's words.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use metaclaw_chat::Role;
use metaclaw_tests::{
    external,
    prompts::{Class, Form, Known, prompts_in, unknown},
    upstream::{Asked, Play},
    watched::Watched,
};
use metaclaw_turns::TurnKind;
use serde_json::{Value, json};

struct Package {
    name: &'static str,
    place: PathBuf,
    form: Form,
    /// Files that contain texts for models.
    is_meant: fn(&Path) -> bool,
    known: &'static str,
}

fn openclaw() -> Package {
    Package {
        name: "openclaw",
        place: external::openclaw().0.join("node_modules/openclaw/dist"),
        form: Form::Script,
        // What it serves to browsers addresses people.
        is_meant: |file| {
            let is_script = file.extension().is_some_and(|it| it == "mjs" || it == "js");
            is_script && !file.components().any(|it| it.as_os_str() == "control-ui")
        },
        known: include_str!("prompts/openclaw.txt"),
    }
}

fn claude_code() -> Package {
    Package {
        name: "claude-code",
        place: external::claude_code().join("node_modules/@anthropic-ai/claude-code/bin"),
        form: Form::Script,
        is_meant: |_| true,
        known: include_str!("prompts/claude-code.txt"),
    }
}

fn codex() -> Package {
    Package {
        name: "codex",
        place: external::codex().join("node_modules/@openai"),
        form: Form::Compiled,
        is_meant: |file| file.file_name().is_some_and(|it| it == "codex"),
        known: include_str!("prompts/codex.txt"),
    }
}

fn opencode() -> Package {
    Package {
        name: "opencode",
        place: external::opencode().join("node_modules/opencode-linux-x64/bin"),
        form: Form::Script,
        is_meant: |_| true,
        known: include_str!("prompts/opencode.txt"),
    }
}

fn hermes() -> Package {
    let lib = external::hermes().join("lib");
    let python = std::fs::read_dir(lib).unwrap().next().unwrap().unwrap();
    Package {
        name: "hermes",
        place: python.path().join("site-packages"),
        form: Form::Python,
        // It installs its modules next to those of the packages that it needs.
        is_meant: |file| {
            let tops = [
                "agent",
                "tools",
                "hermes_cli",
                "gateway",
                "cron",
                "plugins",
                "tui_gateway",
                "providers",
                "acp_adapter",
            ];
            let names: Vec<_> = file.iter().filter_map(|it| it.to_str()).collect();
            let at = names.iter().position(|it| *it == "site-packages").unwrap();
            let is_module = names.len() == at + 2;
            let is_python = file.extension().is_some_and(|it| it == "py");
            is_python && (is_module || tops.contains(&names[at + 1]))
        },
        known: include_str!("prompts/hermes.txt"),
    }
}

fn packages() -> [Package; 5] {
    [openclaw(), claude_code(), codex(), opencode(), hermes()]
}

// === impl Package ===

impl Package {
    fn prompts(&self) -> BTreeSet<String> {
        prompts_in(&self.place, self.form, self.is_meant)
    }
}

#[test]
#[ignore = "needs the agents' packages, cargo xtask test --all runs it"]
fn every_prompt_of_the_installed_packages_is_classified() {
    let mut wrong = Vec::new();
    for package in packages() {
        let (found, known) = (package.prompts(), Known::parse(package.known));
        let name = package.name;
        let new = unknown(&found, &known).into_values();
        wrong.extend(new.map(|text| format!("{name} has a new one: {text}")));
        let is_gone = |it: &&Known| !found.iter().any(|text| text.starts_with(&it.words));
        let gone = known.iter().filter(is_gone);
        wrong.extend(gone.map(|it| format!("{name} has no more: {}", it.words)));
    }
    let n = wrong.len();
    assert!(
        wrong.is_empty(),
        "{n} texts: see what each is, and note it in tests/it/prompts\n{}",
        wrong.join("\n")
    );
}

/// The product must recognise what the lists call an errand by its words, and must not take the owner's messages for
/// one.
#[tokio::test]
#[ignore = "needs the binaries and the agents' packages, cargo xtask test --all runs it"]
async fn the_product_tells_the_listed_errands_by_their_words() {
    let watched = Watched::start("openai", |_: &Asked<'_>| Play::Text("So be it.")).await;
    let mut expected = Vec::new();
    for package in packages() {
        let (found, known) = (package.prompts(), Known::parse(package.known));
        for text in found {
            let known = known.iter().filter(|it| text.starts_with(&it.words));
            let Some(known) = known.max_by_key(|it| it.words.len()) else {
                continue;
            };
            let user = |text: &str| json!({"role": "user", "content": text});
            let system = json!({"role": "system", "content": text});
            let (messages, kind) = match known.class {
                Class::SideUser => (json!([user(&text)]), TurnKind::Side),
                Class::SideSystem => (json!([system, user("Tea, please.")]), TurnKind::Side),
                Class::Owner => (json!([system, user("Tea, please.")]), TurnKind::Main),
                Class::SideMark | Class::Other => continue,
            };
            let body = json!({"model": "scripted", "max_tokens": 9, "messages": messages});
            let client = watched.proxy.client();
            let answer = client.post("/v1/chat/completions", &body).send().await;
            assert!(answer.unwrap().status().is_success());
            expected.push((package.name, text, kind));
        }
    }
    assert!(expected.len() > 100, "{}", expected.len());
    let turns = watched.turns().await;
    let said = |turn: &metaclaw_turns::Turn| {
        let first = turn.request.messages.first().unwrap();
        assert!(matches!(first.role(), Role::System | Role::User));
        first.text().into_owned()
    };
    let wrong: Vec<Value> = expected
        .iter()
        .filter_map(|(name, text, kind)| {
            let turn = turns.iter().find(|turn| said(turn) == *text)?;
            let is_wrong = turn.meta.kind != *kind;
            is_wrong.then(|| json!([name, kind, text]))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:#?}",
        wrong.len(),
        expected.len()
    );
    watched.proxy.stop().await.unwrap();
}
