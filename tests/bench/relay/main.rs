//! `cargo xtask bench relay`: the proxy beside others, on the same machine, in one run.
//!
//! One upstream and one load, in this process, and between them each peer in turn: nobody, nginx,
//! LiteLLM, ours without and with recording, an older release of ours if one is given. Peers alternate from cell to cell and change their
//! order, so that what else happens on the machine falls on all of them. Resumable: each (workload,
//! peer, repeat) is one file; what is there is not run again. Nothing is pinned to a CPU.

mod cell;
mod load;
mod long_replies;
mod measure;
mod peers;
mod processes;
mod reading;
mod request;
mod table;
mod upstream;
mod workload;
mod wrk;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs, iter,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use metaclaw_tests::external;
use serde::{Deserialize, Serialize};

use self::{
    cell::{Cell, CellKey},
    measure::{Bench, probe},
    peers::{Peer, PeerName, Programs},
    upstream::Upstream,
    workload::{Kind, Size, Workload},
};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench relay")]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Flags {
    /// Where the JSON files go; cells already there are not run again.
    #[arg(long)]
    out: PathBuf,
    /// Who is compared.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = PeerName::DEFAULT)]
    peers: Vec<PeerName>,
    /// What is answered.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Plain, Kind::Burst, Kind::Paced, Kind::Tls])]
    kinds: Vec<Kind>,
    /// What is sent.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Size::Large, Size::Small])]
    sizes: Vec<Size>,
    /// Connections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 128])]
    connections: Vec<usize>,
    /// How often each cell is measured.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// For how long, in seconds, after a warm-up of a fifth of it.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// A smoke run: one repeat of a second, large requests, 1 and 16 connections.
    #[arg(long)]
    quick: bool,
    /// Removes what is in `--out` first.
    #[arg(long)]
    again: bool,
    /// The folder of another `metaclaw`, an older release, which runs beside the others.
    #[arg(long)]
    old: Option<PathBuf>,
    /// wrk makes the load, for whole seconds (`apt install wrk`); 61 KB requests are `--sizes gateway`.
    #[arg(long)]
    by_wrk: bool,
    /// Compares nobody: shows what the end of long replies, and retrieval, cost the streams beside them;
    /// with `--old`, the older release after ours.
    #[arg(long)]
    long_replies: bool,
    /// Runs nothing: shows what is in `--out`.
    #[arg(long)]
    show: bool,
}

/// What must be the same for cells to stand in one table.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    /// Length and time of the `metaclaw` that is measured.
    build: String,
    /// The same of the older one.
    old: Option<String>,
    /// Of one cell, in milliseconds.
    window_ms: u128,
    n_cpus: usize,
    /// wrk made the load.
    #[serde(default)]
    by_wrk: bool,
}

fn main() -> Result<()> {
    let mut flags = Flags::parse();
    if flags.quick {
        (flags.repeats, flags.seconds) = (1, 1.0);
        (flags.sizes, flags.connections) = (vec![Size::Large], vec![1, 16]);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads())
        .enable_all()
        .build()?;
    if let Some(old) = &flags.old {
        flags.peers.extend([PeerName::OldOff, PeerName::OldOn]);
        ensure!(
            old.join("metaclaw").is_file(),
            "no metaclaw in --old {}",
            old.display()
        );
    }
    if flags.long_replies {
        let window = Duration::from_secs_f64(flags.seconds);
        for folder in iter::once(external::bin_dir()).chain(flags.old) {
            let found = runtime.block_on(long_replies::run(&folder, threads(), window))?;
            println!("{}\n{found}\n", folder.display());
        }
        return Ok(());
    }
    if !flags.show {
        runtime.block_on(run(&flags))?;
    }
    let cells = read_all(&flags.out)?;
    let text = table::table(&cells);
    println!("{text}");
    fs::write(flags.out.join("table.txt"), text)?;
    fs::write(
        flags.out.join("cells.json"),
        serde_json::to_vec_pretty(&cells)?,
    )?;
    Ok(())
}

/// Threads of the load, and of the upstream: a quarter of the machine each, the rest is the peer's.
fn threads() -> usize {
    thread::available_parallelism()
        .map_or(1, usize::from)
        .div_ceil(4)
}

