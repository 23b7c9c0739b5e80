//! The compared programs: started with the upstream behind them, and ended when dropped.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use metaclaw_tests::{
    bench::Tree,
    external,
    home::{Home, Proxy, signal},
    wait::found,
};
use rustix::process::{Signal, getuid};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

use crate::workload::Kind;

/// A text in every system text with MetaClaw's lessons.
pub const LESSON: &str = "Amounts are in euros";
/// How long the log may take for the remaining turns when the load ends.
const FLUSHED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long a program may take to start: LiteLLM takes 20 s on a busy machine.
const LISTENS_WITHIN: Duration = Duration::from_secs(120);
const SKILLS: [(&str, &str); 3] = [
    ("invoices", "Finding invoices and saying which are open"),
    ("mail", "Drafting an email to a customer"),
    ("travel", "Booking a train or a hotel"),
];
/// nginx as it is usually configured for a model server: one worker per CPU, keep-alive on both sides, no buffering of
/// replies, no access log. A request must fit into the body buffer, or it is written to a file; and connections are kept
/// for more than the 1,000 requests of the default.
const NGINX: &str = "daemon off; pid nginx.pid; worker_processes auto;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  client_body_buffer_size 2m; client_max_body_size 32m; keepalive_requests 100000000;
  upstream model { server UPSTREAM; keepalive 256; keepalive_requests 100000000; }
  server {
    listen ADDRESS;
    location / {
      proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
";

/// LiteLLM's proxy without a database, so it has neither keys nor a spend log.
const LITELLM: &str = "model_list:
- model_name: mock-model
  litellm_params: {model: openai/mock-model, api_base: 'http://UPSTREAM/v1', api_key: sk-bench}
litellm_settings: {num_retries: 0}
";

/// A row of the table.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum PeerName {
    /// The upstream itself.
    #[default]
    Direct,
    /// Debian's nginx as a reverse proxy without buffering.
    Nginx,
    /// LiteLLM's proxy, with one worker per CPU.
    Litellm,
    /// Portkey's gateway, which is one process.
    Portkey,
    /// MetaClaw with `turns.enabled: false`.
    Off,
    /// MetaClaw with the log of turns.
    On,
    /// The older release with `turns.enabled: false`.
    OldOff,
    /// The older release with the log of turns.
    OldOn,
}

/// A running peer.
#[derive(Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// Its processes, if it has any, once it has done its first work.
    pub tree: Option<Tree>,
    pub ours: Option<Ours>,
    /// What its requests have in addition.
    pub headers: Vec<(&'static str, String)>,
    /// Whether its replies have other bytes than the upstream's.
    pub rewrites: bool,
    server: Option<Server>,
}

/// Another's server, ended with its workers when dropped.
#[derive(Debug)]
struct Server {
    child: Child,
    _folder: TempDir,
}

/// MetaClaw with lessons: wishes and skills in its home.
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

// === impl PeerName ===

impl PeerName {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Litellm => "litellm",
            Self::Portkey => "portkey",
            Self::Off => "ours-off",
            Self::On => "ours-on",
            Self::OldOff => "old-off",
            Self::OldOn => "old-on",
        }
    }

    /// Returns whether it is a `metaclaw`.
    pub fn is_ours(self) -> bool {
        use PeerName::{Off, OldOff, OldOn, On};
        matches!(self, On | Off | OldOn | OldOff)
    }

    /// Returns whether it is measured with replies of this kind. Of the gateways that are hundreds of times slower, one
    /// kind says enough.
    pub fn runs(self, kind: Kind) -> bool {
        kind == Kind::Plain || !matches!(self, Self::Litellm | Self::Portkey)
    }

    /// Starts it before `upstream`; returns `None` for another's program that is not installed. `old` is the folder of
    /// the older release.
    pub async fn start(self, old: Option<&PathBuf>, upstream: SocketAddr) -> Result<Option<Peer>> {
        let mut peer = Peer {
            address: upstream,
            tree: None,
            ours: None,
            headers: Vec::new(),
            rewrites: self == Self::Litellm,
            server: None,
        };
        let folder = match self {
            Self::Direct => return Ok(Some(peer)),
            Self::Nginx | Self::Litellm | Self::Portkey => {
                let Some(program) = external::relay_peer(self.name()) else {
                    return Ok(None);
                };
                if self == Self::Portkey {
                    let host = format!("http://{upstream}/v1");
                    let openai = ("x-portkey-provider", "openai".to_owned());
                    peer.headers = vec![openai, ("x-portkey-custom-host", host)];
                }
                let (server, address) = Server::start(self, &program, upstream).await?;
                (peer.address, peer.server) = (address, Some(server));
                return Ok(Some(peer));
            }
            Self::Off | Self::On => external::bin_dir(),
            Self::OldOff | Self::OldOn => old.context("--old names no older release")?.clone(),
        };
        let records = matches!(self, Self::On | Self::OldOn);
        let (home, proxy) = start_ours(&folder, upstream, records).await?;
        peer.address = (Ipv4Addr::LOCALHOST, proxy.port()).into();
        peer.ours = Some(Ours {
            proxy,
            home,
            records,
        });
        Ok(Some(peer))
    }
}

