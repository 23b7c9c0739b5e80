//! `cargo xtask bench learn` measures whether MetaClaw learns what the user likes, and what that costs.
//!
//! Scripted owners talk over HTTP to the product, which trains the demo model meanwhile. One training server serves all
//! runs, 8 of them at once, each with an agent of its own; a row of the table is a configuration of the product
//! (rows.yaml). Outside the chat, the bench asks only the training server: test questions, probes, likelihoods. It can
//! be continued: each run is a line of runs.jsonl; a finished run is not repeated, and a stopped one continues with its
//! next session. `cargo xtask bench wishes` is the same with other content: wishes that a script checks, and the arms
//! (../wishes).

mod arms;
mod checker;
mod owner;
mod play;
mod product;
mod report;
mod rows;
mod score;
mod trainer;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use futures_util::future::try_join_all;
use metaclaw_tests::{
    bench::{append, build, open_folder, records},
    external,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
};

use self::{
    checker::Checker,
    owner::Judge,
    play::{Record, Stage, play, progress},
    product::{HOMES, Product},
    rows::{Content, FILES, Row, Run, RunId, Selection, Wish, select},
    score::{References, Scorer},
    trainer::Trainer,
};

/// Test questions, and with `--quick`.
const N_TEST: usize = 60;
const N_TEST_QUICK: usize = 20;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench learn")]
struct Flags {
    /// Where records, the table, the picture and replies go; runs already there are not run again.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    selection: Selection,
    /// So many test questions, instead of 60, or 20 with --quick and --data.
    #[arg(long)]
    test_questions: Option<usize>,
    /// The model: a GGUF file, or a folder in Hugging Face's form; without it, the demo model.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Plays the arms of tests/bench/wishes, with wishes that the checkers of this checkout of
    /// instruction_following_eval decide.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// The Python that runs the checkers.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// With --data: runs nothing, and only measures the base model with each wish.
    #[arg(long, requires = "data")]
    told: bool,
    /// Runs at once: agents of one training server.
    #[arg(long, default_value_t = 8)]
    at_once: usize,
    /// Ends after so many minutes, with what is finished by then; the same command goes on.
    #[arg(long)]
    minutes: Option<f64>,
    /// Removes what is in --out first.
    #[arg(long)]
    again: bool,
    /// Runs nothing: shows what is in --out.
    #[arg(long)]
    show: bool,
}

/// A row, or a run of it, of which there is no record.
struct Missing {
    what: String,
    /// Whether this build does not have what the row is about, or `--minutes` were over. Else the run broke off.
    is_excused: bool,
}

/// What every row needs.
#[derive(Clone, Copy)]
struct Place<'a> {
    out: &'a Path,
    stage: Stage<'a>,
    slots: &'a Semaphore,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    let usual = if flags.selection.quick || flags.data.is_some() {
        N_TEST_QUICK
    } else {
        N_TEST
    };
    let checker = flags
        .data
        .as_deref()
        .map(|data| Checker::start(&flags.python, data));
    let content = Content::read(flags.test_questions.unwrap_or(usual), checker.transpose()?)?;
    let rows = select(&flags.selection, &content)?;
    let mut missing = Vec::new();
    if !flags.show {
        let model = flags.model.clone().unwrap_or_else(external::model);
        let built = |name| build(&external::bin_dir(), name);
        let files = Sha256::digest(FILES.concat());
        let settings = json!({"proxy": built("metaclaw")?, "engine": built("metaclaw-trainer-engine")?,
            "files": files[..8], "n_test": content.test.len(), "model": model});
        open_folder(&flags.out, &settings, flags.again)?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let out = flags.out.canonicalize()?;
        let ids: Vec<RunId> = rows.iter().flat_map(Row::ids).collect();
        missing = tokio::select! {
            done = run_all(&out, rows, &content, &flags, model) => done?,
            () = over(flags.minutes) => unfinished(&out, &ids),
            // Its programs end with it, and its results stay.
            _ = interrupt.recv() => bail!("stopped: the same command goes on"),
            _ = terminate.recv() => bail!("stopped: the same command goes on"),
        };
    }
    report(&flags.out, &flags.selection, &content, &missing)?;
    let Selection {
        only,
        wishes,
        sessions,
        seeds,
        ..
    } = &flags.selection;
    let is_short = flags.minutes.is_some() || sessions.is_some() || seeds.is_some();
    let is_part = flags.test_questions.is_some() || is_short;
    let is_whole = !is_part && only.is_empty() && wishes.is_empty();
    let is_sound = missing
        .iter()
        .all(|missing| missing.is_excused && !is_whole);
    Ok(ExitCode::from(u8::from(!is_sound)))
}

/// Waits for the end of the time that is given; for ever without one.
async fn over(minutes: Option<f64>) {
    match minutes {
        Some(minutes) => tokio::time::sleep(Duration::from_secs_f64(60.0 * minutes)).await,
        None => std::future::pending().await,
    }
}

