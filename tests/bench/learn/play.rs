//! One run from its first session to its record. After each session the record is stored in the product's folder, so that
//! a stopped bench can continue.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use metaclaw_tests::{bench::write_whole, client::Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    owner::{Answer, Judge, Owner, Questions, THANKS},
    product::{Product, Watch, own},
    rows::{Run, RunId, Wish},
    score::{Figures, Probed, References, Scored, Scorer},
    trainer::{MAX_TOKENS, Reply, TEMPERATURE},
};

/// Sessions of one line about a run under way.
const WINDOW: usize = 10;
/// A reply that takes longer was held.
const HELD_AFTER: Duration = Duration::from_secs(60);
/// How often a request that failed is sent again.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// The results of a run, as far as it has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub id: RunId,
    questions: Questions,
    pub sessions: Vec<Session>,
    /// The answers of the weights to the test questions, without the wish in the prompt.
    pub measured: Vec<Measured>,
    /// The same for every adapter when it began to serve.
    pub adapters: Vec<Served>,
    /// The adapters that were made.
    pub made: BTreeSet<String>,
    pub watch: Watch,
    /// If days are used, the product's status of the agent at the end of each day.
    pub nights: Vec<Value>,
    /// The time of all processes that added to it.
    pub seconds: f64,
    /// How often the run was continued: a session that was cut is repeated under another name.
    n_resumed: usize,
}

/// One session as it went.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Session {
    /// The question's place in the list.
    pub question: usize,
    /// The reply to it.
    pub first: Reply,
    /// Whether that was as the owner wishes.
    pub right: bool,
    /// Whether the reply after a complaint was; `None` without one.
    pub corrected: Option<bool>,
    /// The adapter that gave the first reply; `None` is the base model.
    pub adapter: Option<String>,
    /// The longest wait for a reply.
    pub longest_ms: u64,
    pub n_requests: u64,
    /// Of those, held for long.
    pub n_held: u64,
    pub failures: Vec<String>,
}

/// The results of what served after this many sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    pub after: usize,
    /// `None` is the base model.
    pub adapter: Option<String>,
    /// The wish at that time, the newest.
    pub wish: String,
    pub figures: Figures,
    pub probed: Probed,
    pub replies: Vec<Scored>,
    /// The replies through the product, which added the wish; none where it adds none or was not asked.
    #[serde(default)]
    pub with_text: Vec<Scored>,
}

/// The results of an adapter that served after this many sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Served {
    pub after: usize,
    pub adapter: String,
    /// The wish at that time, the newest.
    pub wish: String,
    /// The answers to the test questions.
    pub replies: Vec<Scored>,
}

/// What every run needs.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    pub scorer: &'a Scorer<'a>,
    pub references: &'a References,
    pub judge: &'a Judge,
}

/// A run under way.
struct Play<'a> {
    stage: Stage<'a>,
    run: &'a Run,
    product: &'a Product,
    agent: String,
    client: Client,
    record: Record,
    /// Turns that the log must come to have.
    n_turns: u64,
}

/// A session under way.
struct Talk<'a> {
    play: &'a Play<'a>,
    name: String,
    messages: Vec<Value>,
    session: Session,
}

/// Plays a run with a product, from where it is.
pub async fn play(stage: Stage<'_>, product: &Product, run: &Run) -> Result<Record> {
    let agent = run.id.agent();
    let status = product.status().await?;
    let n_turns = own(&status, &agent).and_then(|own| own["funnel"]["turns"].as_u64());
    let mut play = Play {
        stage,
        run,
        product,
        client: product.client(&agent),
        record: Record::open(&product.folder, run, stage.scorer.content.train.len())?,
        agent,
        n_turns: n_turns.unwrap_or_default(),
    };
    play.hold_all().await?;
    Ok(play.record)
}

/// How far a run came that is not at its end, from the folder of its product.
pub fn progress(folder: &Path, id: &RunId) -> String {
    let record = fs::read(Record::file(folder, id)).ok();
    let record = record.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
    let Some(record) = record else {
        return "no session is at its end".to_owned();
    };
    let last = record.sessions.iter().rev().take(WINDOW);
    format!(
        "{} of {} sessions in {:.1} min; {} of the last {} first replies were right; {} adapters made, {} served",
        record.sessions.len(),
        id.sessions,
        record.seconds / 60.0,
        last.clone().filter(|session| session.right).count(),
        last.len(),
        record.made.len(),
        record.watch.served.len(),
    )
}

// === impl Record ===

impl Record {
    /// Returns the state of a run with `n_questions` questions: from the folder of its product, else the beginning.
    fn open(folder: &Path, run: &Run, n_questions: usize) -> Result<Self> {
        let file = Self::file(folder, &run.id);
        let Ok(bytes) = fs::read(&file) else {
            return Ok(Self::new(&run.id, n_questions));
        };
        let shown = file.display();
        let mut kept: Self = serde_json::from_slice(&bytes).with_context(|| shown.to_string())?;
        ensure!(
            kept.id == run.id,
            "{shown} is of {}, which is not at its end and whose agent {} would have as well: --again removes it, --out \
             names another folder",
            kept.id,
            run.id
        );
        kept.n_resumed += 1;
        Ok(kept)
    }

