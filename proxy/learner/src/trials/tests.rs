//! Ten nights of an evolver that does harm, and of one that helps, with trials and without: the real learner, log and
//! library, and a simulated model.
//!
//! The model solves 4 tasks of 5. A harmful skill lets it solve 1 of 5 tasks of its kind, a good one all. One verdict in
//! ten is wrong. The accuracy is measured on tasks that occur in no chat.

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use metaclaw_chat::Usage;
use metaclaw_reward::Rules;
use metaclaw_skills::{ProposalState, Reason, SkillsConfig, WishesConfig, read_history};
use metaclaw_turns::{TurnLog, TurnsConfig};
use serde_json::json;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    Parts,
    judge::Ask,
    testing::{Running, new_turn, parts, progress},
};

const NIGHTS: usize = 10;
/// Days of chats before the first night.
const DAYS_BEFORE: usize = 3;
/// Kinds of tasks. No skill is written for the last one.
const KINDS: [&str; 5] = ["zorblat", "quendle", "fraxil", "mivorn", "tuskel"];
const TASKS_A_DAY: usize = 25;
/// Tokens of one chat, most of them in the work that follows the task.
const CHAT_TOKENS: u64 = 8_000;
/// What the skills say, each in words of its own.
const STEPS: [&str; 10] = [
    "Round all figures generously before adding them up.",
    "Leave out whatever seems obvious to readers.",
    "Prefer older sources because these proved themselves.",
    "Begin with conclusions, then look for reasons.",
    "Merge similar entries although dates differ.",
    "Trust totals printed on receipts without recounting.",
    "Translate proper names literally into English.",
    "Skip footnotes, appendices and small print.",
    "Assume metric units everywhere unless shouted at.",
    "Replace missing values by their neighbours' average.",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    Harmful,
    Good,
}

/// Writes one skill a night, and solves tasks.
#[derive(Debug)]
struct Simulated {
    nature: Nature,
    night: AtomicU64,
    random: Mutex<u64>,
    /// Whether it is a better model by now, which needs no skills.
    is_better: AtomicBool,
}

/// Returns whether the model solves a task, given the skills in its prompt.
fn solves(task: usize, kind: &str, prompt: &str) -> bool {
    if prompt.contains(&format!("### brisk-{kind}")) {
        task.is_multiple_of(5)
    } else {
        !task.is_multiple_of(5) || prompt.contains(&format!("### careful-{kind}"))
    }
}

fn asked_for(task: usize) -> String {
    let kind = KINDS[task / 5 % KINDS.len()];
    format!("Task {task}: make the {kind} report.")
}

fn kind_of(task: usize) -> &'static str {
    KINDS[task / 5 % KINDS.len()]
}

// === impl Simulated ===

impl Simulated {
    fn skill(&self) -> String {
        let night = usize::try_from(self.night.load(Ordering::Relaxed)).unwrap();
        let kind = KINDS[night % 4];
        let name = match self.nature {
            Nature::Harmful => format!("brisk-{kind}-{night}"),
            Nature::Good => format!("careful-{kind}"),
        };
        let steps = format!("1. {}\n2. {}", STEPS[night % 10], STEPS[(night + 3) % 10]);
        json!([{
            "name": name, "description": format!("Use for a {kind}, way {night}."), "content": steps,
            "keywords": [kind, format!("{kind} report")],
        }])
        .to_string()
    }

    /// Returns the reply to a task. One in ten is labelled wrongly, which is how the judge errs.
    fn reply(&self, task: usize, prompt: &str) -> String {
        let mut random = self.random.lock().unwrap();
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let is_error = (*random >> 33).is_multiple_of(10);
        let is_solved =
            self.is_better.load(Ordering::Relaxed) || solves(task, kind_of(task), prompt);
        let is_right = is_solved != is_error;
        let label = if is_right { "right" } else { "wrong" };
        format!("The report of task {task} is {label}.")
    }
}

impl Ask for Simulated {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        Box::pin(async move {
            let last = messages.last().unwrap().text().into_owned();
            let task = last.strip_prefix("Task ").and_then(|r| r.split_once(':'));
            let (task, _) = task.unwrap();
            let texts = messages.iter().map(|m| m.text().into_owned());
            Ok(self.reply(task.parse().unwrap(), &texts.collect::<String>()))
        })
    }
}

/// A model that writes skills and solves no task: trials ask the one that the agent has.
#[derive(Debug)]
struct Writer(Arc<Simulated>);

impl Ask for Writer {
    fn ask<'a>(&'a self, _: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        Box::pin(async { Ok(self.0.skill()) })
    }
}

