//! `cargo xtask bench relay`: the proxy beside nginx, on the same machine, in one run.
//!
//! One upstream and one load, in this process, and between them each peer in turn: nobody, nginx, other gateways, ours
//! without and with recording, an older release of ours if one is given. Peers alternate from cell to cell and change their order, so
//! that what else happens on the machine falls on all of them. A stopped run continues: each (workload, peer, repeat) is
//! a line of runs.jsonl, and what is there is not run again. Nothing is pinned to a CPU.

mod guard;
mod load;
mod peers;
mod table;
mod upstream;
mod workload;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs, iter,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use metaclaw_tests::{
    bench::{Tree, append, build, machine_busy, open_folder, quantile_ms, records},
    external,
};
use serde_json::json;
use tokio::task::JoinSet;

use self::{
    load::{Growing, Load, Outcome},
    peers::{LESSON, Peer, PeerName},
    table::{Cell, table},
    upstream::Upstream,
    workload::{FIFTHS, Kind, PACE, Size, Workload},
};

/// The part of a window by which the load begins before it.
const WARM_UP: u32 = 5;
/// The connections by which each worker of a program that starts slowly gets its first request before it is measured.
const EACH_WORKER: usize = 8;
/// The pause after a fifth of a growing session.
const SETTLES: Duration = Duration::from_millis(300);
/// No growing session takes longer.
const LONGEST: Duration = Duration::from_hours(1);

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench relay")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
struct Flags {
    /// Where the records go; cells already there are not run again.
    #[arg(long)]
    out: PathBuf,
    /// Who is compared.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PeerName::Direct, PeerName::Nginx, PeerName::Litellm, PeerName::Portkey, PeerName::Off, PeerName::On])]
    peers: Vec<PeerName>,
    /// What is answered.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Plain, Kind::Burst, Kind::Paced, Kind::Growing])]
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
    /// Measures only what the guard needs: a recorded request's CPU, beside nginx.
    #[arg(long, conflicts_with = "quick")]
    guard: bool,
    /// Removes what is in `--out` first.
    #[arg(long)]
    again: bool,
    /// The folder of another `metaclaw`, an older release, which runs beside the others.
    #[arg(long)]
    old: Option<PathBuf>,
    /// Runs nothing: shows what is in `--out`.
    #[arg(long)]
    show: bool,
}

/// Measures one cell after the other.
struct Bench {
    upstream: Upstream,
    window: Duration,
}

fn main() -> Result<()> {
    let mut flags = Flags::parse();
    if flags.quick {
        (flags.repeats, flags.seconds) = (1, 1.0);
        (flags.sizes, flags.connections) = (vec![Size::Large], vec![1, 16]);
    }
    if flags.guard {
        flags.again = !flags.show;
        flags.peers = vec![PeerName::Nginx, PeerName::On];
        flags.kinds = vec![guard::GUARDED.kind];
        flags.sizes = vec![guard::GUARDED.size];
        flags.connections = vec![guard::GUARDED.connections];
    }
    if flags.old.is_some() {
        flags.peers.extend([PeerName::OldOff, PeerName::OldOn]);
    }
    // The load and the upstream have a quarter of the machine each, and the rest is the peer's.
    let n_cpus = thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2 * n_cpus.div_ceil(4))
        .enable_all()
        .build()?;
    if !flags.show {
        let old = flags.old.as_ref().map(|old| build(old, "metaclaw"));
        let settings = json!({"build": build(&external::bin_dir(), "metaclaw")?, "old": old.transpose()?,
            "seconds": flags.seconds, "n_cpus": n_cpus});
        open_folder(&flags.out, &settings, flags.again)?;
        runtime.block_on(run(&flags))?;
    }
    let cells: Vec<Cell> = records(&flags.out);
    let text = table(&cells);
    println!("\n{text}");
    fs::write(flags.out.join("table.md"), text)?;
    println!("{}", guard::check(&cells, guard::COMMITTED)?);
    Ok(())
}

