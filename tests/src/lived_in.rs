//! Fills a home as two weeks of use would: conversations of two agents with verdicts and token counts, training steps
//! that the gate tested, a skill.

use std::{fs, path::Path, sync::LazyLock};

use metaclaw_chat::{AgentId, JudgedBy, Message, Score, TurnId, Usage, Verdict};
use metaclaw_turns::{
    DailyCounts, NewMessage, NewStep, NewTurn, Served, StepOutcome, TurnLog, TurnMeta, TurnsConfig,
};
use serde::Deserialize;
use serde_json::{Value, json};

const DAY_MS: u64 = 24 * 3_600 * 1_000;
const DAYS: u64 = 14;
const LINEAGE: &str = "5eed0001";

/// A question with its reply, which is good unless there is a hint.
#[derive(Deserialize)]
struct SampleExchange {
    asked: String,
    answered: String,
    hint: Option<String>,
}

static EXCHANGES: LazyLock<Vec<SampleExchange>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("lived_in.yaml")).expect("exchanges"));
const SKILL: &str = include_str!("lived_in_skill.md");

/// Fills the home, in which nothing runs, with conversations up to `now_ms`.
pub async fn fill(home: &Path, now_ms: u64) {
    let log = TurnLog::open(&home.join("turns"), &TurnsConfig::default()).expect("an empty home");
    let main: AgentId = "main".parse().expect("a name");
    let work: AgentId = "workshop".parse().expect("a name");
    let mut judged = Vec::new();
    for day in 0..DAYS {
        let begin_ms = now_ms - (DAYS - day) * DAY_MS;
        let n = 3 + day * 5 % 4;
        for nth in 0..n {
            let agent = if nth == n - 1 { &work } else { &main };
            let at_ms = begin_ms + nth * 2_700_000;
            let exchange = exchange(day, nth);
            let id = append(&log, agent, exchange, at_ms).await;
            let verdict = verdict(exchange);
            log.judge(id, verdict).await.expect("a turn without one");
            if *agent == main {
                judged.push(id);
            }
        }
        let counts = DailyCounts {
            learning_tokens: 5_200 + day * 311 % 1_900,
            ..DailyCounts::default()
        };
        let everyone = AgentId::shared();
        let counted = log.count(&everyone, begin_ms, counts).await;
        counted.expect("an open log");
    }
    steps(&log, &main, &judged, home).await;
    log.close().await;
    let skill = home.join("skills/main/check-a-certificate");
    fs::create_dir_all(&skill).expect("a writable home");
    fs::write(skill.join("SKILL.md"), SKILL).expect("a writable home");
}

/// The exchange of a day. Bad ones become rarer, and one is among the newest.
fn exchange(day: u64, nth: u64) -> &'static SampleExchange {
    let is_bad = nth * 5 + 2 > day;
    let of_kind = EXCHANGES
        .iter()
        .filter(|it| it.hint.is_some() == (is_bad && nth < 2));
    let of_kind: Vec<&SampleExchange> = of_kind.collect();
    if day + 1 == DAYS && nth == 0 {
        return &EXCHANGES[EXCHANGES.len() - 1];
    }
    let at = usize::try_from(day + nth).expect("few");
    of_kind[at % of_kind.len()]
}

async fn append(log: &TurnLog, agent: &AgentId, exchange: &SampleExchange, at_ms: u64) -> TurnId {
    let messages = [Message::user(&*exchange.asked)];
    let messages = NewMessage::all(agent, &messages).expect("a message");
    let prompt_tokens = 9_000 + at_ms / 1_000 % 7_000;
    let meta = TurnMeta {
        usage: Some(Usage {
            prompt_tokens,
            completion_tokens: u64::try_from(exchange.answered.len() / 4).expect("short"),
            cached_tokens: prompt_tokens * (55 + at_ms / DAY_MS % 30) / 100,
        }),
        started_ms: at_ms - 2_400,
        first_byte_ms: Some(at_ms - 1_900),
        ..TurnMeta::whole(messages[0].chain, at_ms)
    };
    let turn = NewTurn {
        agent: agent.clone(),
        session: format!("chat-{at_ms}").parse().expect("a name"),
        meta,
        messages,
        continues: None,
        tools: None,
        params: serde_json::Map::new(),
        reply: Some(Message::assistant(&*exchange.answered)),
        served: Served {
            upstream: "scripted".to_owned(),
            model: "provider-large".to_owned(),
            ..Served::default()
        },
        tokens: None,
    };
    log.append(turn).await.expect("an open log")
}

