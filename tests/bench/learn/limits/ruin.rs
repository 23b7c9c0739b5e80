//! The ruin to tell from: what is ungated loses the answers, and that is seen.

use super::promise::{Promise, Results};
use crate::record::{Measured, Record};

/// Below this fraction of the reference's relevance a model answers anything with the same.
const RELEVANCE: f64 = 0.3;
/// Above this multiple of the reference's likelihood it says nonsense.
const FLUENCY: f64 = 2.0;

/// The row that trains without the gate.
const ROW: &str = "hybrid";

/// The promise that a ruined model is noticed, by the run of the benchmark that shows it best.
pub fn seen(results: Results<'_>) -> Vec<Promise> {
    let runs = results.records.iter().filter(|run| run.id.row == ROW);
    let found: Vec<f64> = runs.filter_map(|run| ruin(results, run)).collect();
    vec![Promise::at_least(
        format!(
            "{ROW}: the ruin is seen (relevance under {RELEVANCE} or fluency over {FLUENCY}, 1 of 1)"
        ),
        1.0,
        found.into_iter().max_by(f64::total_cmp),
    )]
}

/// 1 where a run is ruined at any time that it was looked at.
fn ruin(results: Results<'_>, run: &Record) -> Option<f64> {
    let is_ruined = |it: &Measured| {
        let told = results.told(&it.wish)?;
        let lost =
            it.figures.relevance_of(&told) < RELEVANCE || it.figures.fluency_of(&told) > FLUENCY;
        Some(it.adapter.is_some() && lost)
    };
    let found: Vec<bool> = run.measured.iter().filter_map(is_ruined).collect();
    (!found.is_empty()).then(|| f64::from(u8::from(found.contains(&true))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{content::Content, record::testing::record, reference::testing::references};

    #[test]
    fn a_model_that_answers_is_no_ruin() {
        let content = Content::read(60).unwrap();
        let references = references(&["terse", "hello"], &content);
        let mut lost = record(ROW, "hello", 1);
        lost.measured[0].figures.relevance = 0.2;
        let seen_in = |records: &[Record]| {
            let promises = seen(Results {
                records,
                references: &references,
                content: &content,
            });
            (promises[0].found, promises[0].is_kept)
        };
        let good = record(ROW, "terse", 1);
        assert_eq!(seen_in(std::slice::from_ref(&good)), (Some(0.0), false));
        assert_eq!(seen_in(&[good, lost]), (Some(1.0), true));
        assert_eq!(seen_in(&[]), (None, false));
    }
}
