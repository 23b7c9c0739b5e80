//! An owner who is away at night alone: what is learned by then, and whether every turn is accounted for.

use serde_json::Value;

use super::promise::{Promise, Results, highest};

const ROW: &str = "quiet";
const WISH: &str = "terse";

pub fn of_quiet(results: Results<'_>) -> Vec<Promise> {
    let run = results.runs(ROW, WISH).first().copied();
    let distance = || {
        let (base, told) = (results.base()?.rate(WISH), results.told(WISH)?.rate(WISH));
        Some((run?.end()?.figures.rate(WISH) - base) / (told - base))
    };
    let nights = run.map(|run| run.nights.as_slice()).unwrap_or_default();
    vec![
        Promise::at_least(
            format!("{ROW}, {WISH}: share of the distance from base to told rate after 4 days"),
            0.6,
            distance(),
        ),
        Promise::at_most(
            format!("{ROW}: turns that the funnel does not explain, the worst day"),
            0.0,
            highest(nights.iter().map(|it| Some(unexplained(it)))),
        ),
    ]
}

/// Judged turns of an agent that are neither used, nor spent with a reason, nor waiting for a batch.
fn unexplained(agent: &Value) -> f64 {
    let funnel = &agent["funnel"];
    let n = |value: &Value| value.as_f64().unwrap_or_default();
    let spent = funnel["spent"].as_object();
    let spent: f64 = spent.into_iter().flatten().map(|(_, value)| n(value)).sum();
    let settled = ["taken", "trained", "held_out", "forgotten"].map(|key| n(&funnel[key]));
    let waiting = ["n_redo", "n_unanswered", "n_binary_rl"].map(|key| n(&agent[key]));
    let explained: f64 = settled.iter().chain(&waiting).sum();
    (n(&funnel["judged"]) - spent - explained).abs()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{content::Content, record::testing::record, reference::testing::references};

    #[test]
    fn every_judged_turn_is_somewhere() {
        let content = Content::read(60).unwrap();
        let references = references(&["terse"], &content);
        let mut run = record(ROW, WISH, 1);
        let night = |judged: u64| {
            json!({"n_redo": 1, "n_unanswered": 0, "n_binary_rl": 2,
                "funnel": {"judged": judged, "trained": 4, "taken": 0, "spent": {"too old": 2, "not whole": 1}}})
        };
        let found = |run: &crate::record::Record| {
            let promises = of_quiet(Results {
                records: std::slice::from_ref(run),
                references: &references,
                content: &content,
            });
            (promises[0].is_kept, promises[1].found)
        };
        assert_eq!(found(&run), (true, None));
        run.nights = vec![night(10), night(10)];
        assert_eq!(found(&run), (true, Some(0.0)));
        run.nights.push(night(12));
        assert_eq!(found(&run), (true, Some(2.0)));
    }
}
