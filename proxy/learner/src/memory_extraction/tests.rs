//! Tests: facts that the owner tells are remembered, and nobody else's.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use metaclaw_chat::{Message, SessionId};
use metaclaw_skills::{MemoryConfig, MemoryScope};
use metaclaw_turns::{TurnLog, TurnsConfig};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    Ask, AskFailed, Listener, Parts,
    testing::{Running, Said, World, append, append_for, parts, progress, said},
};

/// A model that gives one answer, and remembers what it was asked.
#[derive(Debug)]
struct ScriptedModel {
    answer: Result<&'static str, &'static str>,
    asked: Mutex<Vec<String>>,
}

impl Ask for ScriptedModel {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        self.asked
            .lock()
            .unwrap()
            .push(messages[1].text().into_owned());
        let failed = |why: &str| AskFailed {
            why: why.to_owned(),
        };
        let answer = self.answer.map(str::to_owned).map_err(failed);
        Box::pin(async move { answer })
    }
}

struct MemoryWorld {
    log: TurnLog,
    memory: MemoryStore,
    model: Arc<ScriptedModel>,
    running: Running,
    _dir: TempDir,
}

impl MemoryWorld {
    async fn new(config: MemoryConfig, answer: Result<&'static str, &'static str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = TurnLog::open(&dir.path().join("turns"), &TurnsConfig::default()).unwrap();
        let remembering = ["hermes".parse().unwrap()];
        let memory = MemoryStore::open_beside(dir.path().join("memory"), config, remembering);
        let model = Arc::new(ScriptedModel {
            answer,
            asked: Mutex::default(),
        });
        let off = serde_json::from_str(r#"{"mode": "skills_only"}"#).unwrap();
        let parts = Parts {
            listener: Some(Listener::Model(Arc::<ScriptedModel>::clone(&model))),
            memory: Some(memory.clone()),
            ..parts(off, &log)
        };
        let running = Running::start(parts, CancellationToken::new()).await;
        Self {
            log,
            memory,
            model,
            running,
            _dir: dir,
        }
    }

    async fn talk(&self, session: &str, owner: &[&str]) {
        let talk: Vec<Said> = owner
            .iter()
            .zip(1..)
            .map(|(text, mark)| said(text, "Noted.", mark))
            .collect();
        append(&self.log, &World::default(), session, &talk).await;
    }

    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let came = progress::found_in_time(async || holds(self).then_some(())).await;
        assert!(came.is_some(), "never came: {:?}", self.contents());
    }

    fn contents(&self) -> Vec<String> {
        let all = self.memory.list(None, None).unwrap().into_iter();
        all.filter(Memory::is_active).map(|m| m.content).collect()
    }

    fn n_waiting(&self) -> usize {
        let sessions = self.memory.buffered(|_| true).unwrap();
        sessions.iter().map(|session| session.turns.len()).sum()
    }

    async fn end(self) {
        self.running.stop().await;
    }
}

fn every(flush_every: usize) -> MemoryConfig {
    MemoryConfig {
        flush_every,
        ..MemoryConfig::default()
    }
}

#[tokio::test]
async fn a_model_is_asked_once_for_several_messages_and_sees_only_the_owners() {
    let answer = "fact 2 project_state: we deploy with Nomad since May\nfact 3 semantic: The user likes Kubernetes";
    let world = MemoryWorld::new(every(3), Ok(answer)).await;
    let talk = [
        "What is a canary release?",
        "By the way, we deploy with Nomad since May.",
        "Fwd: offers\nWe use PayFast for all payments. Thanks.",
        "And a blue-green one?",
    ];
    world.talk("a", &talk[..2]).await;
    world.until(|world| world.n_waiting() == 2).await;
    let is_so = world.model.asked.lock().unwrap().is_empty();
    assert!(is_so, "it waits for more");
    world.talk("b", &talk).await;
    world.until(|world| world.contents().len() == 1).await;
    assert_eq!(world.contents(), ["we deploy with Nomad since May"]);
    let asked = world.model.asked.lock().unwrap()[0].clone();
    let is_so = !asked.contains("PayFast") && !asked.contains("Noted.");
    assert!(is_so, "{asked}");
    let memory = &world.memory.list(None, None).unwrap()[0];
    assert_eq!(memory.origin.session.as_ref().unwrap().as_str(), "b");
    let turn = memory.origin.turn.unwrap();
    let turn = world.log.get(turn).await.unwrap().unwrap();
    let is_so = owner_says(&turn).unwrap().contains("Nomad");
    assert!(is_so, "the turn that said it");
    assert_eq!(
        memory.said.as_deref(),
        Some("By the way, we deploy with Nomad since May.")
    );
    world.end().await;
}

