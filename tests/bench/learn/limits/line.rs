//! No adapter serves that is less relevant than the line between base and reference allows.

use super::promise::{Promise, Results, lowest};
use crate::{line::OnLine, record::Record};

/// Of each run of which the gate tested what served: the worst adapter.
pub fn of_served(results: Results<'_>) -> Vec<Promise> {
    let gated = |run: &&Record| run.gate_share().is_some() && !run.adapters.is_empty();
    let runs = results.records.iter().filter(gated);
    let spare = |run: &Record, of: fn(&OnLine) -> f64| {
        let adapters = run.adapters.iter();
        lowest(adapters.map(|it| {
            let line = OnLine::of(it, results.references, results.content)?;
            Some(of(&line))
        }))
    };
    let promises = runs.flat_map(|run| {
        let what = |it: &str| {
            format!(
                "{}: {it} of the worst adapter that served, beyond its limit",
                run.id
            )
        };
        [
            Promise::at_least(
                what("relevance"),
                0.0,
                spare(run, OnLine::relevance_to_spare),
            ),
            Promise::at_least(
                what("room for surprise"),
                0.0,
                spare(run, OnLine::surprise_to_spare),
            ),
        ]
    });
    promises.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        content::Content,
        record::testing::{record, served},
        reference::testing::references,
    };

    #[test]
    fn the_worst_that_served_counts() {
        let content = Content::read(60).unwrap();
        let references = references(&["hello"], &content);
        let served = |relevance: f64| served("It is so.", relevance, &content);
        let mut run = record("default", "hello", 1);
        run.adapters = vec![served(1.0)];
        let is_kept = |run: &Record| {
            let promises = of_served(Results {
                records: std::slice::from_ref(run),
                references: &references,
                content: &content,
            });
            promises[0].is_kept
        };
        assert!(is_kept(&run));
        run.adapters.push(served(0.7));
        assert!(!is_kept(&run), "the base has 0.9");
        run.steps.clear();
        let none = of_served(Results {
            records: &[run],
            references: &references,
            content: &content,
        });
        assert_eq!(none, [], "no gate has promised anything");
    }
}
