//! `metaclaw adapters`: the weights that were learned, and which of them serve.

use std::collections::BTreeMap;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use metaclaw_chat::AgentId;
use metaclaw_control::{
    adapters::{AdapterChoice, AdapterDetail, AdapterView, MadeView, ManifestView, ShapeView},
    operations::weights::{ListAdapters, RollBack},
};
use metaclaw_learner::DataSetUse;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{calling::call, context::Context};
use crate::out;

/// Stands for the model without an adapter: no adapter can be called so, as each has its agent's name in front.
const BASE: &str = "base";
const NAMED: usize = 40;
const PARTS: [&str; 4] = ["made", "shape", "numbers", "batch"];

#[derive(Debug, Args)]
pub(crate) struct AdaptersArgs {
    #[command(subcommand)]
    what: AdaptersCommand,
}

#[derive(Debug, Subcommand)]
enum AdaptersCommand {
    /// List the adapters, and the agents that each one serves.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show an adapter: its starting weights, settings, turns and measurements.
    Show {
        /// The adapter's name, as `list` shows it.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show in what two adapters differ: settings, figures, turns.
    Diff {
        /// The name of an adapter.
        one: String,
        /// The name of another adapter.
        other: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Serve, at once, the weights from which the serving adapter was trained. The next training starts from them.
    Rollback {
        /// The agent. Without it, the only agent that an adapter serves.
        agent: Option<AgentId>,
    },
    /// Serve another adapter, at once. The next training starts from it.
    #[command(visible_alias = "promote")]
    Use {
        /// The adapter's name, as `list` shows it, or base for the model without an adapter.
        name: String,
        /// The agent. Without it, the agent that the adapter was trained for; for base, all agents.
        #[arg(long)]
        agent: Option<AgentId>,
    },
}

// === impl AdaptersArgs ===

impl AdaptersArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.what {
            AdaptersCommand::List { json } => list(context, json).await?,
            AdaptersCommand::Show { name, json } => {
                let adapter = one(&call(context, "adapters", ListAdapters).await?, &name)?;
                out::answer(&adapter, json, show_text)?;
            }
            AdaptersCommand::Diff {
                one: name,
                other,
                json,
            } => {
                let all = call(context, "adapters", ListAdapters).await?;
                let difference = Difference::between(&one(&all, &name)?, &one(&all, &other)?);
                out::answer(&difference, json, Difference::text)?;
            }
            AdaptersCommand::Rollback { agent } => {
                let choice = call(context, "adapters rollback", RollBack(agent)).await?;
                if let Some(agent) = &choice.agent {
                    out::line(choice_text(agent, choice.adapter.as_deref()))?;
                }
            }
            AdaptersCommand::Use { name, agent } => {
                let adapter = (name != BASE).then_some(name);
                let choice = AdapterChoice { agent, adapter };
                for agent in call(context, "adapters use", choice.clone()).await? {
                    out::line(choice_text(&agent, choice.adapter.as_deref()))?;
                }
            }
        }
        Ok(())
    }
}

fn one(all: &[AdapterDetail], name: &str) -> anyhow::Result<AdapterDetail> {
    let found = all.iter().find(|all| all.view.name == name).cloned();
    found.with_context(|| {
        format!("there is no adapter {name}: `metaclaw adapters list` shows those there are")
    })
}

async fn list(context: &Context, json: bool) -> anyhow::Result<()> {
    let adapters = call(context, "adapters", ListAdapters).await?;
    let adapters: Vec<AdapterView> = adapters.into_iter().map(|adapter| adapter.view).collect();
    let row = |adapter: &AdapterView| {
        vec![
            adapter.name.clone(),
            match &adapter.unfit {
                Some(why) => why.clone(),
                None => adapter.agents.join(", "),
            },
            adapter.n_leases.to_string(),
            adapter.step.map(|n| n.to_string()).unwrap_or_default(),
            adapter.created_ms.map(out::since).unwrap_or_default(),
            adapter.parent.clone().unwrap_or_default(),
        ]
    };
    let head = ["adapter", "serves", "held by", "steps", "ago", "from"];
    Ok(out::answer_table(&adapters, json, &head, row)?)
}

