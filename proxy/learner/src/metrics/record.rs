//! The record of one step: its agent, its number, and its measurements under the names that other tools use.
//!
//! `loss/…`, `reward/…`, `gradient/norm` and `learning_rate` are names of MetaClaw's Python original; `train/…`,
//! `rollout/…` and `perf/…` are those of OpenClaw-RL and of slime, for the numbers that exist here.

use std::borrow::Cow;

use metaclaw_chat::AgentId;
use serde_json::{Map, Value, json};

use crate::{
    lineage::{BatchStats, KnownCheckpoint, Numbers},
    status::StepReport,
};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StepRecord {
    pub(crate) agent: AgentId,
    pub(crate) lineage: String,
    /// Its number in the lineage, from 1.
    pub(crate) n: u64,
    /// The number of optimiser steps in the weights, including this step and those of earlier lineages.
    pub(crate) step: u64,
    pub(crate) adapter: String,
    /// 0 for a step on rows of a data set.
    pub(crate) n_turns: usize,
    pub(crate) numbers: Numbers,
    pub(crate) batch: BatchStats,
    /// The loss on held-out rows of a data set, after the last step of an epoch.
    pub(crate) held_out_loss: Option<f64>,
    /// The time from taking its turns to serving its adapter, or `None` for a step that an earlier process began.
    pub(crate) seconds: Option<f64>,
    pub(crate) time_ms: u64,
}

