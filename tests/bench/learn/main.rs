//! `cargo xtask bench learn`: whether it learns what the user likes, and what that costs.
//!
//! Scripted owners talk over HTTP to the product, which trains the demo model while they do. One training server
//! serves all runs, 8 of them side by side, each an agent of its own; a row of the table is a configuration of the
//! product (rows.yaml). Beside the chat the bench asks the training server alone: test questions, probes, likelihoods.
//! Resumable: each run is a line of runs.jsonl; what is there is not run again.

mod content;
mod curves;
mod judge;
mod limits;
mod measure;
mod owner;
mod play;
mod product;
mod quiet;
mod record;
mod reference;
mod rows;
mod schedule;
mod score;
mod session;
mod table;
mod trainer;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use metaclaw_tests::external;
use serde::{Deserialize, Serialize};

use self::{
    content::Content,
    judge::{Function, Judge, Owners},
    limits::{Promise, Results},
    record::Records,
    reference::References,
    rows::Selection,
};

/// Test questions, and with `--quick`.
const N_TEST: usize = 60;
const N_TEST_QUICK: usize = 20;
/// Minutes of the whole bench, and with `--quick`.
const MINUTES: f64 = 90.0;
const MINUTES_QUICK: f64 = 10.0;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench learn")]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Flags {
    /// Where records, the table, the picture and replies go; runs already there are not run again.
    #[arg(long)]
    out: PathBuf,
    /// Two rows, few sessions, 20 test questions.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Five seeds and 100 sessions of every run.
    #[arg(long)]
    full: bool,
    /// These rows alone (their names are in rows.yaml).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Runs with these wishes alone.
    #[arg(long, value_delimiter = ',')]
    wishes: Vec<String>,
    /// So many sessions of each run with one wish.
    #[arg(long)]
    sessions: Option<usize>,
    /// These seeds of each run.
    #[arg(long, value_delimiter = ',')]
    seeds: Option<Vec<u64>>,
    /// So many test questions, instead of 60, or 20 with --quick.
    #[arg(long)]
    test_questions: Option<usize>,
    /// Runs at once: agents of one training server.
    #[arg(long, default_value_t = 8)]
    at_once: usize,
    /// Who judges: the bench's own reward function, or rules in each product.
    #[arg(long, value_enum, default_value_t = JudgeKind::Http)]
    judge: JudgeKind,
    /// Removes what is in --out first.
    #[arg(long)]
    again: bool,
    /// Runs nothing: shows what is in --out.
    #[arg(long)]
    show: bool,
}

/// Who judges in the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JudgeKind {
    Http,
    Rules,
}