struct Nights {
    log: TurnLog,
    library: Library,
    model: Arc<Simulated>,
    may_start: Arc<AtomicBool>,
    running: Running,
    n_tasks: usize,
}

// === impl Nights ===

impl Nights {
    async fn start(dir: &Path, nature: Nature, is_tried: bool) -> Self {
        let log = TurnLog::open(&dir.join("turns"), &TurnsConfig::default()).unwrap();
        let skills = SkillsConfig {
            review: false,
            ..SkillsConfig::default()
        };
        let (library, _) = Library::open(dir.join("skills"), skills, WishesConfig::default());
        let model = Arc::new(Simulated {
            nature,
            night: AtomicU64::new(0),
            random: Mutex::new(11),
            is_better: AtomicBool::new(false),
        });
        let may_start = Arc::new(AtomicBool::new(false));
        let allowed = Arc::clone(&may_start);
        let evolver = Evolver {
            model: Arc::new(Writer(Arc::clone(&model))),
            policy: Some(Arc::clone(&model) as Arc<dyn Ask>),
            every_n_turns: 2 * TASKS_A_DAY as u64,
            may_start: Arc::new(move || allowed.load(Ordering::Relaxed)),
            look_every: Duration::from_millis(10),
        };
        let rules = r#"[{"on": "reply", "pattern": "right", "score": 1}, {"on": "reply", "pattern": "wrong", "score": -1}]"#;
        let rules: Vec<metaclaw_reward::Rule> = serde_json::from_str(rules).unwrap();
        let config = json!({"mode": "rl", "gate": {"lessons": is_tried}});
        let parts = Parts {
            judge: Judge::Rules(Rules::compile(&rules).unwrap()),
            evolver: Some((library.clone(), evolver)),
            ..parts(serde_json::from_value(config).unwrap(), &log)
        };
        let running = Running::start(parts, CancellationToken::new()).await;
        Self {
            log,
            library,
            model,
            may_start,
            running,
            n_tasks: 0,
        }
    }

    async fn stop(self) {
        self.running.stop().await;
    }

    /// Has a day of chats, each about one task, with the lessons in force.
    async fn day(&mut self) {
        self.may_start.store(false, Ordering::Relaxed);
        for _ in 0..TASKS_A_DAY {
            let (task, session) = (self.n_tasks, format!("s{}", self.n_tasks));
            self.n_tasks += 1;
            let asked = asked_for(task);
            let reply = self.model.reply(task, &self.system(&asked));
            let mut messages = vec![Message::user(asked)];
            let reply = Message::assistant(reply);
            let first = new_turn(&session, &format!("{session}-0"), &messages, reply.clone());
            self.log.append(first).await.unwrap();
            messages.extend([reply, Message::user("Go on with it.")]);
            let done = Message::assistant("Done.");
            let mut rest = new_turn(&session, &format!("{session}-1"), &messages, done);
            rest.meta.usage = Some(Usage {
                prompt_tokens: CHAT_TOKENS,
                ..Usage::default()
            });
            self.log.append(rest).await.unwrap();
        }
        let n = self.n_tasks as u64;
        let judged = async || (self.log.funnel(None).await.unwrap().judged >= n).then_some(());
        progress::found_in_time(judged).await.expect("verdicts");
    }

    /// Lets the evolver write a skill, and waits until it was tried.
    async fn night(&self, night: usize) {
        self.model.night.store(night as u64, Ordering::Relaxed);
        let agent = AgentId::default_agent();
        let path = self.library.dir().join("evolution_history.jsonl");
        let is_done = async || {
            let is_written = path.exists() && read_history(&path).unwrap().len() > night;
            let (untried, _) = self.library.untried(&agent).unwrap();
            (is_written && untried.is_empty()).then_some(())
        };
        self.may_start.store(true, Ordering::Relaxed);
        let done = progress::found_in_time(is_done).await;
        let is_so = done.is_some();
        assert!(is_so, "night {night}: {:?}", self.library.untried(&agent));
    }

    fn system(&self, asked: &str) -> String {
        let lessons = self.library.lessons(&AgentId::default_agent(), asked);
        lessons.system_block.unwrap_or_default()
    }

    /// Returns the percentage of solved tasks among 250 that occur in no chat.
    fn accuracy(&self) -> usize {
        let tasks = 10_000..10_250;
        let n = tasks.len();
        let is_solved =
            |task: &usize| solves(*task, kind_of(*task), &self.system(&asked_for(*task)));
        100 * tasks.filter(is_solved).count() / n
    }

