//! Helpers of the tests: turns, and a log to put them in.

use std::{collections::BTreeMap, path::Path};

use metaclaw_chat::{ChainHash, JudgedBy, Message, Score, TurnId, Usage, Verdict, Vote};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    JsonText, LessonRef, NewMessage, NewStep, NewTurn, Served, StepOutcome, Turn, TurnLog,
    TurnMeta, TurnsConfig, read, session::SessionRecord, store::Store,
};

pub(crate) fn open(dir: &Path) -> TurnLog {
    TurnLog::open(dir, &TurnsConfig::default()).unwrap()
}

/// A log in a folder of its own.
pub(crate) fn new_log() -> (TempDir, TurnLog) {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    (dir, log)
}

/// A log in a folder of its own, and a client with a session there.
pub(crate) fn new_session() -> (TempDir, TurnLog, Client) {
    let (dir, log) = new_log();
    (dir, log, Client::new("s", "sys"))
}

/// The first turn of a session.
pub(crate) fn one_turn() -> NewTurn {
    Client::new("s", "sys").turn("q", "a")
}

impl TurnLog {
    /// Appends a turn.
    pub(crate) async fn put(&self, turn: NewTurn) -> TurnId {
        self.append(turn).await.unwrap()
    }

    /// Returns a turn that the log has.
    pub(crate) async fn turn(&self, id: TurnId) -> Turn {
        self.get(id).await.unwrap().unwrap()
    }

    /// Returns the whole log as lines of JSON.
    pub(crate) async fn exported(&self) -> String {
        let mut lines = Vec::new();
        self.export(&mut lines).await.unwrap();
        String::from_utf8(lines).unwrap()
    }
}

/// Makes the first attempt at a step of the agent `main`.
pub(crate) fn step(n: u64, turns: &[TurnId]) -> NewStep {
    NewStep {
        agent: "main".parse().unwrap(),
        lineage: "main-a".to_owned(),
        n,
        attempt: 0,
        turns: turns.to_vec(),
        max_uses: 1,
        ancestors: Vec::new(),
        parent: None,
        hash: "00".repeat(32),
        choice_ms: None,
    }
}

pub(crate) fn trained(adapter: &str) -> StepOutcome {
    StepOutcome::Trained {
        adapter: adapter.to_owned(),
        checkpoint: format!("{adapter}@1"),
        gate: None,
    }
}

/// A growing conversation: the client's next requests.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) agent: &'static str,
    pub(crate) session: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) now_ms: u64,
}

impl Client {
    pub(crate) fn new(session: &str, system: &str) -> Self {
        Self {
            agent: "main",
            session: session.to_owned(),
            messages: vec![Message::system(system)],
            now_ms: 1_760_000_000_000,
        }
    }

    /// Adds a message to the history.
    pub(crate) fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// The owner says something and the model answers. The client adds both to its history.
    pub(crate) fn turn(&mut self, said: &str, answered: &str) -> NewTurn {
        self.messages.push(Message::user(said));
        let turn = self.request(answered);
        self.messages.push(Message::assistant(answered));
        turn
    }

    /// Returns the present request with its reply.
    pub(crate) fn request(&mut self, answered: &str) -> NewTurn {
        self.now_ms += 1_000;
        let agent = self.agent.parse().unwrap();
        let chain = *ChainHash::chain(&agent, &self.messages).last().unwrap();
        NewTurn {
            session: self.session.parse().unwrap(),
            meta: TurnMeta {
                finish_reason: Some("stop".to_owned()),
                usage: Some(Usage {
                    prompt_tokens: 100,
                    completion_tokens: 7,
                    cached_tokens: 64,
                }),
                started_ms: self.now_ms,
                first_byte_ms: Some(self.now_ms + 40),
                ..TurnMeta::whole(chain, self.now_ms + 900)
            },
            messages: NewMessage::all(&agent, &self.messages).unwrap(),
            continues: None,
            tools: Some(JsonText::new(
                r#"[{"type":"function","function":{"name":"exec"}}]"#,
            )),
            params: json!({"temperature": 0.7, "max_tokens": 128})
                .as_object()
                .unwrap()
                .clone(),
            agent,
            reply: Some(Message::assistant(answered)),
            served: served(),
            tokens: None,
        }
    }
}

pub(crate) fn served() -> Served {
    Served {
        api: None,
        upstream: "policy".to_owned(),
        model: "demo".to_owned(),
        adapter: Some("main-3".to_owned()),
        skills: vec![LessonRef {
            name: "answer-briefly".to_owned(),
            version: "9f2c".to_owned(),
        }],
        wishes: Some("77ab".to_owned()),
        wish_ids: vec!["5c1d".to_owned()],
        system_block: Some("## Active Skills\n\nBe brief.".repeat(60)),
        user_line: None,
        sender_lines: BTreeMap::new(),
        imported: None,
        rollout: None,
    }
}

pub(crate) fn verdict(score: Score) -> Verdict {
    Verdict {
        votes: vec![Vote::new(score, None)],
        ..Verdict::new(score, JudgedBy::Rules)
    }
}

/// Returns a turn without what the log adds, to compare it with the original.
pub(crate) fn as_put(turn: Turn) -> NewTurn {
    let request = turn.request;
    let tools = request.tools.as_deref().map(JsonText::of).transpose();
    NewTurn {
        messages: NewMessage::all(&turn.agent, &request.messages).unwrap(),
        tools: tools.unwrap(),
        agent: turn.agent,
        session: turn.session,
        meta: turn.meta,
        continues: None,
        params: request.params,
        reply: turn.reply,
        served: turn.served,
        tokens: turn.tokens,
    }
}

/// Random numbers below a bound, from a seed that the test prints.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The generator is SplitMix64 (Steele et al. 2014).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Returns all turns of a session, in order.
pub(crate) async fn session_turns(log: &TurnLog, agent: &str, session: &str) -> Vec<Turn> {
    let (agent, session) = (agent.parse().unwrap(), session.parse().unwrap());
    let turns = move |store: &Store| {
        let Some(number) = SessionRecord::number(store, &agent, &session)? else {
            return Ok(Vec::new());
        };
        let ids = read::turn_ids(store, number)?.into_iter();
        ids.filter_map(|id| read::turn(store, id).transpose())
            .collect()
    };
    log.read(turns).await.unwrap()
}