/// What must be the same for runs to stand in one table, and what they took.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Settings {
    /// Length and time of the product's programs.
    build: String,
    /// Of the wishes, questions, probes and rows.
    content: u64,
    n_test: usize,
    judge: JudgeKind,
    /// Of all processes that added to it.
    minutes: f64,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    let content = Content::read(flags.n_test())?;
    let selection = flags.selection();
    let rows = rows::select(&selection, &content)?;
    if flags.again && flags.out.exists() {
        fs::remove_dir_all(&flags.out)?;
    }
    fs::create_dir_all(&flags.out)?;
    let out = flags.out.canonicalize()?;
    let mut unsound = Vec::new();
    if !flags.show {
        let mut settings = settings(&out, &content, flags.judge)?;
        let began = Instant::now();
        unsound = schedule::run_all(
            &out,
            &rows,
            &content,
            &flags.judge().await?,
            flags.at_once.max(1),
        )
        .await?;
        settings.minutes += began.elapsed().as_secs_f64() / 60.0;
        write(
            &out.join("settings.json"),
            &serde_json::to_vec_pretty(&settings)?,
        )?;
    }
    let is_kept = report(&out, &content, &flags, &unsound)?;
    Ok(if is_kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Shows and writes all that is in the folder; whether every promise that was measured is kept and no run failed.
fn report(
    out: &Path,
    content: &Content,
    flags: &Flags,
    unsound: &[schedule::Unsound],
) -> Result<bool> {
    let records = Records::new(out).read();
    let references = References::read(&out.join("references.json"))?;
    let replies = table::replies(&records, &references);
    println!("{replies}");
    write(&out.join("replies.txt"), replies.as_bytes())?;
    let picture = curves::picture(&records, &references, content);
    write(&out.join("curves.svg"), picture.as_bytes())?;
    let mut text = table::table(&records, &references, content);
    for row in unsound {
        let _ = writeln!(text, "{row}");
    }
    let mut promises = limits::promises(Results {
        records: &records,
        references: &references,
        content,
    });
    promises.extend(time(out, flags));
    let whole = flags.is_whole();
    let (summary, is_kept) = limits::summary(&promises, whole && !flags.quick);
    text.push('\n');
    text.push_str(&summary);
    println!("{text}");
    println!(
        "replies.txt, curves.svg and runs.jsonl are in {}",
        out.display()
    );
    write(&out.join("table.txt"), text.as_bytes())?;
    let is_unsound = |it: &schedule::Unsound| whole || it.is_failure();
    Ok(is_kept && !unsound.iter().any(is_unsound))
}

/// How long all of it took, where that is promised: of the whole default bench, and of the quick one.
fn time(out: &Path, flags: &Flags) -> Option<Promise> {
    if flags.full || !flags.is_whole() {
        return None;
    }
    let bytes = fs::read(out.join("settings.json")).ok()?;
    let settings: Settings = serde_json::from_slice(&bytes).ok()?;
    let most = if flags.quick { MINUTES_QUICK } else { MINUTES };
    Some(Promise::at_most(
        "minutes of the whole bench".to_owned(),
        most,
        Some(settings.minutes),
    ))
}

/// Those of the folder, if they are of this build and content; else ours, in a new one.
fn settings(out: &Path, content: &Content, judge: JudgeKind) -> Result<Settings> {
    let bin_dir = external::bin_dir();
    let build = ["metaclaw", "metaclaw-trainer-engine"].map(|name| build(&bin_dir, name));
    let [proxy, engine] = build;
    let own = Settings {
        build: format!("{}, {}", proxy?, engine?),
        content: stamp(),
        n_test: content.test.len(),
        judge,
        minutes: 0.0,
    };
    let file = out.join("settings.json");
    if !file.exists() {
        write(&file, &serde_json::to_vec_pretty(&own)?)?;
        return Ok(own);
    }
    let before: Settings = serde_json::from_slice(&fs::read(&file)?).with_context(|| {
        format!(
            "{} is none of this bench: --again removes it",
            file.display()
        )
    })?;
    ensure!(
        (&before.build, before.content, before.n_test, before.judge)
            == (&own.build, own.content, own.n_test, own.judge),
        "{} has runs of another build, other questions, rows or another judge: --again removes them, --out names another folder\n{before:?}\n{own:?}",
        out.display()
    );
    Ok(before)
}

/// Tells one build from another.
fn build(folder: &Path, name: &str) -> Result<String> {
    let binary = folder.join(name);
    let file =
        fs::metadata(&binary).with_context(|| format!("{} is not there", binary.display()))?;
    Ok(format!(
        "{name} of {} bytes of {:?}",
        file.len(),
        file.modified()?
    ))
}

/// Changes when a file of the bench's content does.
fn stamp() -> u64 {
    // FNV-1a, which is the same in every build.
    let texts = content::FILES.iter().chain([&rows::ROWS]);
    let bytes = texts.flat_map(|text| text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

// === impl Flags ===

impl Flags {
    fn n_test(&self) -> usize {
        let usual = if self.quick { N_TEST_QUICK } else { N_TEST };
        self.test_questions.unwrap_or(usual)
    }

    /// Whether all that the bench is, or its quick form, is run.
    fn is_whole(&self) -> bool {
        let is_part =
            self.test_questions.is_some() || self.sessions.is_some() || self.seeds.is_some();
        !is_part && self.only.is_empty() && self.wishes.is_empty()
    }

    async fn judge(&self) -> Result<Judge> {
        Ok(match self.judge {
            JudgeKind::Http => Judge::Http(Function::start().await?),
            JudgeKind::Rules => Judge::Rules(Owners::default()),
        })
    }

    fn selection(&self) -> Selection {
        Selection {
            quick: self.quick,
            full: self.full,
            only: self.only.clone(),
            wishes: self.wishes.clone(),
            sessions: self.sessions,
            seeds: self.seeds.clone(),
        }
    }
}
