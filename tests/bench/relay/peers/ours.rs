//! MetaClaw with lessons: wishes and skills in its home.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use metaclaw_tests::home::{Home, Proxy};
use serde::{Deserialize, Serialize};

use crate::upstream::Place;

/// A text in every system text with MetaClaw's lessons.
pub const LESSON: &str = "Amounts are in euros";
/// How long the log may take for the remaining turns when the load ends.
const FLUSHED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);

const SKILLS: [(&str, &str); 3] = [
    ("invoices", "Finding invoices and saying which are open"),
    ("mail", "Drafting an email to a customer"),
    ("travel", "Booking a train or a hotel"),
];

/// A running MetaClaw proxy.
#[derive(Debug)]
pub struct Ours {
    proxy: Proxy,
    home: Home,
    records: bool,
}

/// The number of turns in the log so far, and of lost turns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    n_recorded: u64,
    n_lost: u64,
}

/// The turns of one measurement.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// Turns that the log has acknowledged.
    pub n_turns: u64,
    /// Turns that were lost in any way.
    pub n_lost: u64,
    /// The time from the last reply until the log had all turns, in milliseconds.
    pub lag_ms: f64,
}

// === impl Ours ===

impl Ours {
    pub async fn start(bin_dir: &Path, upstream: &Place, records: bool) -> Result<Self> {
        Self::with_skills(bin_dir, upstream, records, 0).await
    }

    /// Does the same with `n_more` additional skills.
    pub async fn with_skills(
        bin_dir: &Path,
        upstream: &Place,
        records: bool,
        n_more: usize,
    ) -> Result<Self> {
        let home = Home::new(bin_dir, &settings(upstream, records));
        // A line for every turn is its access log, and the others run without theirs.
        let mut home = home.with_env("RUST_LOG", "warn");
        if let Some(ca) = &upstream.ca {
            home = home.with_env("SSL_CERT_FILE", ca.display().to_string());
        }
        let skills = home.path().join("skills");
        teach(&skills)?;
        for number in 0..n_more {
            let description = format!("Sorting the papers of customer {number} by month and topic");
            write_skill(&skills, &format!("papers-{number}"), &description)?;
        }
        let proxy = home.start().await?;
        Ok(Self {
            proxy,
            home,
            records,
        })
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.proxy.port()).into()
    }

    pub fn pid(&self) -> u32 {
        self.proxy.pid()
    }

    /// Returns the number of turns in the log.
    pub async fn counts(&self) -> Result<Counts> {
        let status = self.home.ask(&["status", "--json"]).await?;
        let counts = &status["counts"];
        let count = |name: &str| {
            let count = counts[name].as_u64();
            count
                .with_context(|| format!("`metaclaw status --json` has no counts.{name}: {counts}"))
        };
        let lost = ["dropped", "failed", "overflowed", "undecodable", "unread"];
        let lost = lost.into_iter().map(count).sum::<Result<u64>>()?;
        Ok(Counts {
            n_recorded: count("recorded")?,
            n_lost: lost,
        })
    }

    /// Waits until the log has acknowledged the `n_turns` that ended since `before`.
    pub async fn flushed(&self, before: Counts, n_turns: usize) -> Result<Option<Recorded>> {
        let ended = Instant::now();
        loop {
            let lag = ended.elapsed();
            let now = self.counts().await?;
            let recorded = Recorded {
                n_turns: now.n_recorded - before.n_recorded,
                n_lost: now.n_lost - before.n_lost,
                lag_ms: lag.as_secs_f64() * 1e3,
            };
            if !self.records {
                ensure!(
                    recorded.n_turns == 0,
                    "turns are recorded although turns.enabled is false"
                );
                return Ok(None);
            }
            if recorded.n_turns + recorded.n_lost >= n_turns as u64 {
                return Ok(Some(recorded));
            }
            ensure!(
                lag < FLUSHED_WITHIN,
                "the log has {recorded:?} of {n_turns} turns"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub fn log(&self) -> String {
        self.home.log()
    }
}

fn settings(upstream: &Place, records: bool) -> String {
    let base_url = upstream.base_url();
    format!(
        "mode: skills_only
llm:
  api_base: {base_url}/v1
judge:
  kind: rules
turns:
  enabled: {records}
"
    )
}

fn teach(skills: &Path) -> Result<()> {
    // Wishes belong to an agent: the small requests name none, and the large ones name OpenClaw's first.
    for agent in ["_default", "main"] {
        let folder = skills.join(agent);
        fs::create_dir_all(&folder)?;
        let wishes = format!("- Answer in one sentence.\n- {LESSON} and rounded to the cent.\n");
        fs::write(folder.join("WISHES.md"), wishes)?;
    }
    for (name, description) in SKILLS {
        write_skill(skills, name, description)?;
    }
    Ok(())
}

fn write_skill(skills: &Path, name: &str, description: &str) -> Result<()> {
    let folder = skills.join(name);
    fs::create_dir_all(&folder)?;
    let steps = "- Look at what the owner has of it before you ask, and say where you found it.\n"
        .repeat(12);
    let text =
        format!("---\nname: {name}\ndescription: {description}\n---\n# {description}\n\n{steps}");
    Ok(fs::write(folder.join("SKILL.md"), text)?)
}
