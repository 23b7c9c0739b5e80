//! `cargo xtask bench size` compares the disk use of the turn log with storing each request completely.
//!
//! It writes 10,000 turns in 200 sessions of 50 with the log itself, in the form in which the gateway passes them: 37
//! KB of system text and tools that all share, 600 bytes of new English per turn, and each request repeats its history.
//! The size on disk is measured after a restart. The text is made up, but its words have the frequencies of English,
//! and compress no better.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use metaclaw_chat::{AgentId, Message, TurnId, Usage};
use metaclaw_tests::questions::split_mix;
use metaclaw_turns::{
    JsonText, NewMessage, NewTurn, Served, TurnFilter, TurnLog, TurnMeta, TurnsConfig,
};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

/// The size of the system text and the tools that all requests share, in bytes.
const SYSTEM: usize = 27_000;
const TOOLS: usize = 10_000;
/// The size of each turn's new text: the owner's message and the model's answer.
const SAID: usize = 200;
const ANSWERED: usize = 400;
/// The promises: a percentage of the requests' size, a time for a list, and a time for any turn of a session that is
/// [`LONG`].
const MAX_PERCENT: f64 = 3.0;
const MAX_LIST: Duration = Duration::from_millis(50);
const MAX_READ: Duration = Duration::from_millis(5);
/// The number of turns of a session that lasts for weeks. Its client compacts the conversation before a request is
/// longer than models accept: this many bytes, about 128,000 tokens.
const LONG: usize = 2_000;
const CONTEXT: usize = 512 << 10;
/// The number of messages that a compaction keeps, besides the system text.
const RECENT: usize = 4;
/// The number of sessions that are in use at the same time.
const AT_ONCE: usize = 64;

#[derive(Debug, Parser)]
struct Flags {
    /// Conversations.
    #[arg(long, default_value_t = 200)]
    sessions: usize,
    /// Turns of each.
    #[arg(long, default_value_t = 50)]
    turns: usize,
    /// Where the log is made, and removed again; a temporary folder by default.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Where the figures go.
    #[arg(long)]
    out: PathBuf,
}

/// The text that all sessions share.
struct Shared {
    system: String,
    tools: Value,
    tools_text: JsonText,
    params: Map<String, Value>,
}

