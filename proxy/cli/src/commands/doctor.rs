//! `metaclaw doctor`: what is wrong, and what to do about it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::ExitCode};

use clap::Args;
use futures_util::future::join_all;
use metaclaw_chat::now_ms;
use metaclaw_control::{
    client::ControlClient,
    home::{Home, RunFile},
    operation::with_causes,
    operations::process::GetStatus,
    policy_context::too_short,
};
use metaclaw_settings::{
    Config, Loaded, Policy, SettingsError,
    address::{host, is_bedrock, is_here},
};
use metaclaw_turns::ClockReadings;

use self::check::{CheckOutcome, DoctorCheck};
use super::{
    context::Context,
    models::{ModelList, ModelServer, list_url, lists, missed},
    status::why_unready,
};
use crate::{model_context::of_folder, out};

mod agent;
mod check;
mod turns;

const LITTLE: u64 = 500 << 20;
const UPSTREAM: &str = "upstream";
/// The least width of the names of checks.
const NARROWEST: usize = 9;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Repair what can be repaired: modes of files, turns of logs that were set aside, files of agents after a crash.
    #[arg(long)]
    fix: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl DoctorArgs ===

impl DoctorArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let checks = self.checks(context).await;
        if self.json {
            out::json(&checks)?;
        } else {
            let names = checks.iter().map(|check| check.name.len());
            let width = names.fold(NARROWEST, usize::max);
            for check in &checks {
                out::line(check.line(width))?;
            }
        }
        let is_well = checks.iter().all(|check| check.is != CheckOutcome::Bad);
        Ok(if is_well {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    async fn checks(&self, context: &Context) -> Vec<DoctorCheck> {
        let file = context.settings_file();
        let loaded = context.settings_of(file.clone());
        let mut checks = vec![settings(context, &file, &loaded)];
        checks.extend(check_home(context, self.fix));
        let Ok(loaded) = loaded else {
            return checks;
        };
        let (check, running) = check_proxy(context, &loaded).await;
        checks.push(check);
        checks.extend(check_context(context, &loaded).await);
        checks.extend(turns::checks(context, &loaded, running.is_some(), self.fix).await);
        checks.extend(agent::checks(
            context,
            &loaded.config,
            running.as_deref(),
            self.fix,
        ));
        checks.extend(check_skills(&loaded.config));
        checks.extend(check_upstreams(&loaded.config).await);
        checks.push(DoctorCheck::note(
            "service",
            super::service::status(&context.environment),
        ));
        checks
    }
}

fn settings(context: &Context, path: &Path, loaded: &Result<Loaded, SettingsError>) -> DoctorCheck {
    const NAME: &str = "settings";
    let read = || -> Result<_, String> {
        let loaded = loaded.as_ref().map_err(ToString::to_string)?;
        let relays = context.relays(&loaded.config);
        Ok((loaded, relays.map_err(|error| error.to_string())?))
    };
    let (loaded, relays) = match read() {
        Ok(known) => known,
        Err(error) => {
            let remedy = "correct the file, or move it away and run `metaclaw setup`";
            return DoctorCheck::bad(NAME, error, remedy);
        }
    };
    let unknown: Vec<String> = loaded.unknown.iter().map(ToString::to_string).collect();
    let (file, mode) = (path.display(), loaded.config.learner.mode.as_str());
    match (path.exists(), unknown.is_empty()) {
        (false, true) if relays => {
            let said = format!("from the environment, without {file} (mode {mode})");
            DoctorCheck::fine(NAME, said)
        }
        (false, _) if !relays => DoctorCheck::bad(
            NAME,
            format!("{file} is not there, so there is no model to relay to"),
            "`metaclaw wire` lists the agents that are here, and relays what one asks; `metaclaw setup` asks for a provider",
        ),
        (_, false) => DoctorCheck::note(NAME, unknown.join("; ")),
        (_, true) => DoctorCheck::fine(NAME, format!("{file} (mode {mode})")),
    }
}

fn check_home(context: &Context, fix: bool) -> Vec<DoctorCheck> {
    let dir = context.home.dir();
    if !dir.exists() {
        let said = format!("{} is not there", dir.display());
        return vec![DoctorCheck::note("home", said)];
    }
    let mut checks = vec![writable(dir)];
    let config = context.home.config();
    checks.extend(private(dir, 0o700, fix));
    checks.extend(private(&config, 0o600, fix));
    checks.push(disk(dir));
    checks.extend(clock(&context.home));
    checks
}

fn writable(dir: &Path) -> DoctorCheck {
    let probe = dir.join(format!(".doctor.{}.tmp", std::process::id()));
    let tried = fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe));
    match tried {
        Ok(()) => DoctorCheck::fine("home", dir.display().to_string()),
        Err(error) => DoctorCheck::bad(
            "home",
            format!("{} cannot be written: {error}", dir.display()),
            format!("see who owns it: `ls -ld {}`", dir.display()),
        ),
    }
}

