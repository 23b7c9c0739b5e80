//! `metaclaw status`: how the running process is.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use metaclaw_chat::{Span, now_ms};
use metaclaw_control::{
    client::ControlClient,
    figures::broken_line,
    home::{Home, RunFile},
    operations::process::GetStatus,
    policy_context::too_short,
    privacy,
    status::{LogStatus, LostAdapter, ProcessStatus},
    token_budget::Spend,
    waiting::WaitingReviews,
};
use metaclaw_gateway::UpstreamAnswers;
use metaclaw_learner::Phase;
use metaclaw_llm::loopback_client;
use metaclaw_skills::ShareReport;
use metaclaw_trainer_api::wire::{Inference, InferenceState};
use metaclaw_turns::Funnel;
use metaclaw_wiring::WireStanding;
use serde::Serialize;
use serde_json::json;

use self::learner::learner_lines;
use super::{context::Context, exit};
use crate::{
    out,
    wires::{agent_name, wires},
};

mod learner;

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Only say whether a chat would be answered now; the exit code is 1 if not. For health checks.
    #[arg(long, conflicts_with = "json")]
    ready: bool,
}

#[derive(Debug, Serialize)]
struct RunningStatus {
    #[serde(flatten)]
    status: ProcessStatus,
    running: bool,
}

// === impl StatusArgs ===