async fn run(flags: &Flags) -> Result<()> {
    let programs = programs(flags);
    let window = Duration::from_secs_f64(flags.seconds);
    prepare(flags, &programs, window)?;
    let upstream = Upstream::start(threads())?;
    let wrk = flags.by_wrk.then(|| PathBuf::from("wrk"));
    let bench = Bench {
        upstream,
        window,
        wrk,
    };
    let workloads = workloads(flags);
    let mut started = BTreeMap::new();
    for repeat in 1..=flags.repeats {
        // A log that has grown is not what the next repeat begins with.
        started.retain(|(name, _): &(PeerName, bool), _| !name.is_ours());
        for (number, workload) in workloads.iter().enumerate() {
            for name in order(&flags.peers, repeat + number) {
                let is_tls = workload.kind == Kind::Tls;
                if (is_tls && !name.speaks_tls())
                    || Cell::file(&flags.out, *workload, name, repeat).exists()
                {
                    continue;
                }
                let peer = match started.entry((name, is_tls)) {
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(place) => {
                        place.insert(start(name, &programs, &bench, is_tls).await?)
                    }
                };
                if let Some(peer) = peer {
                    let key = CellKey {
                        peer: name,
                        workload: *workload,
                        repeat,
                    };
                    let cell = bench.measure(peer, key).await?;
                    println!("{}", table::line(&cell));
                    cell.write(&flags.out)?;
                }
            }
        }
    }
    Ok(())
}

/// Starts a peer and looks whether it does what it is here for; none, with a note, where it is not installed.
async fn start(
    name: PeerName,
    programs: &Programs,
    bench: &Bench,
    is_tls: bool,
) -> Result<Option<Peer>> {
    let upstream = if is_tls {
        &bench.upstream.tls
    } else {
        &bench.upstream.clear
    };
    let started = name.start(programs, upstream).await;
    match started.with_context(|| format!("{} does not start", name.name()))? {
        Ok(peer) => {
            let probed = probe(bench, &peer, name).await;
            probed.with_context(|| format!("{} does not do its work", name.name()))?;
            Ok(Some(peer))
        }
        Err(note) => {
            println!("{} is left out: {note}", name.name());
            Ok(None)
        }
    }
}

fn programs(flags: &Flags) -> Programs {
    Programs {
        ours: external::bin_dir(),
        old: flags.old.clone(),
        nginx: external::nginx(),
        litellm: external::litellm(),
    }
}

fn workloads(flags: &Flags) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for size in &flags.sizes {
        for kind in &flags.kinds {
            let cells = flags.connections.iter().map(|connections| Workload {
                kind: *kind,
                size: *size,
                connections: *connections,
            });
            workloads.extend(cells);
        }
    }
    workloads
}

/// The peers, beginning with another one each time.
fn order(peers: &[PeerName], turn: usize) -> impl Iterator<Item = PeerName> {
    let n_peers = peers.len();
    (0..n_peers).map(move |index| peers[(index + turn) % n_peers])
}

/// Makes the folder, or sees that its cells are of this build and these settings.
fn prepare(flags: &Flags, programs: &Programs, window: Duration) -> Result<()> {
    let out = &flags.out;
    if flags.again && out.exists() {
        fs::remove_dir_all(out)?;
    }
    let run = Run {
        build: build(&programs.ours)?,
        old: programs.old.as_deref().map(build).transpose()?,
        window_ms: window.as_millis(),
        n_cpus: thread::available_parallelism().map_or(1, usize::from),
        by_wrk: flags.by_wrk,
    };
    let file = out.join("run.json");
    if file.exists() {
        let before: Run = serde_json::from_slice(&fs::read(&file)?)?;
        ensure!(
            before == run,
            "{} has cells of another build or other settings: --again removes them, --out names another folder\n{before:?}\n{run:?}",
            out.display()
        );
    }
    fs::create_dir_all(out.join("cells"))?;
    Ok(fs::write(file, serde_json::to_vec_pretty(&run)?)?)
}

/// Tells one build in `folder` from another.
fn build(folder: &Path) -> Result<String> {
    let binary = folder.join("metaclaw");
    let file =
        fs::metadata(&binary).with_context(|| format!("{} is not there", binary.display()))?;
    Ok(format!("{} bytes of {:?}", file.len(), file.modified()?))
}

fn read_all(out: &Path) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for folder in fs::read_dir(out.join("cells"))? {
        for file in fs::read_dir(folder?.path())? {
            let file = file?.path();
            if file.extension().is_some_and(|it| it == "json") {
                cells.push(Cell::read(&file)?);
            }
        }
    }
    cells.sort_by_key(|cell| (cell.workload, cell.peer, cell.repeat));
    Ok(cells)
}
