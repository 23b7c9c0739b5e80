//! `cargo xtask bench learn` measures whether MetaClaw learns what the user likes, and what that costs.
//!
//! Scripted owners talk over HTTP to the product, which trains the demo model meanwhile. One training server serves all
//! runs, 8 of them at once, each with an agent of its own; a row of the table is a configuration of the product
//! (rows.yaml). Outside the chat, the bench asks only the training server: test questions, probes, likelihoods. It can
//! be continued: each run is a line of runs.jsonl; a finished run is not repeated, and a stopped one continues with its
//! next session.

mod content;
mod curves;
mod judge;
mod measure;
mod owner;
mod play;
mod product;
mod progress;
mod quiet;
mod record;
mod reference;
mod rows;
mod schedule;
mod score;
mod session;
mod settings;
mod table;
mod trainer;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, interval},
};

use self::{
    content::Content,
    judge::{Function, Judge, JudgeKind, Owners},
    record::Records,
    reference::References,
    rows::{Row, Selection},
    schedule::Unsound,
    settings::Settings,
};

/// Test questions, and with `--quick`.
const N_TEST: usize = 60;
const N_TEST_QUICK: usize = 20;
/// How often the time that it took is put by.
const TOLD_EVERY: Duration = Duration::from_secs(60);

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
        unsound = run(&out, &rows, &content, &flags).await?;
    }
    let is_sound = report(&out, &content, &flags, &unsound)?;
    Ok(if is_sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs what has no result yet, and reports the failures. If a signal stops it, it ends its programs and keeps its
/// results.
async fn run(out: &Path, rows: &[Row], content: &Content, flags: &Flags) -> Result<Vec<Unsound>> {
    let before = Settings::of(out, content, flags.judge)?;
    let judge = flags.judge().await?;
    let began = Instant::now();
    let told = || {
        let mut settings = before.clone();
        settings.minutes += began.elapsed().as_secs_f64() / 60.0;
        settings.write(out)
    };
    let all = schedule::run_all(out, rows, content, &judge, flags.at_once.max(1));
    let mut all = std::pin::pin!(all);
    let mut minute = interval(TOLD_EVERY);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            done = &mut all => {
                told()?;
                return done;
            }
            _ = minute.tick() => told()?,
            _ = interrupt.recv() => bail!("stopped: the same command goes on"),
            _ = terminate.recv() => bail!("stopped: the same command goes on"),
        }
    }
}

/// Prints and writes all results in the folder; returns whether every run ended as it should.
fn report(out: &Path, content: &Content, flags: &Flags, unsound: &[Unsound]) -> Result<bool> {
    let records = Records::new(out).read();
    let references = References::read(&out.join("references.json"))?;
    let replies = table::replies(&records, &references);
    println!("{replies}");
    write(&out.join("replies.txt"), replies.as_bytes())?;
    let picture = curves::picture(&records, &references, content);
    write(&out.join("curves.svg"), picture.as_bytes())?;
    let mut text = table::table(&records, &references, content);
    text.push_str(&table::served(&records, &references, content));
    for row in unsound {
        let _ = writeln!(text, "{row}");
    }
    println!("{text}");
    println!(
        "replies.txt, curves.svg and runs.jsonl are in {}",
        out.display()
    );
    write(&out.join("table.txt"), text.as_bytes())?;
    let whole = flags.is_whole();
    Ok(!unsound.iter().any(|row| whole || row.is_failure()))
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

    /// Returns whether the whole bench, or its quick form, is run.
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