#[tokio::test]
async fn an_agent_that_remembers_by_itself_is_not_read_for_facts() {
    let world = MemoryWorld::new(every(1), Err("the budget is spent")).await;
    let hermes = "hermes".parse().unwrap();
    let talk = [said("My name is Anna.", "Noted.", 1)];
    append_for(&hermes, &world.log, &World::default(), "a", &talk).await;
    // Turns are read in their order.
    world.talk("b", &["I live in Rome."]).await;
    world.until(|world| !world.contents().is_empty()).await;
    assert_eq!(world.contents(), ["I live in Rome."]);
    world.end().await;
}

#[tokio::test]
async fn rules_find_plain_facts_where_no_model_answers() {
    let world = MemoryWorld::new(every(1), Err("the budget is spent")).await;
    world
        .talk("a", &["My name is Anna. What is rain?", "Is my name Otto?"])
        .await;
    world
        .until(|world| world.n_waiting() == 0 && !world.contents().is_empty())
        .await;
    assert_eq!(world.contents(), ["My name is Anna."]);
    world.end().await;
}

#[tokio::test]
async fn with_manual_trigger_nothing_is_read_before_it_is_asked_for() {
    let config = MemoryConfig {
        manual_trigger: true,
        ..every(1)
    };
    let world = MemoryWorld::new(config, Ok("none")).await;
    world.talk("a", &["My dog is called Rex."]).await;
    world.talk("b", &["My name is Anna."]).await;
    world.until(|world| world.n_waiting() == 2).await;
    assert!(world.model.asked.lock().unwrap().is_empty());
    let b: SessionId = "b".parse().unwrap();
    let read = world
        .running
        .learner
        .ingest(Box::new(move |turn| turn.session == b))
        .await
        .unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(
        (read[0].session.as_str(), read[0].added, read[0].turns),
        ("b", 0, 1)
    );
    assert_eq!(world.n_waiting(), 1);
    assert!(
        world
            .running
            .learner
            .ingest(Box::new(|turn| turn.scope == MemoryScope::new("x")))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        world
            .running
            .learner
            .ingest(Box::new(|_| true))
            .await
            .unwrap()
            .len(),
        1
    );
    let is_so = world.contents().is_empty();
    assert!(is_so, "the model found nothing: {:?}", world.contents());
    world.end().await;
}

#[test]
fn what_was_forgotten_while_a_model_was_asked_is_not_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let memory = MemoryStore::open(dir.path(), MemoryConfig::default());
    let said = "I live in Rome.";
    let turn = BufferedTurn {
        agent: AgentId::default_agent(),
        session: "a".parse().unwrap(),
        scope: MemoryScope::default(),
        turn: None,
        said: said.to_owned(),
        at_ms: 1,
    };
    memory.buffer(turn).unwrap();
    let session = memory.buffered(|_| true).unwrap().remove(0);
    let facts = plain_facts([said]);
    memory.forget_sessions(|_, it| it.as_str() == "a").unwrap();
    assert!(remember(&memory, &session, &facts).unwrap().is_empty());
    assert!(memory.list(None, None).unwrap().is_empty());
}

#[tokio::test]
async fn what_was_not_read_yet_is_read_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let before = MemoryStore::open(dir.path(), MemoryConfig::default());
    let turn = BufferedTurn {
        agent: AgentId::default_agent(),
        session: "a".parse().unwrap(),
        scope: MemoryScope::default(),
        turn: None,
        said: "I live in Rome.".to_owned(),
        at_ms: 1,
    };
    before.buffer(turn).unwrap();
    let world = MemoryWorld::new(MemoryConfig::default(), Ok("none")).await;
    let after = MemoryStore::open(dir.path(), MemoryConfig::default());
    let shared = {
        let config = serde_json::from_str(r#"{"mode": "skills_only"}"#).unwrap();
        Shared::new(
            Parts {
                memory: Some(after.clone()),
                ..parts(config, &world.log)
            },
            CancellationToken::new(),
        )
    };
    ingest_silent(&shared, &after).await.unwrap();
    let all = after.list(None, None).unwrap();
    assert_eq!(
        all.iter().map(|m| m.content.as_str()).collect::<Vec<_>>(),
        ["I live in Rome."]
    );
    assert!(after.buffered(|_| true).unwrap().is_empty());
    world.end().await;
}
