//! Tests that what the owner says is heard once, whenever the process ends.

use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures_util::future::{BoxFuture, ready};
use metaclaw_chat::{AgentId, Message, Span};

use metaclaw_skills::{Library, MemoryConfig, MemoryStore, SkillsConfig, WishesConfig};
use metaclaw_turns::{ImportedTurn, TurnLog, TurnsConfig};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    Ask, AskFailed, Listener, Parts,
    testing::{Running, World, append_for, new_turn, parts, progress, said},
};

const FRENCH: &str = "From now on answer in French.";
const MAX: &str = "Please always call me Max.";
/// Rules are not sure about these.
const WATCH: &str = "I read these on my watch.";
const NOVELS: &str = "Your mails read like novels.";
const CAPITALS: &str = "There were capitals everywhere.";
/// Both wishes and facts are on.
const BOTH: [bool; 2] = [true; 2];

/// A model that hears a wish in each sentence, or never answers, and counts its requests.
#[derive(Debug, Default)]
struct Hearer {
    is_silent: bool,
    is_spent: AtomicBool,
    /// The log in which session "a" is deleted before the model answers.
    deletes: OnceLock<TurnLog>,
    asked: Mutex<usize>,
}

impl Ask for Hearer {
    fn may_ask(&self) -> BoxFuture<'_, bool> {
        progress::made();
        Box::pin(ready(!self.is_spent.load(Ordering::Relaxed)))
    }

    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        let is_spent = self.is_spent.load(Ordering::Relaxed);
        *self.asked.lock().unwrap() += usize::from(!is_spent);
        progress::made();
        Box::pin(async move {
            if is_spent {
                let why = "the budget is spent".to_owned();
                return Err(AskFailed { why });
            }
            if self.is_silent {
                std::future::pending::<()>().await;
            }
            if let Some(log) = self.deletes.get() {
                let agent = AgentId::default_agent();
                log.forget(&agent, &"a".parse().unwrap()).await.unwrap();
            }
            let sentences = messages[1].text().into_owned();
            let wishes = sentences.lines().map(|line| line.replacen(". ", ": ", 1));
            let wishes: Vec<String> = wishes.map(|wish| format!("wish {wish}")).collect();
            Ok(wishes.join("\n"))
        })
    }
}

/// A home, in which several processes run one after the other.
struct Lives {
    dir: TempDir,
    /// `wishes.wait`.
    wait: Span,
    n_heard: AtomicUsize,
}

/// One process of a home.
struct Life {
    log: TurnLog,
    library: Library,
    memory: MemoryStore,
    running: Running,
}

// === impl Lives ===

impl Lives {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            wait: Span::secs(0),
            n_heard: AtomicUsize::new(0),
        }
    }

    fn log(&self) -> TurnLog {
        TurnLog::open(&self.dir.path().join("turns"), &TurnsConfig::default()).unwrap()
    }

    fn library(&self) -> Library {
        let wishes = WishesConfig {
            wait: self.wait,
            ..WishesConfig::default()
        };
        let skills = SkillsConfig::default();
        Library::open(self.dir.path().join("skills"), skills, wishes).0
    }

    /// Starts a process that hears wishes and facts, as far as they are on, by the model `hearer` or else by rules. Its
    /// agent "off" is only relayed.
    async fn start(&self, hearer: Option<&Arc<Hearer>>, [wishes, facts]: [bool; 2]) -> Life {
        let (log, library) = (self.log(), self.library());
        let memory = MemoryStore::open(self.dir.path().join("memory"), MemoryConfig::default());
        let off = serde_json::from_str(r#"{"mode": "skills_only"}"#).unwrap();
        let parts = Parts {
            listener: hearer.map(|hearer| Listener::Model(Arc::<Hearer>::clone(hearer))),
            library: Some(library.clone()).filter(|_| wishes),
            memory: Some(memory.clone()).filter(|_| facts),
            is_off: Arc::new(|agent| agent.as_str() == "off"),
            ..parts(off, &log)
        };
        let running = Running::start(parts, CancellationToken::new()).await;
        Life {
            log,
            library,
            memory,
            running,
        }
    }

    /// Appends turns while no process runs.
    async fn says(&self, session: &str, owner: &[&str]) {
        let log = self.log();
        say(&log, session, owner).await;
        log.close().await;
    }

    /// Starts a process, and returns the wishes after it has heard everything.
    async fn heard(&self) -> Vec<String> {
        let n = self.n_heard.fetch_add(1, Ordering::Relaxed);
        let (end, session) = (
            format!("From now on always mention end {n}."),
            format!("end-{n}"),
        );
        let life = self.start(None, BOTH).await;
        say(&life.log, &session, &[&end]).await;
        // Rules propose it, so that it replaces nothing.
        let has_end = |life: &Life| {
            let lessons = life.library.journal().unwrap();
            lessons.iter().any(|lesson| lesson.wish == end)
        };
        life.until(has_end).await;
        let n_buffered = |life: &Life| {
            let sessions = life.memory.buffered(|m| m.session.as_str() == session);
            sessions.unwrap().len()
        };
        life.until(|life| n_buffered(life) == 1).await;
        let wishes = life.wishes();
        life.end().await;
        wishes
    }
}