/// A client's conversation as it grows.
struct Talk {
    agent: AgentId,
    session: String,
    messages: Vec<Message>,
    now_ms: u64,
    dice: u64,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    let folder = match &flags.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let figures = measure(&flags, folder.path()).await?;
    let text = serde_json::to_string_pretty(&figures)?;
    println!("{text}");
    if let Some(parent) = flags.out.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&flags.out, text + "\n")
        .with_context(|| format!("cannot write {}", flags.out.display()))?;
    let is_kept = figures["is_kept"] == true;
    Ok(if is_kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn measure(flags: &Flags, dir: &Path) -> Result<Value> {
    let log = TurnLog::open(dir, &TurnsConfig::default())?;
    let began = Instant::now();
    let n_whole = write(flags, &log).await?;
    let appending = began.elapsed();
    let before = list(&log, flags).await?;
    log.close().await;

    let began = Instant::now();
    let log = TurnLog::open(dir, &TurnsConfig::default())?;
    let opening = began.elapsed();
    let after = list(&log, flags).await?;
    let once_more = list(&log, flags).await?;
    log.close().await;
    let n_disk = on_disk(dir)?;
    let lengthy = read_long(dir).await?;

    let percent = n_disk as f64 * 100.0 / n_whole as f64;
    let ms = |it: Duration| (it.as_secs_f64() * 1e5).round() / 100.0;
    Ok(json!({
        "sessions": flags.sessions,
        "turns_of_each": flags.turns,
        "requests_whole_bytes": n_whole,
        "on_disk_bytes": n_disk,
        "percent": percent,
        "max_percent": MAX_PERCENT,
        "list_one_session_ms": {
            "before_restart": ms(before), "after_restart": ms(after), "once_more": ms(once_more),
        },
        "max_list_ms": ms(MAX_LIST),
        "read_one_of_2000_turns_ms": {
            "median": ms(lengthy.median), "slowest": ms(lengthy.slowest),
            "slowest_once_more": ms(lengthy.again), "its_bytes": lengthy.n_bytes,
            "last_without_summaries": ms(lengthy.whole), "its_bytes_without": lengthy.n_whole,
        },
        "max_read_ms": ms(MAX_READ),
        "append_seconds": appending.as_secs_f64(),
        "open_ms": ms(opening),
        "is_kept": percent <= MAX_PERCENT && before.max(after) < MAX_LIST && lengthy.slowest <= MAX_READ,
    }))
}

/// Writes all turns, many sessions at a time as in practice; returns the bytes of all requests.
async fn write(flags: &Flags, log: &TurnLog) -> Result<u64> {
    let mut dice = 1;
    let tools = json!([{"type": "function", "function": {
        "name": "exec", "description": english(&mut dice, TOOLS)}}]);
    let params = json!({"model": "gpt-5", "stream": true, "stream_options": {"include_usage": true},
        "max_completion_tokens": 4096});
    let shared = std::sync::Arc::new(Shared {
        system: english(&mut dice, SYSTEM),
        tools_text: JsonText::of(&tools)?,
        tools,
        params: params.as_object().cloned().unwrap_or_default(),
    });
    let mut running = JoinSet::new();
    let mut n_whole = 0;
    for session in 0..flags.sessions {
        while running.len() >= AT_ONCE {
            n_whole += running.join_next().await.context("there are some")???;
        }
        let (log, shared, turns) = (log.clone(), shared.clone(), flags.turns);
        running.spawn(async move { Talk::new(session, &shared)?.run(turns, &log, &shared).await });
    }
    while let Some(done) = running.join_next().await {
        n_whole += done??;
    }
    Ok(n_whole)
}

/// The time to read turns of a long session.
#[derive(Default)]
struct Long {
    median: Duration,
    slowest: Duration,
    /// The same turn, read again, because the first reading may have waited for another process.
    again: Duration,
    n_bytes: usize,
    /// The last turn of a session whose client never compacts.
    whole: Duration,
    n_whole: usize,
}

/// Writes two long sessions, with and without compaction, and reads their turns after a restart.
async fn read_long(dir: &Path) -> Result<Long> {
    let mut dice = 7;
    let shared = Shared {
        system: english(&mut dice, SYSTEM),
        tools: Value::Null,
        tools_text: JsonText::of(&english(&mut dice, TOOLS))?,
        params: Map::new(),
    };
    let log = TurnLog::open(dir, &TurnsConfig::default())?;
    let mut numbers = Vec::new();
    for (session, context) in [(1_000_000, CONTEXT), (1_000_001, usize::MAX)] {
        let mut talk = Talk::new(session, &shared)?;
        let (mut n_bytes, mut last) = (0, None);
        for n in 0..LONG {
            if n_bytes > context {
                let kept = talk.messages.split_off(talk.messages.len() - RECENT);
                talk.messages.truncate(1);
                talk.messages.extend(kept);
                n_bytes = 0;
            }
            talk.messages
                .push(Message::user(english(&mut talk.dice, SAID)));
            let answer = Message::assistant(english(&mut talk.dice, ANSWERED));
            last = Some(log.append(talk.turn(n, &answer, &shared)?).await?);
            talk.messages.push(answer);
            n_bytes += SAID + ANSWERED;
        }
        numbers.push(last.context("there are turns")?.session);
    }
    log.close().await;
    let log = TurnLog::open(dir, &TurnsConfig::default())?;
    let mut times = Vec::new();
    for seq in 0..u32::try_from(LONG)? {
        let (session, seq) = (numbers[0], seq);
        times.push((read(&log, TurnId { session, seq }).await?.0, seq));
    }
    times.sort_unstable();
    let (median, (slowest, seq)) = (times[LONG / 2].0, times[LONG - 1]);
    let session = numbers[0];
    let (again, n_bytes) = read(&log, TurnId { session, seq }).await?;
    let (session, seq) = (numbers[1], u32::try_from(LONG - 1)?);
    let (whole, n_whole) = read(&log, TurnId { session, seq }).await?;
    log.close().await;
    Ok(Long {
        median,
        slowest,
        again,
        n_bytes,
        whole,
        n_whole,
    })
}

/// Returns the time to read a turn, and the bytes of its request.
async fn read(log: &TurnLog, id: TurnId) -> Result<(Duration, usize)> {
    let began = Instant::now();
    let turn = log.get(id).await?.context("the turn was written")?;
    let took = began.elapsed();
    Ok((took, serde_json::to_vec(&turn.request)?.len()))
}

/// Returns the time to list the turns of a session in the middle.
async fn list(log: &TurnLog, flags: &Flags) -> Result<Duration> {
    let filter = TurnFilter {
        agent: Some(AgentId::default_agent()),
        session: Some(name(flags.sessions / 2).parse()?),
        limit: flags.turns,
        ..TurnFilter::default()
    };
    let began = Instant::now();
    let turns = log.list(filter).await?;
    let took = began.elapsed();
    ensure!(
        turns.len() == flags.turns,
        "the session has {} turns, {} were written",
        turns.len(),
        flags.turns
    );
    Ok(took)
}

fn name(session: usize) -> String {
    format!("agent:main:explicit:{session}")
}

// === impl Talk ===

impl Talk {
    fn new(session: usize, shared: &Shared) -> Result<Self> {
        Ok(Self {
            agent: AgentId::default_agent(),
            session: name(session),
            messages: vec![Message::system(shared.system.as_str())],
            now_ms: 1_760_000_000_000,
            dice: 1_000 + u64::try_from(session)?,
        })
    }

    /// Writes the whole conversation; returns the bytes of its requests.
    async fn run(mut self, turns: usize, log: &TurnLog, shared: &Shared) -> Result<u64> {
        let mut n_whole = 0;
        for n in 0..turns {
            let said = english(&mut self.dice, SAID);
            self.messages.push(Message::user(said));
            let answer = Message::assistant(english(&mut self.dice, ANSWERED));
            n_whole += u64::try_from(self.body(shared)?.len())?;
            log.append(self.turn(n, &answer, shared)?).await?;
            self.messages.push(answer);
            self.now_ms += 30_000;
        }
        Ok(n_whole)
    }

    /// Returns the request as it is sent.
    fn body(&self, shared: &Shared) -> Result<Vec<u8>> {
        let mut body = shared.params.clone();
        body.insert("messages".to_owned(), serde_json::to_value(&self.messages)?);
        body.insert("tools".to_owned(), shared.tools.clone());
        Ok(serde_json::to_vec(&body)?)
    }

    /// Returns the turn as capture passes it: the texts of its request as they came.
    fn turn(&mut self, n: usize, answer: &Message, shared: &Shared) -> Result<NewTurn> {
        let messages = NewMessage::all(&self.agent, &self.messages)?;
        let id = format!("chatcmpl-{:016x}{n:08}", split_mix(&mut self.dice));
        Ok(NewTurn {
            agent: self.agent.clone(),
            session: self.session.parse()?,
            meta: TurnMeta {
                reply_id: Some(id),
                finish_reason: Some("stop".to_owned()),
                usage: Some(Usage {
                    prompt_tokens: 9_000 + 150 * n as u64,
                    completion_tokens: 100,
                    cached_tokens: 9_000,
                }),
                started_ms: self.now_ms,
                first_byte_ms: Some(self.now_ms + 800),
                ..TurnMeta::whole(
                    messages.last().context("there are messages")?.chain,
                    self.now_ms + 4_000,
                )
            },
            messages,
            continues: None,
            tools: Some(shared.tools_text.clone()),
            params: shared.params.clone(),
            reply: Some(answer.clone()),
            served: Served {
                upstream: "llm".to_owned(),
                model: "gpt-5".to_owned(),
                system_block: Some("## What the owner wants\n\nAnswer in one sentence.".to_owned()),
                ..Served::default()
            },
            tokens: None,
        })
    }
}

/// Chooses words with the frequencies of English: a few are frequent, most are rare (Zipf's law, 4,000 of them).
fn english(dice: &mut u64, n_bytes: usize) -> String {
    const WORDS: u64 = 4_000;
    let mut text = String::new();
    while text.len() < n_bytes {
        let rank = WORDS.pow(2) / (1 + split_mix(dice) % WORDS.pow(2));
        let mut letters = rank.min(WORDS) * 7 + split_mix(dice) % 8;
        let length = 2 + split_mix(&mut letters) % 7;
        for _ in 0..length {
            let letter = u8::try_from(split_mix(&mut letters) % 18).expect("below 18");
            text.push(char::from(b'a' + letter));
        }
        text.push(' ');
    }
    text.truncate(n_bytes);
    text
}

fn on_disk(folder: &Path) -> Result<u64> {
    let mut n_bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        n_bytes += if about.is_dir() {
            on_disk(&entry.path())?
        } else {
            about.len()
        };
    }
    Ok(n_bytes)
}
