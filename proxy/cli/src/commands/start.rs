//! `metaclaw start`: reads the settings, builds the app, runs it until a signal, drains.

use std::{io::Write, net::TcpListener, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, anyhow};
use clap::{ArgAction, Args};
use metaclaw_control::{home::Home, instance::LogOpening};
use metaclaw_settings::{
    CloudError, Loaded, LogSettings, Policy, PolicyError, readable_by_others, without_effect,
};
use rustix::fs::Mode;
use tokio::runtime::Handle;
use tracing::{info, warn};
use tracing_appender::non_blocking::ErrorCounter;

use super::{
    calling::instance,
    consent,
    context::{Context, runtime},
    doctor::faults_of_models,
};
use crate::{
    assemble::{self, Start, estimate_day, offered_models},
    daemon::{self, ReadyMessage},
    limits,
    logging::{self, LogGate, Logging},
    out,
    site::Site,
    wires::WireLinks,
};

mod first;

/// How long the banner waits for the lists of models.
const MODELS: Duration = Duration::from_secs(2);

#[derive(Debug, Default, Args)]
pub(crate) struct StartArgs {
    /// The file of settings. Without it, config.yaml in the home folder.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What learns: skills_only (wishes and skills), auto (weights too, while you are away) or rl (weights at any time).
    #[arg(short, long)]
    mode: Option<String>,
    /// Go to the background once the proxy listens. Its log is metaclaw.log in the home folder.
    #[arg(short, long)]
    daemon: bool,
    /// Report more: -v what MetaClaw's own parts do, -vv every detail. The setting log.level does the same for every
    /// start; RUST_LOG comes before both.
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    #[command(flatten)]
    agent: first::AgentArgs,
    /// Say on standard output, as JSON, that it listens: for `-d`.
    #[arg(long, hide = true)]
    tell_parent: bool,
    /// Listen on the socket that is the standard input: for `-d` and the service unit.
    #[arg(long, hide = true)]
    listen_on_stdin: bool,
}

// === impl StartArgs ===

impl StartArgs {
    pub(super) fn in_background() -> Self {
        Self {
            daemon: true,
            ..Self::default()
        }
    }

