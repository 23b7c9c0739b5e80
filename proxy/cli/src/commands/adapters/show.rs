//! `metaclaw adapters show`: where an adapter comes from, and with what it was made.

use metaclaw_chat::now_ms;
use metaclaw_control::adapters::{AdapterDetail, DataSetView, MadeView, ManifestView, ShapeView};
use serde_json::Value;

use crate::out;

/// Turns that are named.
const NAMED: usize = 40;

/// All that is known of it, the lineage first.
pub(super) fn text(adapter: &AdapterDetail) -> String {
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
        said(says.lineage.as_ref()),
        says.n.unwrap_or_default(),
        out::count(view.step.unwrap_or_default(), "optimiser step"),
    ));
    lines.extend(view.created_ms.map(made_ago));
    lines.extend(says.made.as_ref().and_then(made));
    let replay = says.made.as_ref().and_then(|it| it.replay.as_ref());
    let replay = replay.and_then(|it| it.name.as_ref());
    lines.extend(replay.map(|name| format!("replay    {name}: no step of the log")));
    let data = says.made.as_ref().and_then(|it| it.data.as_ref());
    lines.extend(data.map(data_set));
    lines.push(shape(&says.shape));
    lines.extend(numbers(&says));
    lines.push(turns(adapter));
    if let Some(outcome) = &adapter.outcome {
        lines.push(format!("came to   {}", serde_json::json!(outcome)));
    }
    lines.extend(adapter.sha256.iter().map(|it| format!("sha256    {it}")));
    lines.extend(says.made.iter().flat_map(settings));
    lines.join("\n")
}

fn data_set(data: &DataSetView) -> String {
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

fn made_ago(at_ms: u64) -> String {
    format!(
        "made      {} ago",
        out::span(now_ms().saturating_sub(at_ms))
    )
}

fn made(made: &MadeView) -> Option<String> {
    let version = made.version.as_ref()?;
    let commit = made.commit.as_ref();
    let commit = commit.map_or_else(String::new, |it| format!(" (commit {it})"));
    Some(format!(
        "by        metaclaw {version}{commit}, seed {}",
        made.seed
    ))
}

fn shape(shape: &ShapeView) -> String {
    let fingerprint = shape.base_fingerprint.as_ref();
    let fingerprint = fingerprint.map_or_else(String::new, |it| format!(" ({it})"));
    format!(
        "of        {}{fingerprint}: rank {}, alpha {:?}, {}",
        said(shape.base.as_ref()),
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
    let score = |score: Option<i64>| score.map_or_else(String::new, |it| format!(" ({it:+})"));
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

/// `rl.*` as it was in force, a key a line.
fn settings(made: &MadeView) -> Vec<String> {
    let keys = made.config.iter();
    keys.map(|(key, value)| format!("          rl.{key}: {}", plain(value)))
        .collect()
}

pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn said(text: Option<&String>) -> &str {
    text.map_or("?", String::as_str)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use metaclaw_control::adapters::AdapterView;
    use metaclaw_turns::StepOutcome;
    use serde_json::json;

    use super::*;

    pub(in super::super) fn adapter(name: &str, rate: f64, turn: &str) -> AdapterDetail {
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
        insta::assert_snapshot!(text(&adapter), @r#"
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
        assert!(text(&gone).contains("its checkpoint is gone"));
    }
}
