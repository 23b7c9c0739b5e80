//! What the learner does, and how far each agent's weights are.

use metaclaw_chat::Span;
use metaclaw_learner::{AgentStatus, Declined, LearnerStatus, Phase, StepReport, SupportCounts};

use crate::out;

pub(super) fn learner_lines(learner: &LearnerStatus, now_ms: u64) -> Vec<String> {
    let judging = &learner.judging;
    let mut lines = vec![
        format!(
            "learner: {}; turns that wait for a verdict: {}",
            doing(&learner.phase, now_ms),
            judging.waiting
        ),
        format!("window:  {}  (metaclaw scheduler status)", learner.window),
    ];
    let hearing = &learner.hearing;
    if hearing.waiting > 0 {
        let messages = out::count(hearing.waiting as u64, "message");
        let why = if hearing.is_held_back {
            "not read yet: today's tokens for learning are used up (budget.*)"
        } else {
            "to be read together soon (wishes.wait)"
        };
        lines.push(format!("wishes:  {messages} of yours {why}"));
    }
    if let Some(why) = &judging.failing {
        lines.push(format!("judge:   does not answer: {why}"));
    }
    // Where no weights learn there are no samples and no steps to tell of.
    if learner.phase != Phase::Off {
        let agents = learner.agents.iter();
        lines.extend(agents.flat_map(|agent| agent_lines(agent, learner.batch_size, now_ms)));
        if learner.n_more > 0 {
            lines.push(format!(
                "agents:  {} more with fewer turns, and without a step",
                learner.n_more
            ));
        }
    }
    lines
}

fn doing(phase: &Phase, now_ms: u64) -> String {
    let until = |until_ms: u64| out::span(until_ms.saturating_sub(now_ms));
    match phase {
        Phase::Off => "no weights are trained".to_owned(),
        Phase::Collecting => "collects judged replies".to_owned(),
        Phase::AwaitingRequest => "a batch is ready: `metaclaw train-step` trains it (none is trained by itself: rl.manual_train_trigger is true, or gate.enabled is false in mode auto)".to_owned(),
        Phase::AwaitingWindow => "a batch is ready, and waits until you are away".to_owned(),
        Phase::Teaching { agent, .. } => format!("the teacher answers a turn of {agent}"),
        Phase::Stepping { agent, .. } => format!("trains a step of {agent}"),
        Phase::Paused { agent } => format!("a step for {agent} pauses while you chat"),
        Phase::Testing { agent, .. } => format!("tests the new weights of {agent}"),
        Phase::WaitingForTrainer { why } => format!("waits for the training server: {why}"),
        Phase::Refused { why, until_ms } => format!(
            "the training server refuses: {why}; it is asked again in {}",
            until(*until_ms)
        ),
        Phase::Resting { why, until_ms, .. } => {
            format!("rests: {why}; the next try is in {}", until(*until_ms))
        }
        Phase::Finished { n_steps, .. } => {
            format!("has made the {n_steps} steps of rl.max_steps")
        }
    }
}

fn agent_lines(agent: &AgentStatus, batch_size: usize, now_ms: u64) -> Vec<String> {
    let adapter = agent.adapter.as_deref().unwrap_or("the base model");
    let waiting = match agent.n_unanswered {
        0 => String::new(),
        n => format!(", {n} that wait for the teacher's reply"),
    };
    let last = match &agent.last_step {
        Some(step) => format!("last step {}{}", step.n, again_samples(step)),
        None => "no step yet".to_owned(),
    };
    let mut lines = vec![format!(
        "agent:   {} on {adapter}; {} taught and {} judged replies ready to train on (a batch: {batch_size}){waiting}; {last}",
        agent.agent, agent.n_redo, agent.n_binary_rl
    )];
    for (why, n) in &agent.not_taught {
        lines.push(format!("         {n} not taught: {why}"));
    }
    if agent.support != SupportCounts::default() {
        let SupportCounts { own, strict } = agent.support;
        lines.push(format!(
            "         support: rl.support_query excludes the verdicts of {own} waiting turns with own, and of {strict} with strict"
        ));
    }
    lines.extend(agent.declined.iter().flat_map(|one| declined(one, now_ms)));
    if let Some(taken_back) = &agent.taken_back {
        lines.push(format!(
            "         taken back: {}, as verdicts got worse: {}",
            taken_back.adapter, taken_back.why
        ));
    }
    if let Some(began_anew) = &agent.began_anew {
        let why = &began_anew.why;
        lines.push(format!("         its weights began anew: {why}"));
    }
    lines
}

fn again_samples(step: &StepReport) -> String {
    match step.n_again {
        0 => String::new(),
        n => format!(" ({n} of {} taught replies used again)", step.n_redo),
    }
}

fn declined(declined: &Declined, now_ms: u64) -> Vec<String> {
    let in_a_row = match declined.in_a_row {
        0 | 1 => String::new(),
        n => format!(", {n} in a row"),
    };
    let mut lines = vec![format!(
        "         declined: {}{in_a_row}: {}",
        declined.adapter, declined.why
    )];
    if let Some(until_ms) = declined.rests_until_ms {
        let rest = Span::secs(until_ms.saturating_sub(now_ms) / 1_000);
        let n = declined.rest_verdicts;
        lines.push(format!(
            "         training pauses for {rest}, or until {n} more turns are judged; its wishes stay in the prompt"
        ));
    }
    lines
}