pub(crate) type Scalar = (Cow<'static, str>, f64);
type NamedScalars = (&'static str, f64);

// === impl StepRecord ===

impl StepRecord {
    pub(crate) fn new(report: &StepReport) -> Self {
        Self {
            agent: report.agent.clone(),
            lineage: report.lineage.clone(),
            n: report.n,
            step: report.step,
            adapter: report.adapter.clone(),
            n_turns: report.n_turns,
            numbers: report.numbers.clone(),
            batch: report.batch.clone(),
            held_out_loss: None,
            seconds: Some(report.seconds),
            time_ms: report.ended_ms,
        }
    }

    pub(crate) fn recovered(made: &KnownCheckpoint, time_ms: u64) -> Self {
        let manifest = &made.manifest;
        Self {
            agent: manifest.agent.clone(),
            lineage: manifest.lineage.clone(),
            n: manifest.n,
            step: made.steps,
            adapter: made.name.to_string(),
            n_turns: manifest.turns.len(),
            numbers: manifest.numbers.clone(),
            batch: manifest.batch.clone(),
            held_out_loss: None,
            seconds: None,
            time_ms,
        }
    }

    /// Returns its numbers by name. A number that was not measured is left out.
    pub(crate) fn scalars(&self) -> Vec<Scalar> {
        let named = [self.rewards(), self.rollout(), self.training()];
        let named = named.into_iter().flatten();
        let mut scalars = self.losses();
        scalars.extend(named.map(|(name, value)| (name.into(), value)));
        scalars
    }

    pub(crate) fn json(&self) -> Value {
        let mut line = json!({
            "step": self.step,
            "time_ms": self.time_ms,
            "agent": self.agent,
            "lineage": self.lineage,
            "n": self.n,
            "adapter": self.adapter,
            "skipped": self.numbers.skipped,
            "samples": self.batch.samples,
        });
        let scalars = self.scalars().into_iter();
        // A number that is not finite is null, because JSON has no such number.
        let scalars: Map<String, Value> = scalars
            .map(|(name, value)| (name.into_owned(), json!(value)))
            .collect();
        if let Some(line) = line.as_object_mut() {
            line.extend(scalars);
        }
        line
    }

    fn losses(&self) -> Vec<Scalar> {
        let numbers = &self.numbers;
        let mut scalars = vec![
            ("loss/total".into(), numbers.loss),
            ("train/loss".into(), numbers.loss),
        ];
        for (method, loss) in &numbers.losses {
            match method.as_str() {
                "binary_rl" => {
                    scalars.push(("loss/binary".into(), *loss));
                    scalars.push(("train/pg_loss".into(), *loss));
                }
                "anchor" => {
                    scalars.push(("loss/anchor".into(), *loss));
                    scalars.push(("train/kl_loss".into(), *loss));
                }
                other => scalars.push((format!("loss/{other}").into(), *loss)),
            }
        }
        scalars
    }

    fn rewards(&self) -> Vec<NamedScalars> {
        let reward = self.batch.reward;
        if reward.n == 0 {
            return Vec::new();
        }
        vec![
            ("reward/mean", reward.mean),
            ("reward/std", reward.std),
            ("rollout/rewards", reward.mean),
            ("train/mean_reward", reward.mean),
            ("train/success_rate", self.batch.success_rate),
        ]
    }

    fn rollout(&self) -> Vec<NamedScalars> {
        let batch = &self.batch;
        let mut scalars = Vec::new();
        if batch.advantage.n > 0 {
            scalars.push(("rollout/advantages", batch.advantage.mean));
        }
        let length = batch.response_len;
        if length.n > 0 {
            scalars.extend([
                ("rollout/response_len/mean", length.mean),
                ("rollout/response_len/max", length.max),
                ("rollout/response_len/min", length.min),
                ("rollout/truncated_ratio", batch.truncated_ratio),
            ]);
        }
        if batch.logprob.n > 0 {
            scalars.push(("rollout/log_probs", batch.logprob.mean));
        }
        if batch.version.n > 0 {
            let behind = self.step.saturating_sub(1) as f64;
            scalars.push(("rollout/staleness", behind - batch.version.mean));
        }
        if let Some(rollouts) = batch.rollouts {
            scalars.extend([
                ("rollout/success", rollouts.success),
                ("rollout/pass@k", rollouts.pass_at_k),
                ("rollout/n", rollouts.n as f64),
                ("rollout/groups", rollouts.n_groups as f64),
                (
                    "rollout/groups_without_difference",
                    rollouts.n_without_difference as f64,
                ),
            ]);
        }
        scalars
    }

    fn training(&self) -> Vec<NamedScalars> {
        let numbers = &self.numbers;
        let mut scalars = vec![
            ("gradient/norm", numbers.grad_norm),
            ("train/grad_norm", numbers.grad_norm),
            ("learning_rate", numbers.learning_rate),
            ("train/lr-pg_0", numbers.learning_rate),
            ("train/step", self.step as f64),
            ("train/batch_size", self.batch.n_samples() as f64),
        ];
        scalars.extend((self.n_turns > 0).then_some(("rollout/turns", self.n_turns as f64)));
        scalars.extend(self.held_out_loss.map(|loss| ("eval/loss", loss)));
        if let Some(drift) = numbers.drift {
            scalars.extend([
                ("train/ppo_kl", drift.kl),
                (
                    "train/train_rollout_logprob_abs_diff",
                    drift.logprob_abs_diff,
                ),
            ]);
        }
        if numbers.n_computed > 0 {
            let computed = numbers.n_computed as f64 / numbers.n_tokens.max(1) as f64;
            scalars.push(("perf/shared_tokens", 1.0 - computed));
        }
        if numbers.train_seconds > 0.0 {
            let pace = numbers.n_tokens as f64 / numbers.train_seconds;
            scalars.extend([
                ("perf/actor_train_time", numbers.train_seconds),
                ("perf/actor_train_tok_per_s", pace),
            ]);
        }
        scalars.extend(self.seconds.map(|seconds| ("perf/step_time", seconds)));
        scalars
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::lineage::{Drift, Spread};

    pub(in crate::metrics) fn record() -> StepRecord {
        StepRecord {
            agent: AgentId::default_agent(),
            lineage: "0badcafe".to_owned(),
            n: 2,
            step: 7,
            adapter: "_default-0badcafe-000002".to_owned(),
            n_turns: 4,
            numbers: Numbers {
                loss: 1.5,
                losses: BTreeMap::from([("binary_rl".to_owned(), 0.5), ("redo".to_owned(), 1.0)]),
                grad_norm: 0.25,
                learning_rate: 5e-4,
                skipped: false,
                n_tokens: 200,
                n_computed: 150,
                train_seconds: 2.0,
                drift: Some(Drift {
                    logprob_abs_diff: 0.1,
                    kl: 0.05,
                }),
            },
            batch: BatchStats {
                samples: BTreeMap::from([("binary_rl".to_owned(), 3), ("redo".to_owned(), 1)]),
                reward: Spread::new([1.0, 1.0, -1.0, 0.0]),
                success_rate: 0.5,
                response_len: Spread::new([10.0, 20.0]),
                version: Spread::new([4.0, 6.0]),
                ..BatchStats::default()
            },
            held_out_loss: None,
            seconds: Some(3.0),
            time_ms: 1_700_000_000_000,
        }
    }

    #[test]
    fn the_numbers_have_the_names_that_others_know() {
        let scalars: BTreeMap<Cow<'_, str>, f64> = record().scalars().into_iter().collect();
        for (name, expected) in [
            ("loss/total", 1.5),
            ("loss/binary", 0.5),
            ("loss/redo", 1.0),
            ("reward/mean", 0.25),
            ("reward/std", 0.6875_f64.sqrt()),
            ("gradient/norm", 0.25),
            ("learning_rate", 5e-4),
            ("train/batch_size", 4.0),
            ("train/success_rate", 0.5),
            ("train/ppo_kl", 0.05),
            ("rollout/response_len/max", 20.0),
            ("rollout/staleness", 1.0),
            ("perf/actor_train_tok_per_s", 100.0),
            ("perf/step_time", 3.0),
            ("perf/shared_tokens", 0.25),
        ] {
            let given = scalars.get(name).copied();
            let is_so = given.is_some_and(|given| (given - expected).abs() < 1e-9);
            assert!(is_so, "{name}: {given:?}");
        }
        // A number that was not measured is not reported as 0.
        for name in ["loss/opd", "rollout/advantages", "rollout/log_probs"] {
            assert!(!scalars.contains_key(name), "{name}");
        }
    }

    #[test]
    fn no_name_stands_twice_and_a_line_has_them_all() {
        let record = record();
        let names: Vec<Cow<'_, str>> = record.scalars().into_iter().map(|s| s.0).collect();
        let unique: BTreeSet<&Cow<'_, str>> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        let line = record.json();
        assert!(names.iter().all(|name| line[&**name].is_number()), "{line}");
        assert_eq!(line["adapter"], "_default-0badcafe-000002");
        assert_eq!(line["samples"]["redo"], 1);
    }
}