impl StatusArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let Some(client) = ControlClient::of_running(&context.home).await? else {
            return not_running(context, self.json);
        };
        if self.ready {
            let run = context.home.run_file()?.context("it is just ending")?;
            let why = why_unready(&run).await?;
            out::line(why.as_deref().unwrap_or("ready"))?;
            return Ok(ExitCode::from(u8::from(why.is_some())));
        }
        let status = client.call(&GetStatus).await?;
        if self.json {
            let running = true;
            out::json(&RunningStatus { status, running })?;
        } else {
            out::line(text(&status, now_ms()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn not_running(context: &Context, json: bool) -> anyhow::Result<ExitCode> {
    let home = context.home.dir().display().to_string();
    let elsewhere = context
        .demo()
        .filter(|demo| matches!(demo.holder(), Ok(Some(_))))
        .map(|demo| demo.dir().display().to_string());
    let agents = still_pointed(&context.home);
    if json {
        out::json(&json!({
            "running": false, "home": home, "elsewhere": elsewhere, "agents": agents,
        }))?;
        return Ok(ExitCode::from(exit::NOT_RUNNING));
    }
    let flag = context.home.flag();
    out::line(format!(
        "MetaClaw: not running in {home}: `metaclaw start -d{flag}` starts it"
    ))?;
    if !agents.is_empty() {
        out::line(format!(
            "still pointed at it: {}. `metaclaw start` answers them again; `metaclaw doctor --fix` puts their files back",
            agents.join(", ")
        ))?;
    }
    for port in context.home.running_instances() {
        out::line(format!(
            "another runs on port {port}: metaclaw status --port {port}"
        ))?;
    }
    if let Some(demo) = elsewhere {
        out::line(format!(
            "the demo runs: METACLAW_HOME={demo} before a command is about that one"
        ))?;
    }
    Ok(ExitCode::from(exit::NOT_RUNNING))
}

/// Why nobody would answer a chat now.
///
/// # Errors
/// If the proxy does not say it.
pub(super) async fn why_unready(run: &RunFile) -> anyhow::Result<Option<String>> {
    let url = format!("{}/readyz", run.origin());
    let answer = loopback_client()?.get(&url).send().await?;
    if answer.status().is_success() {
        return Ok(None);
    }
    let said: serde_json::Value = answer.json().await.unwrap_or_default();
    let why = said["reason"].as_str();
    let why = why.unwrap_or("no upstream answers: `metaclaw status` has the last failures");
    Ok(Some(why.to_owned()))
}

/// The agents whose files name a proxy of this home, by their common names.
fn still_pointed(home: &Home) -> Vec<String> {
    let wires = wires(home);
    let is_pointed = |agent: &String| wires.standing(agent).is_ok_and(WireStanding::is_pointed);
    let agents = wires.agents().unwrap_or_default().into_iter();
    let pointed = agents.filter(is_pointed);
    pointed.map(|agent| agent_name(&agent).to_owned()).collect()
}

fn text(status: &ProcessStatus, now_ms: u64) -> String {
    let about = &status.about;
    let up = match now_ms.saturating_sub(status.since_ms) / 1_000 {
        0 => "less than a second".to_owned(),
        seconds => Span::secs(seconds).to_string(),
    };
    let mut lines = vec![format!(
        "MetaClaw: running  (PID={}, mode={}, proxy={}, for {up})",
        status.pid, about.mode, status.proxy,
    )];
    lines.extend(privacy::off_text(&status.off).map(|off| format!("off:     {off}")));
    lines.extend([
        format!("serves:  {}", about.serves),
        format!("learns:  {}", about.learns),
        format!("leaves:  {}", about.leaves.replace('\n', "\n         ")),
    ]);
    if let Some(file) = &status.config_changed {
        lines.push(format!(
            "settings: {} changed since the start: `metaclaw stop` and `metaclaw start` use it",
            file.display()
        ));
    }
    lines.extend(private(status));
    let trainer = status.trainer.as_ref();
    lines.extend(trainer.map(|one| format!("trainer: {one}")));
    let format = status.number_format.as_ref();
    lines.extend(format.map(|one| format!("format:  the trainer computes in {one}")));
    lines.extend(status.inference.as_ref().map(inference));
    lines.extend(status.lost.iter().map(lost));
    let short = too_short(status.context.unwrap_or_default());
    lines.extend(short.map(|short| format!("context: {short}")));
    let upstreams = status.upstreams.iter();
    lines.extend(upstreams.map(|(name, it)| upstream(name, it, now_ms)));
    lines.extend(status.unread().map(|unread| format!("unread:  {unread}")));
    lines.push(funnel(&status.funnel, trains(status)));
    for (why, n) in &status.funnel.spent {
        lines.push(format!("         {n} not used: {why}"));
    }
    lines.extend(log(&status.log));
    lines.extend(
        status
            .learner
            .iter()
            .flat_map(|learner| learner_lines(learner, now_ms)),
    );
    lines.push(format!("today:   {}", spend(&status.spend)));
    let verdicts = status.verdicts.line();
    lines.extend(verdicts.map(|line| format!("replies: today {line}")));
    lines.extend(prompt_cache(status, now_ms));
    let cloud = status.cloud.as_ref();
    lines.extend(cloud.map(|cloud| format!("cloud:   {}", cloud.line())));
    lines.extend(review(status).map(|review| format!("review:  {review}")));
    lines.extend(status.share.iter().flat_map(|report| share(report, now_ms)));
    if status.dropped_lines > 0 {
        lines.push(format!(
            "output:  {} log lines were dropped: nobody read them in time",
            status.dropped_lines
        ));
    }
    lines.join("\n")
}

/// Whether weights learn; where the log does not say, they may.
fn trains(status: &ProcessStatus) -> bool {
    let learner = status.learner.as_ref();
    learner.is_none_or(|learner| learner.phase != Phase::Off)
}

fn private(status: &ProcessStatus) -> Vec<String> {
    let mut lines = Vec::new();
    let (relayed, off_record) = (status.counts.relayed_only, status.counts.off_record);
    if relayed + off_record > 0 {
        lines.push(format!(
            "private: {} only relayed, {off_record} off the record: nothing of them is kept",
            out::count(relayed, "chat")
        ));
    }
    let n_others = status.counts.other_agents;
    if n_others > 0 {
        lines.push(format!(
            "agents:  {} without a key named too many agents and counted as agent _others: set proxy.api_key, or name your agents in the settings (agents.NAME)",
            out::count(n_others, "request")
        ));
    }
    lines
}

fn inference(inference: &Inference) -> String {
    let why = inference.why.as_deref().unwrap_or("?");
    let how = match inference.state {
        InferenceState::Ready => "answers".to_owned(),
        InferenceState::Away => format!("does not answer: {why}"),
        InferenceState::Refused => format!("is not asked: {why}"),
    };
    let log = match &inference.log {
        Some(log) => format!(" (started by the trainer; its output: {log})"),
        None => String::new(),
    };
    format!("vLLM:    {} {how}{log}", inference.url)
}

fn lost(lost: &LostAdapter) -> String {
    let LostAdapter {
        agent,
        adapter,
        why,
    } = lost;
    format!("adapter: {adapter} cannot serve {agent}, and the base model answers: {why}")
}

fn upstream(name: &str, it: &UpstreamAnswers, now_ms: u64) -> String {
    let counts = format!("{} answered, {} failed", it.n_good, it.n_failed);
    let Some(failed_ms) = it.last_failed_ms else {
        return format!("asked:   {name}: {counts}");
    };
    let ago = out::span(now_ms.saturating_sub(failed_ms));
    let failure = it.last_failure.as_deref().unwrap_or("?");
    if Some(failed_ms) > it.last_good_ms {
        format!("asked:   {name} fails: {failure}, {ago} ago ({counts})")
    } else {
        format!("asked:   {name}: {counts}; the last that failed: {failure}, {ago} ago")
    }
}

fn stages(funnel: &Funnel, trains: bool) -> Vec<String> {
    let main = match funnel.rollouts {
        0 => format!("{} with you", funnel.main),
        n => format!("{} with you and {n} of rollouts", funnel.main),
    };
    let mut stages = vec![
        format!("{} recorded", funnel.turns),
        main,
        format!("{} complete", funnel.complete),
    ];
    if trains {
        stages.push(format!("{} with token ids", funnel.with_ids));
    }
    stages.push(format!("{} judged", funnel.judged));
    if trains {
        stages.push(format!("{} trained on", funnel.trained));
    }
    stages
}

fn funnel(funnel: &Funnel, trains: bool) -> String {
    let at_end = match funnel.judged_at_session_end {
        0 => String::new(),
        n => format!("; {n} of the judged at the end of their session"),
    };
    let open = match funnel.taken {
        0 => String::new(),
        n => format!(" (+ {n} in an open step)"),
    };
    format!(
        "turns:   {}{open}{at_end}",
        stages(funnel, trains).join(", ")
    )
}

fn log(log: &LogStatus) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(why) = &log.broken {
        lines.push(format!("log:     nothing is captured: {why}"));
    }
    if let Some(place) = &log.moved_aside {
        lines.push(format!(
            "log:     the log was damaged and was moved to {}; an empty log began (`metaclaw doctor` checks which turns can be recovered)",
            place.display()
        ));
    }
    if log.n_lost > 0 {
        let copied = log.copied.as_ref();
        let copied = copied.map(|place| format!("; as it was, it lies in {}", place.display()));
        lines.push(format!(
            "log:     its last {} changes were lost before this start{}",
            log.n_lost,
            copied.unwrap_or_default()
        ));
    }
    lines.extend(log.clock.iter().map(|clock| format!("clock:   {clock}")));
    lines
}

fn review(status: &ProcessStatus) -> impl Iterator<Item = String> {
    let lines = status.waiting.as_ref().map(WaitingReviews::lines);
    lines.unwrap_or_default().into_iter()
}

fn share(report: &ShareReport, now_ms: u64) -> Vec<String> {
    let peers = report.peers.iter();
    let n_own = peers.clone().filter(|peer| peer.is_own).count();
    let mut lines = vec![format!(
        "share:   {} shared, {} ago; {} of yours and {} of other people there",
        out::count(report.n_published as u64, "skill"),
        out::span(now_ms.saturating_sub(report.at_ms)),
        out::count(n_own as u64, "other home"),
        peers.len() - n_own
    )];
    let problems = report.problems.iter().chain(&report.withheld);
    lines.extend(problems.take(5).map(|one| format!("share:   {one}")));
    lines
}

fn spend(spend: &Spend) -> String {
    let spent = &spend.spent;
    let failed = match spent.n_failed {
        0 => String::new(),
        n => format!(", {n} not answered"),
    };
    let share = spend
        .learning_share()
        .map(|share| format!(", {share} of the chats"));
    format!(
        "{} tokens for chats; {} for learning{} ({}{failed}; {} tokens left)",
        spent.chat,
        spent.learning,
        share.unwrap_or_default(),
        out::count(spent.n_answered, "request"),
        spend.left()
    )
}

fn prompt_cache(status: &ProcessStatus, now_ms: u64) -> Vec<String> {
    let chat = status.chat.unwrap_or_default();
    let Some(share) = chat.cache_share().percent() else {
        return Vec::new();
    };
    let share = match chat.cached {
        0 => "the provider reports none".to_owned(),
        _ => format!("{share} %"),
    };
    let broke = status.prefix.counts_line().map(|line| format!("; {line}"));
    let mut lines = vec![format!(
        "cache:   {share} of today's {} prompt tokens from the provider's cache{}",
        chat.prompt,
        broke.unwrap_or_default()
    )];
    if let Some(last) = status.prefix.latest.first() {
        let ago = out::span(now_ms.saturating_sub(last.started_ms));
        lines.push(format!("         {ago} ago, {}", broken_line(last)));
    }
    lines
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests;