// === impl Life ===

impl Life {
    fn wishes(&self) -> Vec<String> {
        let wishes = self.library.own_wishes(&AgentId::default_agent());
        wishes.into_iter().map(|wish| wish.text).collect()
    }

    fn n_waiting(&self) -> usize {
        self.running.learner.hearing().waiting
    }

    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let came = progress::found_in_time(async || holds(self).then_some(())).await;
        assert!(came.is_some(), "never came: {:?}", self.wishes());
    }

    /// Ends the process like a stop or a kill: its tasks end wherever they are.
    async fn end(self) {
        self.running.stop().await;
    }
}

async fn say(log: &TurnLog, session: &str, owner: &[&str]) {
    say_to(&AgentId::default_agent(), log, session, owner).await;
}

async fn say_to(agent: &AgentId, log: &TurnLog, session: &str, owner: &[&str]) {
    let talk = owner.iter().zip(1..);
    let talk: Vec<_> = talk
        .map(|(text, mark)| said(text, "Noted.", mark))
        .collect();
    append_for(agent, log, &World::default(), session, &talk).await;
}

#[tokio::test]
async fn what_was_said_before_a_kill_is_heard_at_the_next_start() {
    let both = format!("{FRENCH} {MAX}");
    for (what, owner, wishes) in [
        ("a wish", vec![FRENCH], vec![FRENCH]),
        ("two in one message", vec![&both], vec![FRENCH, MAX]),
        ("two turns", vec!["Hello", FRENCH, MAX], vec![FRENCH, MAX]),
        ("taken back", vec![FRENCH, "Forget that rule."], vec![]),
        ("one complaint", vec!["Hello", "Too long."], vec![]),
        (
            "many turns",
            [vec!["Hello"; 300], vec![FRENCH]].concat(),
            vec![FRENCH],
        ),
    ] {
        let lives = Lives::new();
        lives.says("old", &["From now on answer in German."]).await;
        assert_eq!(lives.heard().await, [""; 0], "{what}: old turns");
        lives.says("a", &owner).await;
        assert_eq!(lives.heard().await, wishes, "{what}");
        // A second start hears nothing again.
        assert_eq!(lives.heard().await, wishes, "{what}");
    }
}

#[tokio::test]
async fn a_model_that_was_asked_when_the_process_ended_is_asked_again() {
    let lives = Lives::new();
    let silent = Arc::new(Hearer {
        is_silent: true,
        ..Hearer::default()
    });
    for n_asked in 1..=2 {
        let life = lives.start(Some(&silent), BOTH).await;
        if n_asked == 1 {
            say(&life.log, "a", &[WATCH]).await;
        }
        life.until(|_| *silent.asked.lock().unwrap() == n_asked)
            .await;
        life.end().await;
    }
    let hearer = Arc::new(Hearer::default());
    let life = lives.start(Some(&hearer), BOTH).await;
    life.until(|life| life.wishes() == [WATCH]).await;
    // It is noted.
    say(&life.log, "b", &[NOVELS]).await;
    life.until(|life| life.wishes() == [WATCH, NOVELS]).await;
    life.end().await;
    let life = lives.start(Some(&hearer), BOTH).await;
    say(&life.log, "c", &[CAPITALS]).await;
    life.until(|life| life.wishes().len() == 3).await;
    // The process may have ended before it noted the second message. The first was noted before the second was heard.
    assert!((3..=4).contains(&*hearer.asked.lock().unwrap()));
    life.end().await;
}