    pub(super) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        if !self.tell_parent {
            // What we make is for its owner alone.
            rustix::process::umask(Mode::RWXG | Mode::RWXO);
            let loaded = context.settings(self.config.clone(), self.flags(context))?;
            let of_proxy = Context {
                home: self.home(context)?,
                ..context.clone()
            };
            first::prepare(&of_proxy, &loaded, self.config.as_deref(), &self.agent)?;
        }
        self.settle_consent(context)?;
        if self.daemon {
            let home = self.home(context)?;
            let socket = self.socket(context, &home);
            return daemon::start(&home, &self.forwarded(context), socket);
        }
        let file = self.tell_parent.then(|| self.home(context)).transpose()?;
        let file = file.map(|home| home.log_file());
        // Settings that cannot be read are refused below, and the log tells.
        let settings = context.settings(self.config.clone(), self.flags(context));
        let log = settings.map_or_else(|_| LogSettings::default(), |loaded| loaded.config.log);
        let Logging {
            traces,
            dropped,
            gate,
            writer,
            bad_filter,
        } = logging::begin(&context.environment, &log.level, file)?;
        traces.log_target();
        let ended = self.serve(context, dropped, gate.clone(), bad_filter);
        traces.end();
        logging::end(&gate, writer);
        ended
    }

    fn serve(
        self,
        context: &Context,
        dropped_lines: ErrorCounter,
        gate: LogGate,
        bad_filter: Option<String>,
    ) -> anyhow::Result<ExitCode> {
        // What we make is for its owner alone, and what the trainer makes, which inherits this: weights
        // are learned from what was said.
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
        let home = self.home(context)?;
        limits::raise_open_files();
        let mut loaded = context.settings(self.config.clone(), self.flags(context))?;
        let open_home = readable_by_others(home.dir());
        loaded
            .notices
            .extend(bad_filter.into_iter().chain(open_home));
        for unknown in &loaded.unknown {
            warn!("{unknown}");
        }
        for notice in &loaded.notices {
            warn!("{notice}");
        }
        let checked = loaded.check();
        checked.map_err(|error| anyhow!(loaded.with_origin(&format!("{error:#}"))))?;
        let policy = policy(context, &mut loaded)?;
        loaded.inert.extend(without_effect(&loaded.config));
        home.create()
            .with_context(|| format!("cannot make the home folder {}", home.dir().display()))?;
        let lock = home.lock("start")?;
        let version = env!("CARGO_PKG_VERSION");
        info!(version, home = %home.dir().display(), "metaclaw starts");
        let tell_parent = self.tell_parent;
        let agents = WireLinks::new(
            &home,
            &context.environment,
            &loaded.config,
            &policy,
            !self.agent.no_wire,
        );
        let start = Start {
            config_name: self.config.unwrap_or_else(|| context.home.config()),
            site: Site::new(home, context.environment.clone()),
            loaded,
            policy,
            agents,
            listens_on_stdin: self.listen_on_stdin,
            dropped_lines,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let config = start.loaded.config.clone();
        let ended = runtime.block_on(assemble::run(start, move |mut ready| {
            let checked = tokio::time::timeout(MODELS, faults_of_models(&config));
            for fault in Handle::current().block_on(checked).unwrap_or_default() {
                warn!("{fault}");
                ready.warnings.push(fault);
            }
            if let Err(error) = announce(tell_parent, &ready) {
                warn!(%error, "the banner cannot be printed");
            }
            gate.open();
        }));
        // What still blocks, as a store that hangs, is not waited for.
        runtime.shutdown_background();
        drop(lock);
        ended
    }

    /// Whose files this proxy has: the home's own, or, where `--port` is not the port of the settings, those
    /// of that port.
    fn home(&self, context: &Context) -> anyhow::Result<Home> {
        let given = context.port.as_ref().and_then(|port| port.parse().ok());
        Ok(match given {
            Some(port) if !context.starts_at(port, self.config.clone())? => {
                context.home.instance(port)
            }
            _ => context.home.clone(),
        })
    }

    /// The port of the settings, opened; none where the proxy that is about to start will say why it cannot be.
    fn socket(&self, context: &Context, home: &Home) -> Option<TcpListener> {
        if home.holder().ok()?.is_some() {
            return None;
        }
        let loaded = context
            .settings(self.config.clone(), self.flags(context))
            .ok()?;
        TcpListener::bind(loaded.config.gateway.proxy.address()).ok()
    }

    /// Asks what is asked once, where a person can answer. What else is wrong with the settings is told later.
    fn settle_consent(&self, context: &Context) -> anyhow::Result<()> {
        let Ok(mut loaded) = context.settings(self.config.clone(), self.flags(context)) else {
            return Ok(());
        };
        let Ok(policy) = policy(context, &mut loaded) else {
            return Ok(());
        };
        context.home.create()?;
        let file = self.config.clone().unwrap_or_else(|| context.home.config());
        consent::settle(&loaded.config, &policy, &file, || {
            day_at_service(context, &loaded)
        })
    }

    fn flags(&self, context: &Context) -> Vec<(&'static str, String)> {
        let levels = [None, Some("debug"), Some("trace")];
        let level = levels[usize::from(self.verbose.min(2))].map(str::to_owned);
        let given = [
            ("proxy.port", context.port.clone()),
            ("mode", self.mode.clone()),
            ("log.level", level),
        ];
        let given = given.into_iter();
        given
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }

    fn forwarded(&self, context: &Context) -> Vec<String> {
        let mut arguments = vec!["start".to_owned(), "--tell-parent".to_owned()];
        let config = self.config.as_ref().map(|one| one.display().to_string());
        let home = Some(context.home.shared().display().to_string());
        for (name, value) in [
            ("--home", &home),
            ("--config", &config),
            ("--port", &context.port),
            ("--mode", &self.mode),
        ] {
            if let Some(value) = value {
                arguments.extend([name.to_owned(), value.clone()]);
            }
        }
        if self.agent.no_wire {
            arguments.push("--no-wire".to_owned());
        }
        arguments.extend((0..self.verbose).map(|_| "-v".to_owned()));
        arguments
    }
}

/// Reads which model is trained, and where. A service for which `rl.model` names none is asked what it offers.
fn policy(context: &Context, loaded: &mut Loaded) -> anyhow::Result<Policy> {
    let cache = context.environment.cache();
    let unnamed = match Policy::from_config(&loaded.config, &cache) {
        Err(PolicyError::Cloud(CloudError::NoModel { unnamed, .. })) => unnamed,
        read => return Ok(read?),
    };
    let site = Site::new(context.home.clone(), context.environment.clone());
    let asked = runtime()?.block_on(offered_models(&loaded.config, &site, &unnamed));
    let who = unnamed.who();
    let unlisted = format!("rl.model is not set, and {who} does not list its models");
    let offered = asked.context(unlisted)?;
    let model = unnamed.choose(&offered, loaded.config.llm.model_id.as_deref())?;
    info!(model, "rl.model is not set: the model of llm.* is trained");
    loaded.config.rl.model = Some(model.into());
    Ok(Policy::from_config(&loaded.config, &cache)?)
}

/// What a day at the training server may take, by the turns of the last days; none where there are none, or where the log
/// cannot be read now: then the start says why.
fn day_at_service(context: &Context, loaded: &Loaded) -> Option<String> {
    if !context.home.turns().exists() {
        return None;
    }
    runtime().ok()?.block_on(async {
        let files = instance(context, "start", LogOpening::Copied);
        let day = estimate_day(&loaded.config, files.log().await.ok()?).await;
        files.close().await;
        day
    })
}

fn announce(parent: bool, ready: &ReadyMessage) -> std::io::Result<()> {
    if parent {
        out::line(serde_json::to_string(ready)?)?;
        info!("{}", ready.banner);
        return std::io::stdout().flush();
    }
    out::line(&ready.banner)
}