fn private(path: &Path, wanted: u32, fix: bool) -> Option<DoctorCheck> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let for_others = mode & 0o077;
    if for_others == 0 {
        return None;
    }
    let remedy = format!("chmod {wanted:o} {}", path.display());
    let said = format!("{} is open to others ({mode:o})", path.display());
    if !fix {
        return Some(DoctorCheck::bad(
            "home",
            said,
            format!("{remedy}, or `metaclaw doctor --fix`"),
        ));
    }
    Some(
        match fs::set_permissions(path, fs::Permissions::from_mode(wanted)) {
            Ok(()) => DoctorCheck::mended("home", remedy),
            Err(error) => DoctorCheck::bad("home", format!("{said}: {error}"), remedy),
        },
    )
}

/// Whether the machine's clock is far from where it was when the proxy ran last. Nothing is said if it never ran.
fn clock(home: &Home) -> Option<DoctorCheck> {
    let doubt = ClockReadings::read(&home.turns()).doubt(now_ms())?;
    Some(DoctorCheck::bad("clock", doubt, "`date` shows it"))
}

fn disk(dir: &Path) -> DoctorCheck {
    let free = match rustix::fs::statvfs(dir) {
        Ok(it) => it.f_bavail.saturating_mul(it.f_frsize),
        Err(error) => return DoctorCheck::note("disk", format!("cannot be asked: {error}")),
    };
    let said = format!("{} MiB free", free >> 20);
    if free < LITTLE {
        DoctorCheck::bad(
            "disk",
            said,
            "make room: chats go on without it, and turns are not kept",
        )
    } else {
        DoctorCheck::fine("disk", said)
    }
}

async fn check_proxy(context: &Context, loaded: &Loaded) -> (DoctorCheck, Option<String>) {
    match ControlClient::of_running(&context.home).await {
        Err(error) => (
            DoctorCheck::bad("proxy", error.to_string(), "`metaclaw stop`, then start"),
            None,
        ),
        Ok(None) => (stopped(loaded), None),
        Ok(Some(client)) => {
            let status = client.call(&GetStatus).await;
            let run = context.home.run_file().ok().flatten();
            match (status, run) {
                (Ok(_), Some(run)) => (ready(&run).await, Some(run.base_url)),
                (Ok(_), None) => (DoctorCheck::note("proxy", "it is just ending"), None),
                (Err(error), _) => {
                    let remedy = "`metaclaw stop`, then start; metaclaw.log tells more";
                    (DoctorCheck::bad("proxy", error.to_string(), remedy), None)
                }
            }
        }
    }
}

fn stopped(loaded: &Loaded) -> DoctorCheck {
    let address = loaded.config.gateway.proxy.address();
    match std::net::TcpListener::bind(address) {
        Ok(_) => DoctorCheck::note(
            "proxy",
            format!("not running; {address} is free: `metaclaw start`"),
        ),
        Err(error) => DoctorCheck::bad(
            "proxy",
            format!("not running, and {address} cannot be taken: {error}"),
            "`metaclaw config proxy.port 0` takes any free port; `ss -ltnp` says who has this one",
        ),
    }
}

async fn ready(run: &RunFile) -> DoctorCheck {
    let at = format!("running at {} (process {})", run.base_url, run.pid);
    match why_unready(run).await {
        Ok(None) => DoctorCheck::fine("proxy", at),
        Ok(Some(why)) => DoctorCheck::bad(
            "proxy",
            format!("{at}, and not ready: {why}"),
            "see the upstreams below; `metaclaw logs` has the whole story",
        ),
        Err(error) => DoctorCheck::bad(
            "proxy",
            format!("{at}, and silent: {}", with_causes(&error)),
            "`metaclaw stop`, then start",
        ),
    }
}

fn check_skills(config: &Config) -> Option<DoctorCheck> {
    let said = config.missing_skills()?;
    let remedy =
        "put skills there, or `metaclaw config unset skills.dir`: the shipped ones are used then";
    Some(DoctorCheck::bad("skills", said, remedy))
}

/// Returns a note if the policy model's context is too short for OpenClaw. Returns `None` if it is long enough or not
/// known. A model in a folder states its context; that of any other model is known to the running proxy.
async fn check_context(context: &Context, loaded: &Loaded) -> Option<DoctorCheck> {
    let tokens = match of_running(context).await {
        Some(tokens) => Some(tokens),
        None => of_model(context, loaded),
    };
    Some(DoctorCheck::note("context", too_short(tokens?)?))
}