async fn run(flags: &Flags) -> Result<()> {
    let bench = Bench {
        upstream: Upstream::start().await?,
        window: Duration::from_secs_f64(flags.seconds),
    };
    let there: Vec<Cell> = records(&flags.out);
    let mut workloads = Vec::new();
    let mut left_out = BTreeSet::new();
    for size in flags.sizes.iter().copied() {
        for kind in flags.kinds.iter().copied() {
            let connections = flags.connections.iter().copied();
            workloads.extend(connections.map(|connections| Workload {
                kind,
                size,
                connections,
            }));
        }
    }
    workloads.retain(Workload::is_measured);
    let mut started = BTreeMap::new();
    for repeat in 1..=flags.repeats {
        // A log that has grown is not what the next repeat begins with.
        started.retain(|name: &PeerName, _| !name.is_ours());
        for (number, workload) in workloads.iter().copied().enumerate() {
            let mut peers = flags.peers.clone();
            peers.rotate_left((repeat + number) % flags.peers.len());
            peers.retain(|name| name.runs(workload.kind) && !left_out.contains(name));
            for name in peers {
                let key = (workload, name, repeat);
                if there
                    .iter()
                    .any(|cell| (cell.workload, cell.peer, cell.repeat) == key)
                {
                    continue;
                }
                let peer = match started.entry(name) {
                    Entry::Occupied(there) => there.into_mut(),
                    Entry::Vacant(place) => {
                        let Some(peer) = start(name, flags, &bench).await? else {
                            left_out.insert(name);
                            continue;
                        };
                        place.insert(peer)
                    }
                };
                let cell = match workload.kind {
                    Kind::Growing => bench.grow(peer, key).await?,
                    Kind::Plain | Kind::Burst | Kind::Paced => bench.measure(peer, key).await?,
                };
                println!("{}", cell.line());
                append(&flags.out, &cell)?;
            }
        }
    }
    Ok(())
}

/// Starts a peer and checks that it does what it is here for. One of others that does not is left out.
async fn start(name: PeerName, flags: &Flags, bench: &Bench) -> Result<Option<Peer>> {
    let started = async {
        let started = name.start(flags.old.as_ref(), bench.upstream.address).await;
        let Some(mut peer) = started.context("it does not start")? else {
            bail!("it is not installed");
        };
        let probed = bench.probe(name, &peer).await;
        probed.context("it does not do its work")?;
        peer.find_processes();
        Ok(peer)
    };
    match started.await {
        Ok(peer) => Ok(Some(peer)),
        Err(error) if name.is_ours() => Err(error.context(name.name())),
        Err(error) => {
            println!("{} is left out: {error:#}", name.name());
            Ok(None)
        }
    }
}

// === impl Bench ===

impl Bench {
    async fn measure(&self, peer: &Peer, key: (Workload, PeerName, usize)) -> Result<Cell> {
        let (workload, name, repeat) = key;
        let before = match &peer.ours {
            Some(ours) => Some((ours, ours.counts().await?)),
            None => None,
        };
        let warm_up = match workload.kind {
            Kind::Plain | Kind::Burst => self.window / WARM_UP,
            // Few fit into a window: the first counts too.
            Kind::Paced | Kind::Growing => Duration::ZERO,
        };
        let from = Instant::now() + warm_up;
        let load = self.load(peer, workload, from, self.window);
        if let Some(tree) = &peer.tree {
            tree.forget_peak()?;
        }
        let bench = Tree::own();
        let clock = || {
            (
                machine_busy(),
                bench.cpu(),
                peer.tree.as_ref().map(Tree::cpu),
            )
        };
        let to = load.to;
        let mut running = JoinSet::new();
        running.spawn(async move { load.run().await });
        tokio::time::sleep_until(from.into()).await;
        let begin = clock();
        tokio::time::sleep_until(to.into()).await;
        let end = clock();
        let mut outcome = running.join_all().await.pop().context("no load")?;
        let cpu = end
            .2
            .zip(begin.2)
            .map(|(end, begin)| end.saturating_sub(begin));
        let bench_cpu = end.1.saturating_sub(begin.1);
        let known = bench_cpu + cpu.unwrap_or_default();
        let others = end.0.saturating_sub(begin.0).saturating_sub(known);
        let recorded = match before {
            Some((ours, before)) => ours.flushed(before, outcome.n_well).await?,
            None => None,
        };
        let lag = recorded.map_or(0.0, |recorded| recorded.lag_ms / 1e3);
        outcome.totals.sort_unstable();
        outcome.first_bytes.sort_unstable();
        let mut off: Vec<Duration> = outcome.gaps.iter().map(|gap| gap.abs_diff(PACE)).collect();
        off.sort_unstable();
        let squares: f64 = off.iter().map(|off| off.as_secs_f64().powi(2)).sum();
        let is_paced = !off.is_empty();
        let per_reply = |cpu: Duration| cpu.as_secs_f64() * 1e6 / outcome.n_within.max(1) as f64;
        let is_guarded = (workload, name) == (guard::GUARDED, PeerName::On);
        Ok(Cell {
            reading_us: is_guarded.then(guard::reading_us).transpose()?,
            fifths_us: Vec::new(),
            peer: name,
            workload,
            repeat,
            n_within: outcome.n_within,
            n_failed: outcome.n_failed,
            failures: outcome.failures,
            per_second: outcome.n_within as f64 / (self.window.as_secs_f64() + lag),
            p50_ms: quantile_ms(&outcome.totals, 0.5),
            p99_ms: quantile_ms(&outcome.totals, 0.99),
            first_byte_p50_ms: quantile_ms(&outcome.first_bytes, 0.5),
            first_byte_p99_ms: quantile_ms(&outcome.first_bytes, 0.99),
            gap_deviation_ms: is_paced.then(|| (squares / off.len() as f64).sqrt() * 1e3),
            gap_p99_ms: is_paced.then(|| quantile_ms(&off, 0.99)),
            cpu_us: cpu.map(per_reply),
            bench_cpu_us: per_reply(bench_cpu),
            peak_mib: peer.peak_mib(),
            others_cpus: others.as_secs_f64() / self.window.as_secs_f64(),
            recorded,
        })
    }

