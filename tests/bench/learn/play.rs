//! One run from its first session to its record.

use std::time::Instant;

use anyhow::Result;
use metaclaw_reward::count_words;
use metaclaw_tests::client::Client;

use crate::{
    content::Wish,
    judge::Owners,
    measure::{Figures, Scored, mean, median},
    owner::Owner,
    product::Product,
    progress::Progress,
    quiet::own,
    record::{Measured, Record, Served, Window},
    reference::References,
    rows::Run,
    score::{Said, Scorer},
    session::Talk,
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
    progress: Progress,
    /// Turns that the log must come to have.
    n_turns: u64,
}

/// Plays a run with a product, from where it is.
pub async fn play(stage: Stage<'_>, product: &Product, run: &Run) -> Result<Record> {
    let agent = run.id.agent();
    let n_questions = stage.scorer.content.train.len();
    let progress = Progress::of(&product.folder, run, n_questions)?;
    let known = own(&product.status().await?, &agent).cloned();
    let n_turns = known.and_then(|it| it["funnel"]["turns"].as_u64());
    let mut play = Play {
        stage,
        run,
        product,
        client: product.client(&agent),
        agent,
        progress,
        n_turns: n_turns.unwrap_or_default(),
    };
    play.hold_all().await?;
    let windows = play.windows().await?;
    let Progress {
        sessions,
        measured,
        adapters,
        watch,
        made,
        nights,
        seconds,
        ..
    } = play.progress;
    Ok(Record {
        id: run.id.clone(),
        sessions,
        windows,
        measured,
        adapters,
        made: made.into_iter().collect(),
        served: watch.served.into_iter().collect(),
        steps: watch.steps.into_values().collect(),
        nights,
        n_stuck: watch.n_stuck,
        seconds,
    })
}

// === impl Play ===

impl Play<'_> {
    async fn hold_all(&mut self) -> Result<()> {
        let mut owner = Owner::default();
        let mut until = 0;
        for phase in &self.run.phases {
            owner.wishes(phase.wish.clone());
            until += phase.sessions;
            self.stage.owners.set(&self.agent, &owner);
            while self.progress.sessions.len() < until {
                let began = Instant::now();
                self.hold_one(&owner, &phase.wish).await?;
                self.progress.seconds += began.elapsed().as_secs_f64();
                self.progress.keep(&self.product.folder)?;
            }
        }
        Ok(())
    }

    /// One session, and what follows it.
    async fn hold_one(&mut self, owner: &Owner, wish: &Wish) -> Result<()> {
        let train = &self.stage.scorer.content.train;
        let progress = &mut self.progress;
        let name = progress.next_session(&self.agent);
        let talk = Talk::new(&self.client, self.stage.scorer.trainer, name);
        let questions = &mut progress.questions;
        let index = questions.next();
        let draw = || questions.draw();
        let session = talk.hold(owner, index, train[index].as_str(), draw).await?;
        self.n_turns += session.n_requests - session.failures.len() as u64;
        progress.sessions.push(session);
        let n = progress.sessions.len();
        if n.is_multiple_of(self.run.day) {
            let watch = &mut progress.watch;
            let quiet = watch.until_quiet(self.product, &self.agent, self.n_turns);
            let night = quiet.await?;
            progress.nights.extend(night.filter(|_| self.run.day > 1));
        }
        let made = self.stage.scorer.trainer.made_by(&self.agent).await?;
        progress.made.extend(made);
        if n.is_multiple_of(WINDOW) {
            self.tell();
        }
        self.look_at_what_serves(wish).await?;
        if self.run.at.contains(&n) {
            let measured = self.measure(wish).await?;
            self.progress.measured.push(measured);
        }
        Ok(())
    }

    /// How it goes, for whoever looks on.
    fn tell(&self) {
        let Progress {
            sessions,
            made,
            watch,
            ..
        } = &self.progress;
        let last = &sessions[sessions.len().saturating_sub(WINDOW)..];
        let n_right = last.iter().filter(|it| it.right).count();
        println!(
            "  {:<36} session {:>3}: {n_right}/{} right, {} adapters made, {} served",
            self.agent,
            sessions.len(),
            last.len(),
            made.len(),
            watch.served.len()
        );
    }

    /// Asks an adapter the test questions when it has come to serve.
    async fn look_at_what_serves(&mut self, wish: &Wish) -> Result<()> {
        let Some(adapter) = self.progress.watch.adapter.clone() else {
            return Ok(());
        };
        if self.replies_of(&adapter, wish).is_some() {
            return Ok(());
        }
        let scorer = self.stage.scorer;
        let replies = scorer.test(&adapter, Some(wish), str::to_owned).await?;
        self.progress.adapters.push(Served {
            after: self.progress.sessions.len(),
            adapter,
            wish: wish.name.clone(),
            replies,
        });
        Ok(())
    }

    /// Its replies to the test questions, where it was asked under this wish: the seeds are the same each time.
    fn replies_of(&self, adapter: &str, wish: &Wish) -> Option<&[Scored]> {
        let is_it = |it: &&Served| it.adapter == adapter && it.wish == wish.name;
        let found = self.progress.adapters.iter().find(is_it)?;
        Some(&found.replies)
    }

    /// Asks what serves the test questions and the probes.
    async fn measure(&self, wish: &Wish) -> Result<Measured> {
        let Stage {
            scorer, references, ..
        } = self.stage;
        let adapter = self.progress.watch.adapter.clone();
        let (replies, probed) = match &adapter {
            Some(name) => {
                let replies = match self.replies_of(name, wish) {
                    Some(known) => known.to_vec(),
                    None => scorer.test(name, Some(wish), str::to_owned).await?,
                };
                (replies, scorer.probe(Some(name)).await?)
            }
            // The base model was asked the same, with the same seeds.
            None => (references.plain.clone(), references.probed),
        };
        let all = scorer.content.wishes.iter().map(|it| &**it);
        Ok(Measured {
            after: self.progress.sessions.len(),
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
            let mut rest = &self.progress.sessions[from..until];
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