async fn of_running(context: &Context) -> Option<u64> {
    let client = ControlClient::of_running(&context.home).await.ok()??;
    client.call(&GetStatus).await.ok()?.context
}

fn of_model(context: &Context, loaded: &Loaded) -> Option<u64> {
    match Policy::from_config(&loaded.config, &context.environment.cache()).ok()? {
        Policy::Local { model } => of_folder(&model).map(u64::from),
        Policy::None | Policy::Remote { .. } | Policy::Cloud(_) => None,
    }
}

/// An upstream of the settings.
struct NamedUpstream<'a> {
    server: ModelServer,
    model: Option<&'a str>,
    /// The keys of its address, its key and its model.
    keys: [String; 3],
}

async fn check_upstreams(config: &Config) -> Vec<DoctorCheck> {
    let all = upstreams(config);
    if all.is_empty() {
        let none = "none is configured (llm.api_base)";
        return vec![DoctorCheck::note(UPSTREAM, none)];
    }
    join_all(all.iter().map(NamedUpstream::check)).await
}

/// What is wrong with the upstreams for which the settings name a model and whose list can be asked for.
pub(super) async fn faults_of_models(config: &Config) -> Vec<String> {
    let is_listed = |one: &&NamedUpstream<'_>| {
        one.model.is_some() && (one.server.key.is_some() || is_here(&one.server.base))
    };
    let all = upstreams(config);
    let checks = join_all(all.iter().filter(is_listed).map(NamedUpstream::check)).await;
    let faults = checks.iter().filter(|check| check.is == CheckOutcome::Bad);
    faults.map(DoctorCheck::fault).collect()
}

fn upstreams(config: &Config) -> Vec<NamedUpstream<'_>> {
    let llm = &config.llm;
    let own = llm.api_base.as_ref().map(|base| NamedUpstream {
        server: ModelServer {
            base: base.clone(),
            key: llm.api_key.clone(),
        },
        model: llm.model_id.as_deref(),
        keys: ["api_base", "api_key", "model_id"].map(|key| format!("llm.{key}")),
    });
    let others = config.gateway.upstreams.iter();
    let others = others.filter_map(|(name, upstream)| {
        Some(NamedUpstream {
            server: ModelServer {
                base: upstream.address()?.to_owned(),
                key: upstream.keys.first().cloned(),
            },
            model: upstream.model.as_deref(),
            keys: ["url", "keys", "model"].map(|key| format!("upstreams.{name}.{key}")),
        })
    });
    own.into_iter().chain(others).collect()
}

// === impl NamedUpstream ===

impl NamedUpstream<'_> {
    async fn check(&self) -> DoctorCheck {
        let (note, fine) = (DoctorCheck::note, DoctorCheck::fine);
        let base = &self.server.base;
        if is_bedrock(base) {
            let said = format!("{}: not tried, because it lists no models", host(base));
            return note(UPSTREAM, said);
        }
        let url = list_url(base);
        let [url_key, secret_key, model_key] = &self.keys;
        let (said, remedy) = match (self.server.models().await, self.model) {
            (ModelList::Listed(listed), Some(model)) if !lists(&listed, model) => (
                format!("{url} answers, and {}", missed(model, &listed)),
                format!("`metaclaw config {model_key} NAME`, then stop and start"),
            ),
            (ModelList::Refused { status, .. }, _) if self.server.key.is_some() => (
                format!("{url} refuses the key ({status})"),
                format!("`metaclaw config {secret_key} KEY`, then stop and start"),
            ),
            (ModelList::Missing(status), _) if status.is_server_error() => (
                format!("{url} answers {status}"),
                "it is the provider's: try again later".to_owned(),
            ),
            (ModelList::Unreachable(why), _) => (
                format!("{url}: {why}"),
                format!("check {url_key}, and the way there (HTTPS_PROXY, upstreams.NAME.proxy)"),
            ),
            (ModelList::Listed(_), _) => return fine(UPSTREAM, format!("{url} answers")),
            (ModelList::Refused { .. }, _) => {
                let said = format!("{url} answers; the key is the agent's own");
                return fine(UPSTREAM, said);
            }
            (ModelList::Missing(status), _) => {
                let said = format!("{url} answers {status}: it is there, and lists no models");
                return note(UPSTREAM, said);
            }
        };
        DoctorCheck::bad(UPSTREAM, said, remedy)
    }
}