fn choice_text(agent: &AgentId, adapter: Option<&str>) -> String {
    let adapter = adapter.unwrap_or("the base model");
    format!(
        "{agent} is served with {adapter} from its next request on; its next training starts from there (`mode: skills_only` in the settings ends training)"
    )
}

fn show_text(adapter: &AdapterDetail) -> String {
    let view = &adapter.view;
    let serves = match &view.agents[..] {
        [] => String::new(),
        agents => format!(", serves {}", agents.join(", ")),
    };
    let mut lines = vec![format!("adapter   {}{serves}", view.name)];
    let Some(manifest) = &adapter.manifest else {
        lines.push("its checkpoint is gone, and with it how it was made".to_owned());
        return lines.join("\n");
    };
    let line = adapter.ancestors.iter().map(String::as_str);
    let line: Vec<&str> = line.chain(["the base model"]).collect();
    let line = if adapter.ancestors.is_empty() && view.parent.is_some() {
        // It is named, and its checkpoint is not kept.
        view.parent.clone().unwrap_or_default()
    } else {
        line.join(" <- ")
    };
    lines.push(format!("from      {line}"));
    let says = ManifestView::read(manifest);
    lines.push(format!(
        "lineage   {}, its step {}; {} behind it",
        or_unknown(says.lineage.as_ref()),
        says.n.unwrap_or_default(),
        out::count(view.step.unwrap_or_default(), "optimiser step"),
    ));
    let ago = view.created_ms.map(out::since);
    lines.extend(ago.map(|ago| format!("made      {ago} ago")));
    lines.extend(says.made.as_ref().and_then(made));
    let replay = says.made.as_ref().and_then(|made| made.replay.as_ref());
    lines.extend(replay.map(|one| format!("replay    {}: no step of the log", one.name)));
    let data = says.made.as_ref().and_then(|made| made.data.as_ref());
    lines.extend(data.map(data_set));
    lines.push(shape(&says.shape));
    lines.extend(numbers(&says));
    lines.push(turns(adapter));
    if let Some(outcome) = &adapter.outcome {
        lines.push(format!("came to   {}", serde_json::json!(outcome)));
    }
    lines.extend(adapter.sha256.iter().map(|one| format!("sha256    {one}")));
    lines.extend(says.made.iter().flat_map(settings));
    lines.join("\n")
}

fn data_set(data: &DataSetUse) -> String {
    let held_out = match (data.held_out_before, data.held_out_loss) {
        (Some(before), Some(after)) => format!(
            "; held-out loss {after:.4}, before training {before:.4}, on {}",
            out::count(data.n_held_out, "row")
        ),
        _ => String::new(),
    };
    format!(
        "data      {} of {}, epoch {} of {}{held_out}",
        out::count(data.n_rows, "row"),
        data.file,
        data.epoch,
        data.epochs,
    )
}

fn made(made: &MadeView) -> Option<String> {
    let version = made.version.as_ref()?;
    let commit = made.commit.as_ref();
    let commit = commit.map_or_else(String::new, |one| format!(" (commit {one})"));
    Some(format!(
        "by        metaclaw {version}{commit}, seed {}",
        made.seed
    ))
}

fn shape(shape: &ShapeView) -> String {
    let fingerprint = shape.base_fingerprint.as_ref();
    let fingerprint = fingerprint.map_or_else(String::new, |one| format!(" ({one})"));
    format!(
        "of        {}{fingerprint}: rank {}, alpha {:?}, {}",
        or_unknown(shape.base.as_ref()),
        shape.rank,
        shape.alpha,
        shape.targets.join("+")
    )
}