    pub fn new(id: &RunId, n_questions: usize) -> Self {
        Self {
            id: id.clone(),
            questions: Questions::new(n_questions, id.seed),
            sessions: Vec::new(),
            measured: Vec::new(),
            adapters: Vec::new(),
            made: BTreeSet::new(),
            watch: Watch::default(),
            nights: Vec::new(),
            seconds: 0.0,
            n_resumed: 0,
        }
    }

    fn file(folder: &Path, id: &RunId) -> PathBuf {
        folder.join(format!("{}.json", id.agent()))
    }

    /// Returns the name of the next session, with its number from 1.
    fn next_session(&self, agent: &str) -> String {
        let n = self.sessions.len() + 1;
        match self.n_resumed {
            0 => format!("{agent}-{n}"),
            again => format!("{agent}-{n}-again{again}"),
        }
    }

    /// Its replies to the test questions, where it was asked under this wish: the seeds are the same each time.
    fn replies_of(&self, adapter: &str, wish: &Wish) -> Option<&[Scored]> {
        let is_it = |served: &&Served| served.adapter == adapter && served.wish == wish.name;
        let found = self.adapters.iter().find(is_it)?;
        Some(&found.replies)
    }
}

// === impl Play ===

impl Play<'_> {
    async fn hold_all(&mut self) -> Result<()> {
        let mut owner = Owner::default();
        let mut until = 0;
        for phase in &self.run.phases {
            owner.add(phase.wish.clone());
            until += phase.sessions;
            self.stage.judge.set(&self.agent, &owner);
            while self.record.sessions.len() < until {
                let began = Instant::now();
                self.hold_one(&owner, &phase.wish).await?;
                self.record.seconds += began.elapsed().as_secs_f64();
                let file = Record::file(&self.product.folder, &self.run.id);
                write_whole(&file, &self.record)?;
            }
        }
        Ok(())
    }

    /// One session, and what follows it.
    async fn hold_one(&mut self, owner: &Owner, wish: &Wish) -> Result<()> {
        let mut questions = self.record.questions.clone();
        let session = Talk::new(self).hold(owner, &mut questions).await?;
        let scorer = self.stage.scorer;
        self.n_turns += session.n_requests - session.failures.len() as u64;
        let record = &mut self.record;
        record.questions = questions;
        record.sessions.push(session);
        let n = record.sessions.len();
        if n.is_multiple_of(self.run.day) {
            let is_night = self.run.day > 1;
            let quiet = record
                .watch
                .until_quiet(self.product, &self.agent, self.n_turns, is_night);
            let night = quiet.await?;
            record.nights.extend(night.filter(|_| is_night));
        }
        record
            .made
            .extend(scorer.trainer.made_by(&self.agent).await?);
        if n.is_multiple_of(WINDOW) {
            let n_right = record.sessions[n - WINDOW..]
                .iter()
                .filter(|session| session.right)
                .count();
            let (agent, n_made, n_served) =
                (&self.agent, record.made.len(), record.watch.served.len());
            println!(
                "  {agent:<36} session {n:>3}: {n_right}/{WINDOW} right, {n_made} adapters made, {n_served} served"
            );
        }
        let adapter = record.watch.adapter.clone();
        if let Some(adapter) = adapter.filter(|adapter| record.replies_of(adapter, wish).is_none())
        {
            let ask =
                async |question: &str, seed| scorer.trainer.ask(&adapter, question, seed).await;
            let replies = scorer.test(Some(wish), ask).await?;
            record.adapters.push(Served {
                after: n,
                adapter,
                wish: wish.name.clone(),
                replies,
            });
        }
        if self.run.at.contains(&n) {
            let measured = self.measure(wish).await?;
            self.record.measured.push(measured);
        }
        Ok(())
    }

    /// Asks what serves the probes; it was asked the test questions when it began to serve.
    async fn measure(&self, wish: &Wish) -> Result<Measured> {
        let Stage {
            scorer, references, ..
        } = self.stage;
        let adapter = self.record.watch.adapter.clone();
        let (replies, probed) = match &adapter {
            Some(name) => {
                let replies = self.record.replies_of(name, wish).unwrap_or_default();
                (replies.to_vec(), scorer.probe(Some(name)).await?)
            }
            // The base model was asked the same, with the same seeds.
            None => (references.plain.clone(), references.probed),
        };
        let after = self.record.sessions.len();
        let with_text = if self.run.asks_product {
            let ask = async |question: &str, seed| {
                let session = format!("{}-test-{after}-{seed}", self.agent);
                let messages = [json!({"role": "user", "content": question})];
                let (reply, _) = self.ask(&session, false, &messages, seed).await?;
                Ok(reply)
            };
            scorer.test(Some(wish), ask).await?
        } else {
            Vec::new()
        };
        let all = scorer.content.wishes.iter().map(|wish| &**wish);
        Ok(Measured {
            after,
            adapter,
            wish: wish.name.clone(),
            figures: Figures::of(&replies, all),
            probed,
            replies,
            with_text,
        })
    }

    /// Sends a conversation of a session to the product; returns the reply and the adapter that gave it. Without
    /// `learn` it is off the record.
    async fn ask(
        &self,
        session: &str,
        learn: bool,
        messages: &[Value],
        seed: u64,
    ) -> Result<(Reply, Option<String>)> {
        let body = json!({
            "model": "default", "messages": messages, "seed": seed,
            "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE,
        });
        let request = self.client.post("/v1/chat/completions", &body);
        let mut request = request.header("x-session-id", session);
        if !learn {
            request = request.header("x-metaclaw-learn", "no");
        }
        let response = request.send().await?;
        let status = response.status();
        let adapter = response.headers().get("x-metaclaw-adapter");
        let adapter = adapter
            .and_then(|name| name.to_str().ok())
            .map(str::to_owned);
        let text = response.text().await?;
        ensure!(status.is_success(), "{status}: {text}");
        let completion = serde_json::from_str(&text)?;
        let reply = self.stage.scorer.trainer.reply(&completion).await?;
        Ok((reply, adapter))
    }
}