fn verdict(exchange: &SampleExchange) -> Verdict {
    let score = match exchange.hint {
        Some(_) => Score::Bad,
        None => Score::Good,
    };
    Verdict {
        hint: exchange.hint.clone(),
        ..Verdict::new(score, JudgedBy::Llm)
    }
}

/// Seven steps of one lineage. The gate declines the fifth, which is made again from other turns.
async fn steps(log: &TurnLog, agent: &AgentId, judged: &[TurnId], home: &Path) {
    let mut lines = String::new();
    let mut parent = None;
    let mut made = 0;
    for (nth, turns) in judged.chunks(5).take(7).enumerate() {
        let n = made + 1;
        let adapter = format!("{agent}-{LINEAGE}-{n:06}");
        let step = NewStep {
            agent: agent.clone(),
            lineage: LINEAGE.to_owned(),
            n,
            attempt: u32::from(nth == 5),
            turns: turns.to_vec(),
            max_uses: 1,
            ancestors: Vec::new(),
            parent: parent.clone(),
            hash: format!("{nth:064x}"),
            choice_ms: None,
        };
        log.take(step).await.expect("turns that are free");
        let is_declined = nth == 4;
        let gate = gate(nth, is_declined);
        let outcome = if is_declined {
            StepOutcome::Declined {
                adapter: adapter.clone(),
                checkpoint: adapter.clone(),
                why: "fluency 1.67 nat a token of surprise, at most 1.60".to_owned(),
                gate,
                at_ms: 0,
                n_judged: 20,
            }
        } else {
            StepOutcome::Trained {
                adapter: adapter.clone(),
                checkpoint: adapter.clone(),
                gate: Some(gate),
            }
        };
        let ended = log.finish_step(agent, n, outcome).await;
        assert!(ended.expect("an open log"), "the step is open");
        if !is_declined {
            lines += &line(agent, &adapter, n).to_string();
            lines.push('\n');
            parent = Some(adapter);
            made = n;
        }
    }
    fs::create_dir_all(home.join("learning")).expect("a writable home");
    fs::write(home.join("learning/steps.jsonl"), lines).expect("a writable home");
}

fn gate(nth: usize, is_declined: bool) -> Value {
    let fluency = if is_declined {
        1.67
    } else {
        1.41 + 0.02 * nth as f64
    };
    let relevance = 1.18 + 0.05 * nth as f64;
    json!({"seconds": 41.5, "tests": [
        {"name": "relevance", "value": relevance, "limit": 1.0, "passed": true,
            "why": format!("relevance {relevance:.2} nat a token, at least 1.00")},
        {"name": "fluency", "value": fluency, "limit": 1.6, "passed": !is_declined,
            "why": format!("fluency {fluency:.2} nat a token of surprise, at most 1.60")},
    ]})
}

/// A line of `steps.jsonl`.
fn line(agent: &AgentId, adapter: &str, n: u64) -> Value {
    let nth = n as f64;
    json!({"step": n, "time_ms": 0, "agent": agent, "lineage": LINEAGE, "n": n, "adapter": adapter, "skipped": false,
        "samples": {"redo": 3, "binary_rl": 2}, "loss/total": 2.4 / (1.0 + 0.3 * nth), "loss/anchor": 0.004 * nth,
        "reward/mean": -0.35 + 0.16 * nth, "reward/std": 0.8 - 0.06 * nth, "rollout/turns": 5,
        "train/ppo_kl": 0.002 + 0.0015 * nth, "learning_rate": 5e-4})
}
