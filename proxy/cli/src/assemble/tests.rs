//! Settings, from the text of a file into the parts that they are for.

use std::{io, path::Path};

use metaclaw_chat::{AgentId, Message};
use metaclaw_control::forgetting::KeptLessons;
use metaclaw_learner::{Ask, Evolver, Judge};
use metaclaw_reward::Policy::OpenclawRl;
use metaclaw_settings::{Layer, Loaded, Policy};
use metaclaw_test_kit::{Reply, Server};
use metaclaw_trainer_api::{BackendError, wire::Health};
use metaclaw_turns::{TurnLog, TurnsConfig};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::*;
use crate::{asked::Judging, environment::Environment};

mod golden;

const LLM: &str = "llm: {api_base: 'http://127.0.0.1:9/v1', model_id: m, api_key: k}\n";

/// What a start in the home `dir` with these settings begins with; OpenClaw's file may lie there.
fn start(dir: &Path, text: &str) -> Start {
    let layer = Layer::text(dir.join("config.yaml"), text).unwrap();
    let loaded = Loaded::new(vec![layer]).unwrap();
    let openclaw = dir.join("openclaw.json").display().to_string();
    let folder = dir.display().to_string();
    let environment = Environment::from_pairs([
        ("OPENCLAW_CONFIG_PATH", openclaw.as_str()),
        ("HOME", folder.as_str()),
    ]);
    let home = Home::at(dir.join("home"));
    let policy = Policy::from_config(&loaded.config, dir).unwrap();
    let (lines, _guard) = tracing_appender::non_blocking(io::sink());
    Start {
        config_name: dir.join("config.yaml"),
        agents: WireLinks::new(&home, &environment, &loaded.config, &policy, true),
        site: Site::new(home, environment),
        loaded,
        policy,
        listens_on_stdin: false,
        dropped_lines: lines.error_counter(),
    }
}