/// How far the runs came that have no result.
fn unfinished(out: &Path, ids: &[RunId]) -> Vec<Missing> {
    let there: Vec<Record> = records(out);
    let mut rest = ids.to_vec();
    rest.retain(|id| there.iter().all(|record| record.id != *id));
    let missing = rest.iter().map(|id| Missing {
        what: format!("{id}: {}", progress(&out.join(HOMES).join(&id.row), id)),
        is_excused: true,
    });
    missing.collect()
}

/// Prints and writes all results in the folder. The picture has only what is selected.
fn report(out: &Path, selection: &Selection, content: &Content, missing: &[Missing]) -> Result<()> {
    let mut records: Vec<Record> = records(out);
    records.sort_by(|a, b| a.id.cmp(&b.id));
    let references = References::read(&out.join("references.json"))?;
    let replies = report::replies(&records, &references);
    let is_in = |names: &[String], name| names.is_empty() || names.contains(name);
    let drawn = records.iter().filter(|record| {
        is_in(&selection.only, &record.id.row) && is_in(&selection.wishes, &record.id.wish)
    });
    let picture = report::picture(&drawn.collect::<Vec<_>>(), &references, content)?;
    let mut text = if content.is_checked {
        let kinds = arms::kinds(&references, content);
        kinds + "\n" + &arms::table(&records, &references, content)
    } else {
        report::table(&records, &references, content)
    };
    text += &report::served(&records, &references, content);
    text.extend(missing.iter().map(|missing| format!("{}\n", missing.what)));
    println!("{replies}\n{text}");
    println!(
        "replies.txt, curves.svg and runs.jsonl are in {}",
        out.display()
    );
    for (name, text) in [
        ("replies.txt", replies),
        ("curves.svg", picture),
        ("table.txt", text),
    ] {
        fs::write(out.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}

/// Runs what is not there yet, a few at a time, and returns what could not be run.
async fn run_all(
    out: &Path,
    mut rows: Vec<Row>,
    content: &Content,
    flags: &Flags,
    model: PathBuf,
) -> Result<Vec<Missing>> {
    let there: Vec<Record> = records(out);
    for row in &mut rows {
        row.runs
            .retain(|run| there.iter().all(|record| record.id != run.id));
    }
    rows.retain(|row| !row.runs.is_empty());
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let folder = out.join("trainer");
    let unfinished = fs::read_dir(out.join(HOMES));
    if !unfinished.is_ok_and(|mut homes| homes.next().is_some()) {
        // What is there is of runs that are at their ends.
        let _ = fs::remove_dir_all(&folder);
    }
    fs::create_dir_all(&folder)?;
    let trainer = Trainer::start(&folder, model).await;
    let scorer = Scorer::new(&trainer, content);
    let references =
        References::measure(&scorer, &wishes(&rows), &out.join("references.json")).await?;
    if flags.told {
        return Ok(Vec::new());
    }
    if content.is_checked && flags.selection.wishes.is_empty() {
        for row in &mut rows {
            row.runs.retain(|run| {
                let mut wishes = run.phases.iter().map(|phase| &phase.wish);
                wishes.all(|wish| arms::is_fit(wish, &references, content))
            });
        }
        rows.retain(|row| !row.runs.is_empty());
    }
    let stage = Stage {
        scorer: &scorer,
        references: &references,
        judge: &Judge::start(),
    };
    let slots = &Semaphore::new(flags.at_once.max(1));
    let place = Place { out, stage, slots };
    let done = try_join_all(rows.iter().map(|row| run_row(place, row))).await?;
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

/// Runs a row with a product of its own.
async fn run_row(place: Place<'_>, row: &Row) -> Result<Vec<Missing>> {
    let starting = place.slots.acquire().await?;
    let (trainer, judge) = (place.stage.scorer.trainer, &place.stage.judge.url);
    let started = Product::start(place.out, trainer, row, judge).await?;
    drop(starting);
    let product = match started {
        Ok(product) => product,
        Err(why) => {
            let what = format!("{:<14} not run: {why}", row.name);
            println!("{what}");
            return Ok(vec![Missing {
                what,
                is_excused: true,
            }]);
        }
    };
    println!("{}: {}; {} runs", row.name, row.what, row.runs.len());
    let done = try_join_all(row.runs.iter().map(|run| run_one(place, &product, run))).await?;
    let broken_off: Vec<Missing> = done.into_iter().flatten().collect();
    product
        .stop(place.out, &row.name, !broken_off.is_empty())
        .await?;
    Ok(broken_off)
}

/// One run, when there is room for it.
async fn run_one(place: Place<'_>, product: &Product, run: &Run) -> Result<Option<Missing>> {
    let _slot = place.slots.acquire().await?;
    match play(place.stage, product, run).await {
        Ok(record) => {
            append(place.out, &record)?;
            println!("{} is done after {:.1} min", run.id, record.seconds / 60.0);
            Ok(None)
        }
        // Another run may do; this one is told of, and goes on the next time.
        Err(error) => {
            let what = format!("{} broke off: {error:#}", run.id);
            println!("{what}");
            Ok(Some(Missing {
                what,
                is_excused: false,
            }))
        }
    }
}
