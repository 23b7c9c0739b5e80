//! One run from its first session to its record.

use std::{collections::BTreeSet, time::Instant};

use anyhow::Result;
use metaclaw_reward::count_words;
use metaclaw_tests::client::Client;
use serde_json::Value;

use crate::{
    content::Wish,
    judge::Owners,
    measure::{Figures, mean, median},
    owner::{Owner, Questions},
    product::Product,
    quiet::Watch,
    record::{Measured, Record, Window},
    reference::References,
    rows::Run,
    score::{Said, Scorer},
    session::{Session, Talk},
};

/// Sessions of one point of a curve.
const WINDOW: usize = 10;

/// What every run needs.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    pub scorer: &'a Scorer<'a>,
    pub references: &'a References,
    /// Where the owners say what they wish.
    pub owners: &'a Owners,
}

/// A run under way.
#[derive(Debug)]
struct Play<'a> {
    stage: Stage<'a>,
    run: &'a Run,
    product: &'a Product,
    agent: String,
    client: Client,
    watch: Watch,
    made: BTreeSet<String>,
    sessions: Vec<Session>,
    measured: Vec<Measured>,
    /// How the product told of the agent at the end of each day, where days are told apart.
    nights: Vec<Value>,
    /// Turns that the log must come to have.
    n_turns: u64,
}

/// Plays a run with a product.
pub async fn play(stage: Stage<'_>, product: &Product, run: &Run) -> Result<Record> {
    let began = Instant::now();
    let agent = run.id.agent();
    let mut play = Play {
        stage,
        run,
        product,
        client: product.client(&agent),
        agent,
        watch: Watch::new(run.day > 1),
        made: BTreeSet::new(),
        sessions: Vec::new(),
        measured: Vec::new(),
        nights: Vec::new(),
        n_turns: 0,
    };
    play.hold_all().await?;
    let windows = play.windows().await?;
    Ok(Record {
        id: run.id.clone(),
        sessions: play.sessions,
        windows,
        measured: play.measured,
        made: play.made.into_iter().collect(),
        served: play.watch.served.into_iter().collect(),
        steps: play.watch.steps.into_values().collect(),
        nights: play.nights,
        n_stuck: play.watch.n_stuck,
        seconds: began.elapsed().as_secs_f64(),
    })
}

// === impl Play ===

impl Play<'_> {
    async fn hold_all(&mut self) -> Result<()> {
        let train = &self.stage.scorer.content.train;
        let mut questions = Questions::new(train, self.run.id.seed);
        let mut owner = Owner::default();
        for phase in &self.run.phases {
            owner.wishes(phase.wish.clone());
            self.stage.owners.set(&self.agent, &owner);
            for _ in 0..phase.sessions {
                let index = questions.next();
                let n = self.sessions.len() + 1;
                let name = format!("{}-{n}", self.agent);
                let talk = Talk::new((&self.client, self.stage.scorer.trainer), name);
                let draw = || questions.draw();
                let session = talk
                    .hold(&owner, (index, train[index].as_str()), draw)
                    .await?;
                self.n_turns += session.n_requests - session.failures.len() as u64;
                self.sessions.push(session);
                if n.is_multiple_of(self.run.day) {
                    let quiet = self
                        .watch
                        .until_quiet(self.product, &self.agent, self.n_turns);
                    let night = quiet.await?;
                    self.nights.extend(night.filter(|_| self.run.day > 1));
                }
                self.made
                    .extend(self.stage.scorer.trainer.made_by(&self.agent).await?);
                if n.is_multiple_of(WINDOW) {
                    self.tell();
                }
                if self.run.at.contains(&n) {
                    let measured = self.measure(&phase.wish).await?;
                    self.measured.push(measured);
                }
            }
        }
        Ok(())
    }

    /// How it goes, for whoever looks on.
    fn tell(&self) {
        let last = &self.sessions[self.sessions.len().saturating_sub(WINDOW)..];
        let n_right = last.iter().filter(|it| it.right).count();
        println!(
            "  {:<36} session {:>3}: {n_right}/{} right, {} adapters made, {} served",
            self.agent,
            self.sessions.len(),
            last.len(),
            self.made.len(),
            self.watch.served.len()
        );
    }

    /// Asks what serves the test questions and the probes.
    async fn measure(&self, wish: &Wish) -> Result<Measured> {
        let Stage {
            scorer, references, ..
        } = self.stage;
        let adapter = self.watch.adapter.clone();
        let (replies, probed) = match &adapter {
            Some(name) => (
                scorer.test(name, Some(wish), str::to_owned).await?,
                scorer.probe(Some(name)).await?,
            ),
            // The base model was asked the same, with the same seeds.
            None => (references.plain.clone(), references.probed),
        };
        let all = scorer.content.wishes.iter().map(|it| &**it);
        Ok(Measured {
            after: self.sessions.len(),
            adapter,
            wish: wish.name.clone(),
            figures: Figures::of(&replies, all),
            probed,
            replies,
        })
    }

    /// The first replies of the sessions, ten by ten.
    async fn windows(&self) -> Result<Vec<Window>> {
        let Stage { scorer, .. } = self.stage;
        let (mut windows, mut from) = (Vec::new(), 0);
        for phase in &self.run.phases {
            let until = from + phase.sessions;
            let mut rest = &self.sessions[from..until];
            while !rest.is_empty() {
                let (ten, others) = rest.split_at(rest.len().min(WINDOW));
                from += ten.len();
                rest = others;
                let said: Vec<Said<'_>> = ten.iter().map(|it| (it.question, &it.first)).collect();
                let nll = scorer
                    .nll(&scorer.content.train, &said, &phase.wish)
                    .await?;
                let words = ten.iter().map(|it| count_words(&it.first.text) as f64);
                windows.push(Window {
                    until: from,
                    n: ten.len(),
                    n_right: ten.iter().filter(|it| it.right).count(),
                    words: median(words),
                    nll: mean(nll),
                    wish: phase.wish.name.clone(),
                });
            }
        }
        Ok(windows)
    }
}