    /// Measures growing sessions. Between two fifths there is a pause, so that the CPU of a fifth has that of its
    /// recording too.
    async fn grow(&self, peer: &Peer, key: (Workload, PeerName, usize)) -> Result<Cell> {
        let (workload, name, repeat) = key;
        let before = match &peer.ours {
            Some(ours) => Some((ours, ours.counts().await?)),
            None => None,
        };
        let mut load = self.load(peer, workload, Instant::now(), Duration::ZERO);
        load.to += LONGEST;
        if let Some(tree) = &peer.tree {
            tree.forget_peak()?;
        }
        let mut sessions: Vec<_> = iter::repeat_with(Growing::new)
            .take(workload.connections)
            .collect();
        let n_turns = workload.n_turns() / FIFTHS;
        let (mut all, mut fifths) = (Outcome::default(), Vec::new());
        let began = Instant::now();
        let (busy, own) = (machine_busy(), Tree::own().cpu());
        for _ in 0..FIFTHS {
            let cpu = peer.tree.as_ref().map(Tree::cpu);
            all.join(load.grow(&mut sessions, n_turns).await);
            tokio::time::sleep(SETTLES).await;
            let cpu = peer.tree.as_ref().map(Tree::cpu).zip(cpu);
            fifths.extend(cpu.map(|(end, begin)| end.saturating_sub(begin)));
        }
        let took = began.elapsed();
        let bench_cpu = Tree::own().cpu().saturating_sub(own);
        let cpu: Duration = fifths.iter().sum();
        let others = machine_busy().saturating_sub(busy + bench_cpu + cpu);
        let recorded = match before {
            Some((ours, before)) => ours.flushed(before, all.n_well).await?,
            None => None,
        };
        all.totals.sort_unstable();
        all.first_bytes.sort_unstable();
        let n_replies = all.n_well.max(1);
        let per_reply = |cpu: Duration| cpu.as_secs_f64() * 1e6 / n_replies as f64;
        let fifths_us = fifths.iter().map(|cpu| per_reply(*cpu) * FIFTHS as f64);
        Ok(Cell {
            peer: name,
            workload,
            repeat,
            n_within: all.n_well,
            n_failed: all.n_failed,
            per_second: n_replies as f64 / took.as_secs_f64(),
            p50_ms: quantile_ms(&all.totals, 0.5),
            p99_ms: quantile_ms(&all.totals, 0.99),
            first_byte_p50_ms: quantile_ms(&all.first_bytes, 0.5),
            first_byte_p99_ms: quantile_ms(&all.first_bytes, 0.99),
            failures: all.failures,
            cpu_us: peer.tree.as_ref().map(|_| per_reply(cpu)),
            bench_cpu_us: per_reply(bench_cpu),
            peak_mib: peer.peak_mib(),
            others_cpus: others.as_secs_f64() / took.as_secs_f64(),
            recorded,
            fifths_us: fifths_us.collect(),
            ..Cell::default()
        })
    }

    fn load(&self, peer: &Peer, workload: Workload, from: Instant, window: Duration) -> Load {
        let reply = workload.kind.reply();
        self.upstream.answers(reply.clone());
        Load {
            target: peer.address,
            headers: peer.headers.clone(),
            rewrites: peer.rewrites,
            workload,
            reply,
            from,
            to: from + window,
        }
    }

    /// One turn through a peer that has just been started: its reply must be right, and ours must have given its lessons.
    async fn probe(&self, name: PeerName, peer: &Peer) -> Result<()> {
        let (kind, connections) = if name.runs(Kind::Burst) {
            (Kind::Burst, 1)
        } else {
            (Kind::Plain, EACH_WORKER)
        };
        for size in [Size::Small, Size::Large] {
            let workload = Workload {
                kind,
                size,
                connections,
            };
            let load = self.load(peer, workload, Instant::now(), Duration::from_millis(1));
            self.upstream.keep(true);
            let outcome = load.run().await;
            let asked = String::from_utf8_lossy(&self.upstream.kept()).into_owned();
            self.upstream.keep(false);
            ensure!(outcome.n_failed == 0 && outcome.n_well > 0, "{outcome:?}");
            if let Some(ours) = &peer.ours {
                let log = ours.log();
                ensure!(
                    asked.contains(LESSON),
                    "a {size:?} request goes on without lessons\n{log}"
                );
            }
        }
        Ok(())
    }
}