// === impl Peer ===

impl Peer {
    /// Finds its processes. Workers may start with the first request.
    pub fn find_processes(&mut self) {
        let server = self.server.as_ref().and_then(|server| server.child.id());
        let root = server.or_else(|| Some(self.ours.as_ref()?.proxy.pid()));
        self.tree = root.map(Tree::of);
    }

    /// Returns the most memory that its processes held.
    pub fn peak_mib(&self) -> Option<f64> {
        let peak_kib = self.tree.as_ref()?.peak_kib();
        Some(peak_kib as f64 / 1024.0)
    }
}

// === impl Server ===

impl Server {
    async fn start(
        name: PeerName,
        program: &Path,
        upstream: SocketAddr,
    ) -> Result<(Self, SocketAddr)> {
        // None of them can choose a port itself; this one was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let folder = tempfile::tempdir()?;
        let mut command = match name {
            PeerName::Litellm => litellm(program, folder.path(), upstream, address)?,
            PeerName::Portkey => portkey(program, address),
            _ => nginx(program, folder.path(), upstream, address)?,
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let listens = async || {
            if let Some(status) = child.try_wait()? {
                bail!("it ended with {status}");
            }
            Ok(TcpStream::connect(address).await.ok().map(drop))
        };
        let listening = found(LISTENS_WITHIN, listens).await;
        listening.context("it does not listen")?;
        let server = Self {
            child,
            _folder: folder,
        };
        Ok((server, address))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = self.child.id() {
            // One that has ended already is as good.
            let _ = signal(pid, Signal::TERM);
        }
    }
}

fn nginx(
    program: &Path,
    folder: &Path,
    upstream: SocketAddr,
    address: SocketAddr,
) -> Result<Command> {
    let config = NGINX.replace("UPSTREAM", &upstream.to_string());
    let config = config.replace("ADDRESS", &address.to_string());
    // As root, workers would change to a user that may not enter the folder.
    let user = if getuid().is_root() {
        "user root;\n"
    } else {
        ""
    };
    fs::write(folder.join("nginx.conf"), format!("{user}{config}"))?;
    let mut command = Command::new(program);
    // The prefix ends in a slash, because nginx only joins the two.
    let prefix = format!("{}/", folder.display());
    command.args(["-p", &prefix, "-c", "nginx.conf", "-e", "error.log"]);
    Ok(command)
}

fn litellm(
    program: &Path,
    folder: &Path,
    upstream: SocketAddr,
    address: SocketAddr,
) -> Result<Command> {
    let config = folder.join("config.yaml");
    fs::write(&config, LITELLM.replace("UPSTREAM", &upstream.to_string()))?;
    let n_workers = thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new(program);
    command.arg("--config").arg(config);
    command.args(["--host", "127.0.0.1", "--telemetry", "False"]);
    command.args(["--port", &address.port().to_string()]);
    command.args(["--num_workers", &n_workers.to_string()]);
    // It would ask the network for prices, and refuses to start without a key of its own.
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    command.env(
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY",
        "true",
    );
    command.stderr(Stdio::null());
    Ok(command)
}

fn portkey(program: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new("node");
    command.arg(program).arg("--headless");
    command.arg(format!("--port={}", address.port()));
    command
}

// === impl Ours ===

impl Ours {
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
        Ok(Counts {
            n_recorded: count("recorded")?,
            n_lost: lost.into_iter().map(count).sum::<Result<u64>>()?,
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

async fn start_ours(bin_dir: &Path, upstream: SocketAddr, records: bool) -> Result<(Home, Proxy)> {
    let config = format!(
        "mode: skills_only\nllm: {{api_base: 'http://{upstream}/v1'}}\njudge: {{kind: rules}}\nturns: {{enabled: {records}}}\n"
    );
    // A line for every turn is its access log, and nginx runs without one.
    let home = Home::new(bin_dir, &config).with_env("RUST_LOG", "warn");
    let write = |name: String, text: String| {
        let file = home.path().join("skills").join(name);
        fs::create_dir_all(file.parent().context("a file has a folder")?)?;
        anyhow::Ok(fs::write(file, text)?)
    };
    // Wishes belong to an agent: the small requests name none, and the large ones name OpenClaw's first.
    for agent in ["_default", "main"] {
        let wishes = format!("- Answer in one sentence.\n- {LESSON} and rounded to the cent.\n");
        write(format!("{agent}/WISHES.md"), wishes)?;
    }
    for (name, description) in SKILLS {
        let step =
            "- Look at what the owner has of it before you ask, and say where you found it.\n";
        let head =
            format!("---\nname: {name}\ndescription: {description}\n---\n# {description}\n\n");
        write(format!("{name}/SKILL.md"), head + &step.repeat(12))?;
    }
    let proxy = home.start().await?;
    Ok((home, proxy))
}