    /// Returns the tokens of trials in thousandths of those of chats.
    async fn cost(&self) -> u64 {
        let agent = AgentId::default_agent();
        let days = self.log.statistics(0).await.unwrap();
        let chat: u64 = days.iter().map(|day| day.counts.tokens_in).sum();
        self.library.evolution(&agent).unwrap().trial_tokens * 1_000 / chat
    }
}

/// Returns the accuracy before the first night and after each, and what the trials cost.
async fn measured(nature: Nature, is_tried: bool) -> (Vec<usize>, u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut nights = Nights::start(dir.path(), nature, is_tried).await;
    for _ in 1..DAYS_BEFORE {
        nights.day().await;
    }
    let mut accuracy = vec![nights.accuracy()];
    for night in 0..NIGHTS {
        nights.day().await;
        nights.night(night).await;
        accuracy.push(nights.accuracy());
    }
    let proposals = nights.library.proposals().unwrap();
    let n = |state| proposals.iter().filter(|p| p.state == state).count();
    let (accepted, declined) = (n(ProposalState::Accepted), n(ProposalState::Declined));
    let cost = nights.cost().await;
    println!(
        "{nature:?}, trials {is_tried}: {accuracy:?} % solved; {accepted} in force, {declined} declined; trials cost {}.{} % of chat",
        cost / 10,
        cost % 10
    );
    nights.stop().await;
    (accuracy, cost)
}

#[tokio::test]
async fn ten_nights_of_harmful_skills_lose_nothing() {
    let (accuracy, cost) = measured(Nature::Harmful, true).await;
    let is_so = accuracy.windows(2).all(|pair| pair[1] + 1 >= pair[0]);
    assert!(is_so, "{accuracy:?}");
    assert!(cost <= 50, "{cost}");
}

#[tokio::test]
async fn without_trials_ten_nights_of_harmful_skills_do_harm() {
    let (accuracy, cost) = measured(Nature::Harmful, false).await;
    assert_eq!(cost, 0);
    assert!(accuracy[NIGHTS] + 30 < accuracy[0], "{accuracy:?}");
}

#[tokio::test]
async fn ten_nights_of_good_skills_gain() {
    let (accuracy, cost) = measured(Nature::Good, true).await;
    assert!(accuracy[NIGHTS] >= accuracy[0] + 10, "{accuracy:?}");
    let is_so = accuracy.windows(2).all(|pair| pair[1] + 1 >= pair[0]);
    assert!(is_so, "{accuracy:?}");
    assert!(cost <= 50, "{cost}");
}

/// Makes the stored times of skills and their trials those of long ago.
fn make_old(library: &Library) {
    let path = library.dir().join("proposals.json");
    let mut store: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for proposal in store["proposals"].as_array_mut().unwrap() {
        proposal["since_ms"] = json!(1);
        for why in proposal["why"].as_array_mut().unwrap() {
            why["at_ms"] = json!(1);
        }
    }
    std::fs::write(&path, store.to_string()).unwrap();
}

#[tokio::test]
async fn a_skill_ages_out_once_the_model_does_as_well_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut nights = Nights::start(dir.path(), Nature::Good, true).await;
    for _ in 0..DAYS_BEFORE {
        nights.day().await;
    }
    nights.night(0).await;
    let first = |library: &Library| library.proposals().unwrap().remove(0);
    assert_eq!(first(&nights.library).state, ProposalState::Accepted);
    for (is_better, expected) in [
        (false, ProposalState::Accepted),
        (true, ProposalState::AgedOut),
    ] {
        nights.model.is_better.store(is_better, Ordering::Relaxed);
        nights.day().await;
        make_old(&nights.library);
        nights.may_start.store(true, Ordering::Relaxed);
        let is_new = |why: &Reason| matches!(why, Reason::TriedAgain { at_ms, .. } if *at_ms > 1);
        let is_tried_again = async || {
            let skill = first(&nights.library);
            skill.why.iter().any(is_new).then_some(skill)
        };
        let skill = progress::found_in_time(is_tried_again)
            .await
            .expect("a trial");
        assert_eq!(skill.state, expected, "{:?}", skill.why);
    }
    assert!(!nights.system(&asked_for(0)).contains("careful-zorblat"));
    nights.stop().await;
}

#[test]
fn as_many_requests_are_tried_as_the_tokens_suffice_for() {
    let n = |costs: &[u64], left| affordable(costs.iter().copied(), left);
    assert_eq!(n(&[3, 3, 3], 7), 2);
    assert_eq!(n(&[3, 9, 1], 7), 1);
    assert_eq!((n(&[3], 0), n(&[], 0)), (0, 0));
}