fn made<T>(text: &str, make: impl FnOnce(LearningMaker<'_>) -> T) -> T {
    let dir = tempfile::tempdir().unwrap();
    let Start {
        loaded,
        policy,
        site,
        ..
    } = start(dir.path(), text);
    let config = &loaded.config;
    let log = TurnLog::open(&site.home.turns(), &TurnsConfig::default()).unwrap();
    let budget = TokenBudget::open(config.budget.clone(), site.home.spend(), log.clone());
    let tasks = TaskTracker::new();
    let (_, training) = Training::prepare(config, &policy, &site, &log, &tasks).unwrap();
    let kept = KeptLessons {
        library: library(config, &site.home).0,
        memory: memory(config, &site.home),
    };
    make(LearningMaker {
        config,
        policy: &policy,
        site: &site,
        log: &log,
        lessons: &kept,
        budget: &Arc::new(budget),
        training: &training,
    })
}

fn judge(text: &str) -> anyhow::Result<(Judge, Judging)> {
    made(text, |learning| {
        let (judge, _) = learning.judge()?;
        Ok((
            judge,
            Judging::from_config(learning.config, learning.policy)?,
        ))
    })
}

fn evolver(text: &str) -> Option<Evolver> {
    made(text, |learning| learning.evolver().unwrap())
}

async fn why_not(model: &dyn Ask) -> String {
    model.ask(&[Message::user("Hello?")]).await.unwrap_err().why
}

#[test]
fn judge_kind_says_who_judges() {
    let with = |text: &str| judge(&format!("{LLM}{text}")).map(|(_, judging)| judging);
    assert!(matches!(with("").unwrap(), Judging::Models { .. }));
    let rules = "judge: {kind: rules, rules: [{on: reply, max_words: 40, score: 1}]}\n";
    assert_eq!(with(rules).unwrap(), Judging::Rules);
    assert_eq!(with("judge: {kind: off}\n").unwrap(), Judging::Nobody);
    assert_eq!(judge("").unwrap().1, Judging::Rules);
    // Where weights are to learn and nobody else is named, the policy model judges.
    let remote = "rl: {remote_url: 'http://127.0.0.1:9'}\n";
    let rule = "judge: {rules: [{on: reply, max_words: 40, score: 1}]}\n";
    for (text, expected) in [
        (String::new(), Judging::Base),
        ("mode: skills_only\n".to_owned(), Judging::Rules),
        (rule.to_owned(), Judging::Rules),
        ("judge: {kind: rules}\n".to_owned(), Judging::Rules),
    ] {
        assert_eq!(
            judge(&format!("{remote}{text}")).unwrap().1,
            expected,
            "{text}"
        );
    }
    let elsewhere = judge("rl: {remote_url: 'https://train.example'}\n").unwrap();
    assert_eq!(elsewhere.1, Judging::Rules, "it may be sent nothing");
    let error = judge("judge: {kind: llm}\n").unwrap_err().to_string();
    assert!(error.contains("needs a model to ask"), "{error}");
    let function = "judge: {kind: http, url: 'http://127.0.0.1:9/score'}\n";
    let url = "http://127.0.0.1:9/score".to_owned();
    assert_eq!(with(function).unwrap(), Judging::Function(url));
    let error = with("judge: {kind: http}\n").unwrap_err().to_string();
    assert!(error.contains("needs judge.url"), "{error}");
    let remote =
        "rl: {remote_url: 'http://127.0.0.1:9'}\njudge: {kind: base, policy: openclaw_rl}\n";
    let (base, judging) = judge(remote).unwrap();
    assert_eq!(judging, Judging::Base);
    assert!(
        matches!(
            base,
            Judge::Model {
                policy: OpenclawRl,
                is_base: true,
                ..
            }
        ),
        "{base:?}"
    );
    let error = with("judge: {kind: base}\n").unwrap_err().to_string();
    assert!(error.contains("needs a policy model"), "{error}");
    let votes = |text: &str| match judge(&format!("{LLM}{text}")).unwrap().0 {
        Judge::Model { votes, .. } => votes,
        Judge::Rules(_) | Judge::Function { .. } => 0,
    };
    assert_eq!((votes(""), votes("judge: {votes: 5}\n")), (3, 5));
}

/// What the banner says of who hears wishes; none where nobody does.
fn heard_with(text: &str) -> Option<String> {
    made(text, |learning| {
        let about =
            crate::banner::about(learning.config, learning.config, learning.policy).unwrap();
        let listener = learning.listener().unwrap();
        let (_, heard) = about.leaves.split_once("what you type")?;
        assert!(learning.judge().unwrap().0.hears() || listener.is_some());
        Some(format!("what you type{heard}"))
    })
}

#[test]
fn where_the_judge_hears_nothing_llm_is_asked_and_else_the_policy_model() {
    let llm = "what you type, to detect wishes and facts (m)";
    let elsewhere = LLM.replace("http://127.0.0.1:9", "https://a.example");
    let with = |text: &str| heard_with(&format!("{elsewhere}{text}"));
    assert_eq!(with("judge: {kind: rules}\n").as_deref(), Some(llm));
    let function = "judge: {kind: http, url: 'http://127.0.0.1:8/score'}\n";
    assert_eq!(with(function).as_deref(), Some(llm));
    assert_eq!(with("").as_deref(), Some(llm), "the judge hears as well");
    for nobody in [
        "judge: {kind: off}\n",
        "judge: {kind: rules}\nwishes: {enabled: false}\nmemory: {enabled: false}\n",
        "judge: {kind: rules}\nturns: {enabled: false}\n",
    ] {
        assert_eq!(with(nobody), None, "{nobody}");
    }
    // The callers' keys pass through: no provider is asked with them.
    let through = "llm: {api_base: 'https://a.example/v1', model_id: m}\n";
    assert_eq!(heard_with(through), None);
    let remote = heard_with("rl: {remote_url: 'https://b.example'}\n").unwrap();
    assert_eq!(remote, "what you type, to detect wishes and facts");
}

#[test]
fn skills_are_written_where_that_is_wanted() {
    let every = |text: &str| evolver(&format!("{LLM}{text}")).map(|evolver| evolver.every_n_turns);
    assert_eq!(every(""), Some(10));
    assert_eq!(every("skills: {evolution_every_n_turns: 7}\n"), Some(7));
    for never in [
        "skills: {auto_evolve: false}\n",
        "skills: {evolution_every_n_turns: 0}\n",
        "skills: {enabled: false}\n",
        "turns: {enabled: false}\n",
    ] {
        assert_eq!(every(never), None, "{never}");
    }
    assert!(evolver("").is_none(), "nobody can be asked");
}

async fn health(dir: &Path, text: &str) -> Result<Health, BackendError> {
    let start = start(dir, text);
    let log = TurnLog::open(&start.site.home.turns(), &TurnsConfig::default()).unwrap();
    let (config, tasks) = (&start.loaded.config, TaskTracker::new());
    let prepared = Training::prepare(config, &start.policy, &start.site, &log, &tasks);
    let (_, training) = prepared.unwrap();
    training.room.backend.unwrap().health().await
}

async fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test(start_paused = true)]
async fn deadlines_are_those_of_the_settings() {
    let (_listener, url) = silent().await;
    let (judge, _) = judge(&format!(
        "judge: {{url: '{url}', model: m, timeout: 7 s}}\n"
    ))
    .unwrap();
    let Judge::Model { model, .. } = judge else {
        panic!("{judge:?}");
    };
    let why = why_not(&*model).await;
    assert!(why.ends_with("did not answer within 7 s"), "{why}");
    let text = format!("evolver: {{url: '{url}', model: m, timeout: 9 s}}\n");
    let why = why_not(&*evolver(&text).unwrap().model).await;
    assert!(why.ends_with("did not answer within 9 s"), "{why}");

    let dir = tempfile::tempdir().unwrap();
    let text = format!("rl: {{remote_url: '{url}', remote_timeout_s: 11}}\n");
    let error = health(dir.path(), &text).await.unwrap_err();
    let said = error.to_string();
    assert!(said.ends_with("within 11s"), "{said}");
}