fn numbers(says: &ManifestView) -> Vec<String> {
    let ManifestView { numbers, batch, .. } = says;
    let losses = numbers.losses.iter();
    let losses: Vec<String> = losses
        .map(|(method, loss)| format!("{method} {loss:.4}"))
        .collect();
    let losses = match &losses[..] {
        [] => String::new(),
        losses => format!(" ({})", losses.join(", ")),
    };
    let skipped = if numbers.skipped {
        "; out of line, so that no step was taken"
    } else {
        ""
    };
    let mut lines = vec![format!(
        "measured  loss {:.4}{losses}, gradient norm {:.4}{skipped}, rate {:.3e}",
        numbers.loss, numbers.grad_norm, numbers.learning_rate,
    )];
    let samples = batch.samples.iter();
    let samples: Vec<String> = samples.map(|(method, n)| format!("{n} {method}")).collect();
    if !samples.is_empty() {
        lines.push(format!(
            "samples   {}; mean score {:.4}, mean advantage {:.4}",
            samples.join(", "),
            batch.reward.mean,
            batch.advantage.mean,
        ));
    }
    lines
}

fn turns(adapter: &AdapterDetail) -> String {
    let score = |score: Option<i64>| score.map_or_else(String::new, |one| format!(" ({one:+})"));
    let named = adapter.turns.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|(id, of)| format!("{id}{}", score(*of)))
        .collect();
    let more = adapter.turns.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("turns     {}{more}", named.join(", "))
}

fn settings(made: &MadeView) -> Vec<String> {
    let keys = made.config.iter();
    keys.map(|(key, value)| format!("          rl.{key}: {}", plain(value)))
        .collect()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn or_unknown(text: Option<&String>) -> &str {
    text.map_or("?", String::as_str)
}

#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    /// Settings and numbers that differ, by path: the value of the first adapter, and of the second.
    values: BTreeMap<String, [Value; 2]>,
    /// Turns that only the first adapter was trained on, and those of the second.
    turns: [Vec<String>; 2],
    names: [String; 2],
}

// === impl Difference ===

impl Difference {
    fn between(one: &AdapterDetail, other: &AdapterDetail) -> Self {
        let (a, b) = (leaves(one), leaves(other));
        let mut values = BTreeMap::new();
        for path in a.keys().chain(b.keys()) {
            let of = |leaves: &BTreeMap<String, Value>| leaves.get(path).cloned();
            let pair = [of(&a), of(&b)].map(Option::unwrap_or_default);
            if pair[0] != pair[1] {
                values.insert(path.clone(), pair);
            }
        }
        let only = |one: &AdapterDetail, other: &AdapterDetail| -> Vec<String> {
            let turns = one.turns.keys();
            turns
                .filter(|id| !other.turns.contains_key(*id))
                .cloned()
                .collect()
        };
        Self {
            values,
            turns: [only(one, other), only(other, one)],
            names: [one, other].map(|one| one.view.name.clone()),
        }
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        if self.values.is_empty() {
            lines.push("made alike".to_owned());
        } else {
            let values = self.values.iter();
            let cells = values.map(|(path, [a, b])| vec![path.clone(), plain(a), plain(b)]);
            let rows: Vec<Vec<String>> = cells.collect();
            let [a, b] = &self.names;
            lines.push(out::table(&["", a, b], &rows));
        }
        for (name, turns) in self.names.iter().zip(&self.turns) {
            let told = match &turns[..] {
                [] => "none".to_owned(),
                turns => turns.join(", "),
            };
            lines.push(format!("turns only behind {name}: {told}"));
        }
        lines.join("\n")
    }
}

/// What a manifest says, by path: `rl.learning_rate`, `numbers.loss`.
fn leaves(adapter: &AdapterDetail) -> BTreeMap<String, Value> {
    let mut leaves = BTreeMap::new();
    let manifest = adapter.manifest.as_ref().and_then(Value::as_object);
    for (part, value) in manifest.into_iter().flatten() {
        if PARTS.contains(&part.as_str()) {
            collect(part, value, &mut leaves);
        }
    }
    leaves
}

