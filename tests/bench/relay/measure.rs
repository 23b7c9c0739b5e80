//! One cell, measured.

use std::{
    ops::Range,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinSet;

use crate::{
    cell::{Cell, CellKey, Cost},
    load::{Load, Outcome},
    peers::{LESSON, Peer, PeerName},
    processes::{Tree, machine_busy},
    upstream::Upstream,
    workload::{Kind, Size, Workload},
    wrk,
};

/// The part of a window by which the load begins before it.
const WARM_UP: u32 = 5;

/// What all cells share.
#[derive(Debug)]
pub struct Bench {
    /// The upstream behind every peer.
    pub upstream: Upstream,
    /// How long a cell is measured.
    pub window: Duration,
    /// What makes the load in place of this program.
    pub wrk: Option<PathBuf>,
}

// === impl Bench ===

impl Bench {
    pub async fn measure(&self, peer: &Peer, key: CellKey) -> Result<Cell> {
        let workload = key.workload;
        let warm_up = match workload.kind {
            _ if self.wrk.is_some() => Duration::ZERO,
            Kind::Plain | Kind::Burst | Kind::Tls => self.window / WARM_UP,
            // Few fit into a window: the first counts too.
            Kind::Paced => Duration::ZERO,
        };
        let from = Instant::now() + warm_up;
        let load = self.load(peer, key, from..from + self.window);
        let before = match peer {
            Peer::Ours(ours) => Some(ours.counts().await?),
            Peer::Direct(_) | Peer::Program(_) => None,
        };
        let (outcome, cost) = self.under(load, peer.processes()).await?;
        let recorded = match (peer, before) {
            (Peer::Ours(ours), Some(before)) => ours.flushed(before, outcome.n_well).await?,
            _ => None,
        };
        Ok(Cell::new(key, self.window, outcome, cost, recorded))
    }

    fn load(&self, peer: &Peer, key: CellKey, within: Range<Instant>) -> Load {
        let reply = key.workload.kind.reply();
        self.upstream.answers(reply.clone());
        Load {
            target: peer.address(),
            workload: key.workload,
            reply,
            exactly: key.peer.is_exact(),
            from: within.start,
            to: within.end,
        }
    }

    /// Lets the load run, and reads meanwhile what the peer costs.
    async fn under(&self, load: Load, peer: Option<Tree>) -> Result<(Outcome, Cost)> {
        let (from, to) = (load.from, load.to);
        let bench = Tree::of_this();
        if let Some(peer) = &peer {
            peer.forget_peak()?;
        }
        let mut running = JoinSet::new();
        let wrk = self.wrk.clone();
        running.spawn(async move {
            match wrk {
                None => Ok(load.run().await),
                Some(wrk) => wrk::run(&wrk, &load).await,
            }
        });
        let clock = || {
            let peer = peer.as_ref().map(Tree::cpu);
            (machine_busy(), bench.cpu(), peer)
        };
        tokio::time::sleep_until(from.into()).await;
        let begin = clock();
        tokio::time::sleep_until(to.into()).await;
        let end = clock();
        let outcome = running.join_all().await.pop().context("no load")??;
        let cpu = end
            .2
            .zip(begin.2)
            .map(|(end, begin)| end.saturating_sub(begin));
        let bench_cpu = end.1.saturating_sub(begin.1);
        let known = bench_cpu + cpu.unwrap_or_default();
        let others = end.0.saturating_sub(begin.0).saturating_sub(known);
        let cost = Cost {
            cpu,
            bench_cpu,
            peak_kib: peer.as_ref().map(Tree::peak_kib),
            others_cpus: others.as_secs_f64() / self.window.as_secs_f64(),
        };
        Ok((outcome, cost))
    }
}

/// One turn through a peer that has just been started: its reply must be right, and ours must have
/// given its lessons.
pub async fn probe(bench: &Bench, peer: &Peer, name: PeerName) -> Result<()> {
    for size in [Size::Small, Size::Large] {
        let workload = Workload {
            kind: Kind::Burst,
            size,
            connections: 1,
        };
        let key = CellKey {
            peer: name,
            workload,
            repeat: 1,
        };
        let now = Instant::now();
        let load = bench.load(peer, key, now..now + Duration::from_millis(1));
        bench.upstream.keep(true);
        let outcome = load.run().await;
        bench.upstream.keep(false);
        ensure!(outcome.n_failed == 0 && outcome.n_well > 0, "{outcome:?}");
        if let Peer::Ours(ours) = peer {
            let asked = bench.upstream.kept();
            let asked = String::from_utf8_lossy(&asked);
            ensure!(
                asked.contains(LESSON),
                "a {} request goes on without lessons\n{}",
                size.name(),
                ours.log()
            );
        }
    }
    Ok(())
}