#[tokio::test]
async fn what_is_deleted_while_it_is_heard_is_not_learned() {
    let lives = Lives::new();
    let hearer = Arc::new(Hearer::default());
    let life = lives.start(Some(&hearer), BOTH).await;
    hearer.deletes.set(life.log.clone()).unwrap();
    say(&life.log, "a", &[WATCH]).await;
    say(&life.log, "b", &[NOVELS]).await;
    life.until(|it| it.wishes() == [NOVELS]).await;
    life.until(|it| !it.memory.buffered(|_| true).unwrap().is_empty())
        .await;
    let buffered = life.memory.buffered(|_| true).unwrap();
    assert!(buffered.iter().all(|it| it.session.as_str() == "b"));
    let lessons = life.library.journal().unwrap();
    assert!(lessons.iter().all(|it| it.wish != WATCH), "{lessons:?}");
    life.end().await;
}

#[tokio::test]
async fn what_waits_is_read_in_one_request_even_after_a_kill() {
    let lives = Lives {
        wait: Span::secs(600),
        ..Lives::new()
    };
    let hearer = Arc::new(Hearer::default());
    let life = lives.start(Some(&hearer), BOTH).await;
    say(&life.log, "a", &[WATCH, "Thanks!", NOVELS]).await;
    say(&life.log, "gone", &[CAPITALS]).await;
    life.until(|life| life.n_waiting() == 3).await;
    life.end().await;
    // Deleted words are shown to no model.
    let log = lives.log();
    let agent = AgentId::default_agent();
    log.forget(&agent, &"gone".parse().unwrap()).await.unwrap();
    log.close().await;
    let life = lives.start(Some(&hearer), BOTH).await;
    life.until(|life| life.n_waiting() == 2).await;
    assert_eq!(life.wishes(), [""; 0]);
    assert_eq!(*hearer.asked.lock().unwrap(), 0);
    // The rules are certain about this one, and the order of wishes counts.
    say(&life.log, "b", &[FRENCH]).await;
    life.until(|life| life.wishes() == [WATCH, NOVELS, FRENCH])
        .await;
    life.until(|life| life.n_waiting() == 0).await;
    assert_eq!(*hearer.asked.lock().unwrap(), 1);
    life.end().await;
    assert_eq!(lives.heard().await, [WATCH, NOVELS, FRENCH]);
}

#[tokio::test]
async fn deleted_words_that_wait_are_shown_to_no_model() {
    let lives = Lives {
        wait: Span::secs(600),
        ..Lives::new()
    };
    let hearer = Arc::new(Hearer::default());
    let life = lives.start(Some(&hearer), BOTH).await;
    say(&life.log, "a", &[WATCH]).await;
    life.until(|life| life.n_waiting() == 1).await;
    let agent = AgentId::default_agent();
    let deleted = life.log.forget(&agent, &"a".parse().unwrap()).await;
    deleted.unwrap();
    say(&life.log, "b", &[FRENCH]).await;
    life.until(|life| life.wishes() == [FRENCH]).await;
    assert_eq!(*hearer.asked.lock().unwrap(), 0);
    life.end().await;
}

