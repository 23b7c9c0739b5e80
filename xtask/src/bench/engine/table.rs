//! Medians, quotients, and whether promises are kept.

use std::fs;

use anyhow::Result;
use metaclaw_fetch::writing;
use serde_json::{Value, json};

use super::cell::{Cell, Limit, SideFigure};
use super::options::Options;
use super::runs::RunRecord;

/// More than this of another's work, in CPUs, and the machine was not quiet.
const NOISE: f64 = 0.1;

/// Prints the table and writes `result.json`; whether all promises are kept.
pub(super) fn report(cells: &[Cell], records: &[RunRecord], options: &Options) -> Result<bool> {
    let mut rows = Vec::new();
    println!();
    for cell in cells {
        println!("{}: {}", cell.name, cell.what);
        for limit in &cell.limits {
            let value = value(cell, limit, records);
            println!("  {}", line(limit, value));
            rows.push(json!({
                "cell": cell.name, "what": limit.what, "value": value, "at_most": limit.at_most,
                "is_kept": limit.at_most.map(|most| value.is_some_and(|it| it <= most)),
            }));
        }
    }
    let reading = reading(records);
    for (cell, times) in &reading {
        println!("{cell}: a pass takes {times:.2} times as long as reading the weights once");
    }
    let noise = records.iter().filter_map(|it| it.figure("others_cpus"));
    let noise = noise.fold(0.0, f64::max);
    if noise > NOISE {
        println!("others kept up to {noise:.1} CPUs busy: these are no figures to quote");
    }
    let runs = records
        .iter()
        .map(|it| json!({"cell": it.cell, "side": it.side, "figures": it.figures}));
    let result = json!({
        "threads": options.threads, "dtype": options.dtype, "repeats": options.repeats,
        "adapter": if options.adapter_f32 { "f32" } else { "bf16" },
        "others_cpus": noise, "limits": rows,
        "times_reading_the_weights": reading.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "runs": runs.collect::<Vec<Value>>(),
    });
    let file = options.out.join("result.json");
    writing(
        fs::write(&file, serde_json::to_string_pretty(&result)? + "\n"),
        &file,
    )?;
    println!("all runs: {}", file.display());
    Ok(rows.iter().all(|row| row["is_kept"] != false))
}

fn line(limit: &Limit, value: Option<f64>) -> String {
    let Some(value) = value else {
        return format!("{:<52} not measured", limit.what);
    };
    let promise = match limit.at_most {
        None => String::new(),
        Some(most) if value <= most => format!("at most {most:<5} kept"),
        Some(most) => format!("at most {most:<5} MISSED"),
    };
    format!("{:<52} {value:>8.3}  {promise}", limit.what)
}

fn value(cell: &Cell, limit: &Limit, records: &[RunRecord]) -> Option<f64> {
    let of = median(records, cell.name, limit.of)?;
    let Some(by) = limit.by else {
        return Some(of);
    };
    Some(of / (median(records, cell.name, by)? * limit.scale))
}

/// The median of a side's runs. Of an even number, the upper one of the middle two.
fn median(
    records: &[RunRecord],
    cell: &str,
    SideFigure(side, field): SideFigure<'_>,
) -> Option<f64> {
    let own = records
        .iter()
        .filter(|it| it.cell == cell && it.side == side);
    let mut values: Vec<f64> = own.filter_map(|it| it.figure(field)).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// For each decoding cell and side: the time for a token of a stream, divided by the time to read all weights.
fn reading(records: &[RunRecord]) -> Vec<(String, f64)> {
    let Some(bandwidth) = median(records, "bandwidth", SideFigure("ours", "read_bytes_per_s"))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (cell, streams) in [("d1", 1.0), ("d8", 8.0)] {
        for side in ["ours", "peer"] {
            let figure = |field| median(records, cell, SideFigure(side, field));
            let bytes = median(records, cell, SideFigure("ours", "weight_bytes"));
            if let (Some(bytes), Some(wall), Some(n)) =
                (bytes, figure("wall_s"), figure("new_tokens"))
            {
                let pass = wall / (n / streams);
                found.push((format!("{cell} {side}"), pass / (bytes / bandwidth)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotient_is_of_medians_and_scaled() {
        let record = |side: &str, cpu: f64| RunRecord::of("a", side, json!({"cpu_s": cpu}));
        let records = [1.0, 9.0, 2.0].map(|cpu| record("ours", cpu));
        let records = [records.to_vec(), vec![record("peer", 4.0)]].concat();
        let limit = Limit {
            what: "",
            of: SideFigure("ours", "cpu_s"),
            by: Some(SideFigure("peer", "cpu_s")),
            scale: 2.0,
            at_most: Some(0.2),
        };
        let cell = Cell {
            name: "a",
            what: "",
            sides: Vec::new(),
            limits: Vec::new(),
        };
        assert_eq!(value(&cell, &limit, &records), Some(0.25));
        assert!(line(&limit, Some(0.25)).ends_with("MISSED"));
        assert!(line(&limit, Some(0.2)).ends_with("kept"));
        assert_eq!(value(&cell, &limit, &records[..3]), None);
    }
}