#[tokio::test]
async fn each_server_is_shown_its_own_key() {
    let server = Server::new(|_| Reply::status(401, ""));
    let url = server.url();
    let text =
        format!("{LLM}evolver: {{url: '{url}', model: m2, key: k2, api_version: 2024-10-21}}\n");
    let evolver = evolver(&text).unwrap();
    why_not(&*evolver.model).await;
    let asked = &server.asked()[0];
    let target = "/openai/deployments/m2/chat/completions?api-version=2024-10-21";
    assert_eq!((asked.method(), asked.target()), ("POST", target));
    assert_eq!(asked.header("api-key"), Some("k2"));

    let dir = tempfile::tempdir().unwrap();
    let text = format!("rl: {{remote_url: '{url}', remote_api_key: k3}}\n");
    health(dir.path(), &text).await.unwrap_err();
    assert_eq!(server.asked()[1].header("authorization"), Some("Bearer k3"));
}

#[tokio::test]
async fn skills_dir_is_the_folder_of_skills() {
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("mine/mail");
    std::fs::create_dir_all(&mine).unwrap();
    let skill = "---\nname: mail\ndescription: Drafting an email\n---\nDo it.\n";
    std::fs::write(mine.join("SKILL.md"), skill).unwrap();
    for (text, is_mine) in [("skills: {dir: mine}\n", true), ("", false)] {
        let Start { loaded, site, .. } = start(dir.path(), text);
        let (config, home) = (&loaded.config, &site.home);
        let (kept, warnings) = lessons::open(config, home, Vec::new()).await.unwrap();
        assert_eq!(warnings, [""; 0]);
        let skills = kept.library.skills(&AgentId::default_agent());
        let has_mine = skills
            .iter()
            .any(|skill| skill.description == "Drafting an email");
        assert_eq!((has_mine, skills.len() == 1), (is_mine, is_mine), "{text}");
        // The bank is put into our own folder, and into nobody else's.
        assert_eq!(home.skills().exists(), !is_mine);
    }
}

#[test]
fn claw_type_says_whose_file_is_changed() {
    let text = "{agents: {defaults: {model: 'p/m'}}, models: {providers: {p: {baseUrl: 'http://h/v1', apiKey: 'k', api: 'openai-completions'}}}}";
    for (claw, is_pointed) in [
        ("", true),
        ("claw_type: openclaw\n", true),
        ("claw_type: none\n", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("openclaw.json");
        std::fs::write(&file, text).unwrap();
        let start = start(dir.path(), &format!("{LLM}{claw}"));
        let surroundings = crate::wires::surroundings(&start.site.environment);
        let found = metaclaw_wiring::detect(&surroundings).unwrap().unwrap();
        crate::wires::wires(&start.site.home)
            .accept_found(&found)
            .unwrap();
        let pointed = start.agents.point(([127, 0, 0, 1], 30_000).into());
        assert_eq!(
            pointed.is_some_and(|one| !one.asking.is_empty()),
            is_pointed,
            "{claw}"
        );
        let is_as_before = std::fs::read_to_string(&file).unwrap() == text;
        assert_eq!(is_as_before, !is_pointed, "{claw}");
    }
}