/// While the budget is spent, messages wait longer, and rules read them if a certain wish comes.
#[tokio::test]
async fn a_spent_budget_holds_messages_back() {
    for (is_spent, wishes, n_asked) in [
        (true, vec![FRENCH], 0),
        (false, vec![WATCH, NOVELS, FRENCH], 1),
    ] {
        let lives = Lives::new();
        let hearer = Arc::new(Hearer::default());
        hearer.is_spent.store(true, Ordering::Relaxed);
        let life = lives.start(Some(&hearer), BOTH).await;
        say(&life.log, "a", &[WATCH, NOVELS]).await;
        life.until(|life| life.n_waiting() == 2).await;
        assert!(life.running.learner.hearing().is_held_back);
        hearer.is_spent.store(is_spent, Ordering::Relaxed);
        say(&life.log, "b", &[FRENCH]).await;
        life.until(|life| life.wishes() == wishes).await;
        life.until(|life| life.n_waiting() == 0).await;
        assert_eq!(*hearer.asked.lock().unwrap(), n_asked, "{is_spent}");
        life.end().await;
    }
}

/// The process is killed after it has learned, and before it has noted that.
#[tokio::test]
async fn nothing_that_was_learned_before_a_kill_is_learned_again() {
    for owner in [
        vec![FRENCH],
        vec!["Hello", "Too long."],
        vec!["Hello", "Too long.", "Too long."],
        vec![MAX, FRENCH, "Forget that rule."],
    ] {
        let lives = Lives::new();
        assert_eq!(lives.heard().await, [""; 0]);
        let log = lives.log();
        let last = log.resume(LogReader::Wishes).await.unwrap();
        log.close().await;
        lives.says("a", &owner).await;
        let heard = lives.heard().await;
        if heard == [FRENCH] {
            let lessons = lives.library().journal().unwrap();
            let lesson = lessons.iter().find(|lesson| lesson.wish == FRENCH).unwrap();
            lives.library().undo(lesson.n).unwrap();
        }
        let before = lives.library().journal().unwrap();
        let log = lives.log();
        log.note_read(LogReader::Wishes, Some(last)).await.unwrap();
        log.close().await;
        lives.heard().await;
        let after = lives.library().journal().unwrap();
        assert_eq!(after[..before.len()], before, "{owner:?}");
        assert_eq!(after.len(), before.len() + 1, "{owner:?}");
    }
}

#[tokio::test]
async fn what_was_said_to_nobody_is_never_heard() {
    let lives = Lives::new();
    assert_eq!(lives.heard().await, [""; 0]);
    let life = lives.start(None, [false; 2]).await;
    say(&life.log, "a", &[FRENCH]).await;
    life.end().await;
    assert_eq!(lives.heard().await, [""; 0], "wishes were switched off");
    let off: AgentId = "off".parse().unwrap();
    let log = lives.log();
    say_to(&off, &log, "a", &[FRENCH]).await;
    // The words of imported turns are not the owner's.
    let messages = [Message::user(FRENCH)];
    let mut turn = new_turn("import", "r-1", &messages, Message::assistant("Oui."));
    turn.served.imported = Some("rollouts.jsonl".to_owned());
    let imported = ImportedTurn {
        turn,
        verdict: None,
    };
    log.import(vec![imported]).await.unwrap();
    log.close().await;
    assert_eq!(lives.heard().await, [""; 0]);
    assert_eq!(lives.library().own_wishes(&off), []);
}

/// If one reader is switched on later than the other, earlier turns are not new to it.
#[tokio::test]
async fn each_reader_goes_on_where_it_stopped_itself() {
    for (first, n_buffered) in [([true, false], 0), ([false, true], 2)] {
        let lives = Lives::new();
        assert_eq!(lives.heard().await, [""; 0]);
        lives.start(None, first).await.end().await;
        lives.says("a", &["Hello", FRENCH]).await;
        let wishes = lives.heard().await;
        let memory = MemoryStore::open(lives.dir.path().join("memory"), MemoryConfig::default());
        let sessions = memory.buffered(|key| key.session.as_str() == "a").unwrap();
        let n: usize = sessions.iter().map(|session| session.turns.len()).sum();
        let expected = if first[0] { vec![FRENCH] } else { vec![] };
        assert_eq!(
            (wishes, n),
            (
                expected.into_iter().map(str::to_owned).collect(),
                n_buffered
            ),
            "{first:?}"
        );
    }
}
