//! All runs that are not there yet, a few at a time.

use std::{fmt, fs, path::Path};

use anyhow::Result;
use futures_util::future::join_all;
use metaclaw_tests::external;
use tokio::sync::Semaphore;

use crate::{
    content::{Content, Wish},
    judge::Judge,
    play::{Stage, play},
    product::{HOMES, NotRun, Product},
    record::Records,
    reference::References,
    rows::{Phase, Row, Run},
    score::Scorer,
    trainer::Trainer,
};

/// A row, or a run of it, of which there is no record.
#[derive(Debug)]
pub enum Unsound {
    /// This build does not have what it is about.
    NotRun {
        row: String,
        why: String,
    },
    Failed {
        run: String,
        why: String,
    },
}

/// The runs of a row that share a product.
struct Group<'a> {
    row: &'a Row,
    /// As its files are called.
    name: String,
    runs: Vec<&'a Run>,
}

/// What every group needs.
#[derive(Clone, Copy)]
struct Place<'a> {
    out: &'a Path,
    trainer: &'a Trainer,
    stage: Stage<'a>,
    records: &'a Records,
    judge: &'a Judge,
    slots: &'a Semaphore,
}

/// Runs what is not there yet, and tells what could not be.
pub async fn run_all(
    out: &Path,
    rows: &[Row],
    content: &Content,
    judge: &Judge,
    at_once: usize,
) -> Result<Vec<Unsound>> {
    let records = Records::new(out);
    let there = records.read();
    let is_there = |run: &&Run| there.iter().any(|record| record.id == run.id);
    let mut groups: Vec<Group<'_>> = rows
        .iter()
        .flat_map(|row| groups(row, judge.knows_agents()))
        .collect();
    for group in &mut groups {
        group.runs.retain(|run| !is_there(run));
    }
    groups.retain(|group| !group.runs.is_empty());
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    let (bin_dir, model) = (external::bin_dir(), external::model());
    let folder = out.join("trainer");
    let unfinished = fs::read_dir(out.join(HOMES));
    if !unfinished.is_ok_and(|mut homes| homes.next().is_some()) {
        // What is there is of runs that are at their ends.
        let _ = fs::remove_dir_all(&folder);
    }
    let trainer = Trainer::start(&bin_dir.join("metaclaw-trainer"), &model, &folder).await?;
    let scorer = Scorer::new(&trainer, content);
    let references =
        References::measure(&scorer, &wishes(rows), &out.join("references.json")).await?;
    let slots = Semaphore::new(at_once);
    let place = Place {
        out,
        trainer: &trainer,
        stage: Stage {
            scorer: &scorer,
            references: &references,
            owners: judge.owners(),
        },
        records: &records,
        judge,
        slots: &slots,
    };
    let done = join_all(groups.iter().map(|group| group.run(place))).await;
    let done = done.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(done.into_iter().flatten().collect())
}

/// Every wish that a row is about, once.
fn wishes(rows: &[Row]) -> Vec<&Wish> {
    let runs = rows.iter().flat_map(|row| &row.runs);
    let phases = runs.flat_map(|run| &run.phases);
    let mut wishes: Vec<&Wish> = phases.map(|phase| &*phase.wish).collect();
    wishes.sort_by(|a, b| a.name.cmp(&b.name));
    wishes.dedup_by(|a, b| a.name == b.name);
    wishes
}

/// All runs of a row where the judge knows agents apart, else those of each wish.
fn groups(row: &Row, together: bool) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for run in &row.runs {
        let same = |group: &&mut Group<'_>| {
            together || group.runs.iter().all(|it| it.id.wish == run.id.wish)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.runs.push(run),
            None => groups.push(Group {
                row,
                name: if together {
                    row.name.clone()
                } else {
                    format!("{}-{}", row.name, run.id.wish)
                },
                runs: vec![run],
            }),
        }
    }
    groups
}

// === impl Group ===

impl Group<'_> {
    /// Runs it with a product of its own.
    async fn run(&self, place: Place<'_>) -> Result<Vec<Unsound>> {
        let bin_dir = external::bin_dir();
        let judge = place.judge.config(self.phases());
        let starting = place.slots.acquire().await?;
        let (out, trainer) = (place.out, place.trainer);
        let started = Product::start(&bin_dir, out, &self.name, trainer, self.row, &judge);
        let started = started.await?;
        drop(starting);
        let product = match started {
            Ok(product) => product,
            Err(NotRun(why)) => {
                println!("{} is not run: {why}", self.row.name);
                let row = self.row.name.clone();
                return Ok(vec![Unsound::NotRun { row, why }]);
            }
        };
        println!(
            "{}: {}; {} runs",
            self.row.name,
            self.row.what,
            self.runs.len()
        );
        let runs = self.runs.iter().map(|run| run_one(place, &product, run));
        let done = join_all(runs).await;
        let done = done.into_iter().collect::<Result<Vec<_>>>()?;
        let broken_off: Vec<Unsound> = done.into_iter().flatten().collect();
        let has_more = !broken_off.is_empty();
        product.stop(place.out, &self.name, has_more).await?;
        Ok(broken_off)
    }

    fn phases(&self) -> &[Phase] {
        self.runs.first().map_or(&[], |run| &run.phases)
    }
}

/// One run, when there is room for it.
async fn run_one(place: Place<'_>, product: &Product, run: &Run) -> Result<Option<Unsound>> {
    let _slot = place.slots.acquire().await?;
    match play(place.stage, product, run).await {
        Ok(record) => {
            place.records.append(&record)?;
            println!("{} is done after {:.1} min", run.id, record.seconds / 60.0);
            Ok(None)
        }
        // Another run may do; this one is told of, and goes on the next time.
        Err(error) => {
            println!("{} broke off: {error:#}", run.id);
            Ok(Some(Unsound::Failed {
                run: run.id.to_string(),
                why: format!("{error:#}"),
            }))
        }
    }
}

// === impl Unsound ===

impl Unsound {
    /// Whether it should have worked.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRun { row, why } => write!(f, "{row:<14} not run: {why}"),
            Self::Failed { run, why } => write!(f, "{run} broke off: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Selection, select};

    #[test]
    fn runs_of_one_wish_share_a_product() {
        let content = Content::read(60).unwrap();
        let only = Selection {
            only: vec!["default".to_owned()],
            ..Selection::default()
        };
        let rows = select(&only, &content).unwrap();
        assert_eq!(groups(&rows[0], true).len(), 1);
        let groups = groups(&rows[0], false);
        let sizes: Vec<(&str, usize)> = groups
            .iter()
            .map(|it| (it.runs[0].id.wish.as_str(), it.runs.len()))
            .collect();
        assert_eq!(
            sizes,
            [("hello", 1), ("numbered", 1), ("simple", 1), ("terse", 5)]
        );
        let names: Vec<&str> = wishes(&rows).iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["hello", "numbered", "simple", "terse"]);
    }
}