// === impl Talk ===

impl<'a> Talk<'a> {
    fn new(play: &'a Play<'a>) -> Self {
        Self {
            name: play.record.next_session(&play.agent),
            play,
            messages: Vec::new(),
            session: Session::default(),
        }
    }

    /// Asks the next question, and answers to the reply.
    async fn hold(mut self, owner: &Owner, questions: &mut Questions) -> Result<Session> {
        self.session.question = questions.next();
        let question = &self.play.stage.scorer.content.train[self.session.question];
        let (first, adapter) = self.say(question, questions.draw()).await?;
        self.session.adapter = adapter;
        let mut answer = owner.answer(question, &first.text, false);
        self.session.right = answer == Answer::Thanks;
        self.session.first = first;
        if let Answer::Complaint(complaint) = answer {
            let (second, _) = self.say(&complaint, questions.draw()).await?;
            answer = owner.answer(question, &second.text, true);
            self.session.corrected = Some(answer == Answer::Thanks);
        }
        if answer == Answer::Thanks {
            self.say(THANKS, questions.draw()).await?;
        }
        Ok(self.session)
    }

    /// Says one thing; returns the reply and the adapter that gave it.
    async fn say(&mut self, text: &str, seed: u64) -> Result<(Reply, Option<String>)> {
        self.messages.push(json!({"role": "user", "content": text}));
        for _ in 0..TRIES {
            let sent = Instant::now();
            self.session.n_requests += 1;
            let asked = self.play.ask(&self.name, true, &self.messages, seed);
            match asked.await {
                Ok((reply, adapter)) => {
                    let took = sent.elapsed();
                    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                    self.session.longest_ms = self.session.longest_ms.max(ms);
                    self.session.n_held += u64::from(took > HELD_AFTER);
                    self.messages
                        .push(json!({"role": "assistant", "content": reply.text}));
                    return Ok((reply, adapter));
                }
                Err(error) => self.session.failures.push(format!("{error:#}")),
            }
            tokio::time::sleep(PAUSE).await;
        }
        bail!(
            "{}: gave up on {text:?}: {:?}",
            self.name,
            self.session.failures
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Content, Selection, select};

    #[test]
    fn what_was_kept_goes_on_and_is_of_one_run() {
        let folder = tempfile::tempdir().unwrap();
        let content = Content::read(60, None).unwrap();
        let row = |sessions| {
            let selection = Selection {
                only: vec!["default".to_owned()],
                sessions,
                ..Selection::default()
            };
            select(&selection, &content).unwrap().remove(0)
        };
        let run = &row(None).runs[0];
        let mut begun = Record::open(folder.path(), run, 60).unwrap();
        assert_eq!(begun.next_session("a"), "a-1");
        let first = begun.questions.next();
        write_whole(&Record::file(folder.path(), &run.id), &begun).unwrap();
        let mut resumed = Record::open(folder.path(), run, 60).unwrap();
        assert_eq!(resumed.next_session("a"), "a-1-again1");
        let mut all = Questions::new(60, run.id.seed);
        let asked = [first, resumed.questions.next()];
        assert_eq!(
            asked,
            [all.next(), all.next()],
            "the questions go on where they were"
        );
        let refused = Record::open(folder.path(), &row(Some(7)).runs[0], 60).unwrap_err();
        assert!(refused.to_string().contains("not at its end"), "{refused}");
    }
}