fn collect(path: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
    let fields: Option<&Map<String, Value>> = value.as_object();
    match fields {
        Some(fields) => {
            for (name, value) in fields {
                // As it stands in config.yaml.
                let path = match path {
                    "made" if name == "config" => "rl".to_owned(),
                    path => format!("{path}.{name}"),
                };
                collect(&path, value, leaves);
            }
        }
        None => {
            leaves.insert(path.to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod show_tests {
    use std::collections::BTreeMap;

    use metaclaw_control::adapters::AdapterView;
    use metaclaw_turns::StepOutcome;
    use serde_json::json;

    use super::*;

    pub(super) fn adapter(name: &str, rate: f64, turn: &str) -> AdapterDetail {
        let manifest = json!({
            "agent": "main", "lineage": "0badcafe", "n": 2, "turns": [turn], "parent": "main-0badcafe-000001",
            "shape": {"base": "demo", "base_fingerprint": "77ab", "rank": 32, "alpha": 32.0, "targets": ["q_proj", "v_proj"]},
            "numbers": {"loss": 1.25, "losses": {"redo": 1.25}, "grad_norm": 0.5, "learning_rate": rate},
            "batch": {"samples": {"redo": 2}, "reward": {"mean": 0.0}, "advantage": {"mean": 0.0}},
            "made": {"version": "0.1.0", "commit": "abc", "seed": 7, "config": {"method": "redo", "learning_rate": rate}},
        });
        AdapterDetail {
            view: AdapterView {
                name: name.to_owned(),
                agents: vec!["main".to_owned()],
                n_leases: 1,
                step: Some(2),
                parent: Some("main-0badcafe-000001".to_owned()),
                created_ms: None,
                unfit: None,
            },
            sha256: Some("55aa".to_owned()),
            manifest: Some(manifest),
            ancestors: vec!["main-0badcafe-000001".to_owned()],
            turns: BTreeMap::from([("7-0".to_owned(), Some(-1)), (turn.to_owned(), Some(1))]),
            outcome: Some(StepOutcome::Trained {
                adapter: name.to_owned(),
                checkpoint: "c".to_owned(),
                gate: None,
            }),
        }
    }

    #[test]
    fn the_whole_of_its_making_is_told() {
        let adapter = adapter("main-0badcafe-000002", 5e-4, "7-1");
        insta::assert_snapshot!(show_text(&adapter), @r#"
        adapter   main-0badcafe-000002, serves main
        from      main-0badcafe-000001 <- the base model
        lineage   0badcafe, its step 2; 2 optimiser steps behind it
        by        metaclaw 0.1.0 (commit abc), seed 7
        of        demo (77ab): rank 32, alpha 32.0, q_proj+v_proj
        measured  loss 1.2500 (redo 1.2500), gradient norm 0.5000, rate 5.000e-4
        samples   2 redo; mean score 0.0000, mean advantage 0.0000
        turns     7-0 (-1), 7-1 (+1)
        came to   {"came_to":"trained","adapter":"main-0badcafe-000002","checkpoint":"c"}
        sha256    55aa
                  rl.method: redo
                  rl.learning_rate: 0.0005
        "#);
        let gone = AdapterDetail {
            manifest: None,
            ..adapter
        };
        assert!(show_text(&gone).contains("its checkpoint is gone"));
    }
}

#[cfg(test)]
mod diff_tests {
    use super::{show_tests::adapter, *};

    #[test]
    fn what_differs_is_told_and_nothing_else() {
        let one = adapter("main-0badcafe-000002", 5e-4, "7-1");
        let other = adapter("main-1badcafe-000002", 2e-4, "8-1");
        insta::assert_snapshot!(Difference::between(&one, &other).text(), @r"
                               main-0badcafe-000002  main-1badcafe-000002
        numbers.learning_rate  0.0005                0.0002
        rl.learning_rate       0.0005                0.0002
        turns only behind main-0badcafe-000002: 7-1
        turns only behind main-1badcafe-000002: 8-1
        ");
        let same = Difference::between(&one, &one);
        assert!(same.text().starts_with("made alike"), "{}", same.text());
        assert!(same.turns.iter().all(Vec::is_empty));
    }
}
