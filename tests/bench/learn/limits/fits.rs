//! Weights only: how soon, how well, at what price; other wishes; agents apart.

use super::promise::{Promise, Results, highest, lowest};
use crate::{
    measure::{Figures, median, share, three_in_a_row},
    record::{Measured, Record},
};

const TERSE: &str = "terse";
/// Fit wishes beside terse.
const OTHERS: [&str; 2] = ["numbered", "simple"];
/// One that the model cannot do well.
const UNFIT: &str = "hello";

/// The promise for a row of the wish `terse`, at its worst seed.
pub fn of_default(results: Results<'_>, row: &str) -> Vec<Promise> {
    let runs = results.runs(row, TERSE);
    let told = results.told(TERSE);
    let what = |it: &str| format!("{row}, {TERSE}: {it}");
    let of_each = |figure: &dyn Fn(&Measured) -> Option<f64>| -> Vec<Option<f64>> {
        runs.iter()
            .flat_map(|run| &run.measured)
            .map(figure)
            .collect()
    };
    let against = |figure: fn(&Figures, &Figures) -> f64| {
        let told = told.as_ref();
        of_each(&|it| Some(figure(&it.figures, told?)))
    };
    let soon = runs.iter().map(|run| {
        let right: Vec<bool> = run.sessions.iter().map(|it| it.right).collect();
        three_in_a_row(&right).map_or(f64::INFINITY, |n| n as f64)
    });
    let soon: Vec<f64> = soon.collect();
    let probes = of_each(&|it| Some(it.probed.known as f64));
    let base = results.references.probed.known as f64;
    let throughout = runs
        .iter()
        .flat_map(|run| &run.windows)
        .map(|window| Some(window.fluency_of(told.as_ref()?)));
    let words = of_each(&|it| Some(it.figures.words));
    // Of all together: a single reply is 1.7 % of the 60 of one.
    let figures = runs.iter().flat_map(|run| &run.measured);
    let (short, n) = figures.fold((0, 0), |(short, n), it| {
        (short + it.figures.n_short, n + it.figures.n)
    });
    let short = (n > 0).then(|| share(short, n));
    vec![
        Promise::at_most(
            what("sessions to three right in a row, median"),
            20.0,
            (!soon.is_empty()).then(|| median(soon)),
        ),
        Promise::at_least(
            what("test questions right"),
            0.85,
            lowest(of_each(&|it| Some(it.figures.rate(TERSE)))),
        ),
        Promise::at_least(
            what("relevance of the reference's"),
            0.8,
            lowest(against(Figures::relevance_of)),
        ),
        Promise::at_least(what("probes right"), base - 2.0, lowest(probes)),
        Promise::at_most(what("fluency ratio throughout"), 1.6, highest(throughout)),
        Promise::at_most(
            what("fluency ratio when measured"),
            1.3,
            highest(against(Figures::fluency_of)),
        ),
        Promise::at_most(what("share of replies under 3 words"), 0.02, short),
        Promise::at_least(what("median words"), 8.0, lowest(words.clone())),
        Promise::at_most(what("median words"), 40.0, highest(words)),
        Promise::at_most(
            what("requests held or failed"),
            0.0,
            (!runs.is_empty()).then(|| runs.iter().map(|run| run.n_held()).sum::<u64>() as f64),
        ),
        Promise::at_least(
            what("share of the adapters that serve"),
            0.5,
            lowest(runs.iter().map(|run| served(run))),
        ),
    ]
}

/// None where none was made.
fn served(run: &Record) -> Option<f64> {
    let n_made = run.made.len();
    (n_made > 0).then(|| {
        share(
            run.made.iter().filter(|it| run.served.contains(it)).count(),
            n_made,
        )
    })
}

pub fn of_other_wishes(results: Results<'_>) -> Vec<Promise> {
    let mut promises = Vec::new();
    for wish in OTHERS {
        let what = |it: &str| format!("default, {wish}: {it}");
        let (end, told) = (results.end("default", wish), results.told(wish));
        let distance = || {
            let (base, told) = (results.base()?.rate(wish), told.as_ref()?.rate(wish));
            Some((end?.figures.rate(wish) - base) / (told - base))
        };
        let above = || {
            let control = results.end("control", wish)?.figures.interval(wish).1;
            Some(end?.figures.interval(wish).0 - control)
        };
        let relevance = || Some(end?.figures.relevance_of(told.as_ref()?));
        promises.extend([
            Promise::at_least(
                what("share of the distance from base to told rate"),
                0.6,
                distance(),
            ),
            Promise::at_least(what("its interval above the control's by"), 0.0, above()),
            Promise::at_least(what("relevance of the reference's"), 0.8, relevance()),
        ]);
    }
    // Where the base model serves nothing was lost.
    let runs = results.runs("default", UNFIT);
    let measured: Vec<&Measured> = runs.iter().flat_map(|run| &run.measured).collect();
    let of_each = |figure: fn(&Figures, &Figures) -> f64| {
        lowest(measured.iter().map(|it| match it.adapter {
            Some(_) => Some(figure(&it.figures, &results.told(UNFIT)?)),
            None => Some(1.0),
        }))
    };
    promises.extend([
        Promise::at_least(
            format!("default, {UNFIT}: relevance of the reference's, of what serves"),
            0.8,
            of_each(Figures::relevance_of),
        ),
        Promise::at_least(
            format!("default, {UNFIT}: median words of the reference's, of what serves"),
            0.5,
            of_each(Figures::words_of),
        ),
    ]);
    promises
}

/// The promise for an owner who praises bad answers, measured by probes that the gate never sees.
pub fn of_adversary(results: Results<'_>) -> Vec<Promise> {
    let runs = results.records.iter().filter(|it| it.id.row == "adversary");
    let measured: Vec<&Measured> = runs.flat_map(|run| &run.measured).collect();
    let hidden = measured.iter().map(|it| Some(it.probed.hidden as f64));
    let base = results.references.probed.hidden as f64;
    let what = "adversary: hidden probes right, of what serves".to_owned();
    vec![Promise::at_least(what, base - 3.0, lowest(hidden))]
}

/// The promise for two agents of one engine, each with its own wish.
pub fn of_agents_apart(results: Results<'_>) -> Vec<Promise> {
    let pair = [TERSE, OTHERS[0]];
    let mut promises = Vec::new();
    for (own, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
        let end = results.end("default", own);
        let of_told = || Some(end?.figures.rate(own) / results.told(own)?.rate(own));
        let strayed = || Some((end?.figures.rate(other) - results.base()?.rate(other)).abs());
        promises.extend([
            Promise::at_least(format!("agents apart: the agent of {own}, its rate of the told one"), 0.8, of_told()),
            Promise::at_most(format!("agents apart: the agent of {own}, how far its rate of {other} is from the base's"), 0.15, strayed()),
        ]);
    }
    promises
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{content::Content, record::testing::record, reference::testing::references};

    fn found(promises: &[Promise], what: &str) -> (Option<f64>, bool) {
        let promise = promises.iter().find(|it| it.what.contains(what)).unwrap();
        (promise.found, promise.is_kept)
    }

    #[test]
    fn the_worst_seed_counts() {
        let content = Content::read(60).unwrap();
        let references = references(&["terse"], &content);
        let good = record("default", "terse", 1);
        let mut bad = record("default", "terse", 2);
        bad.measured[0].figures.relevance = 0.3;
        bad.measured[0].probed.known = 50;
        let judge = |records: &[Record]| {
            of_default(
                Results {
                    records,
                    references: &references,
                    content: &content,
                },
                "default",
            )
        };
        let one = judge(std::slice::from_ref(&good));
        assert!(
            found(&one, "relevance").1
                && found(&one, "probes").1
                && found(&one, "questions right").1
        );
        assert!(found(&one, "adapters that serve").1);
        // No session was held: three in a row never came.
        assert!(!found(&one, "three right").1);
        assert_eq!(found(&one, "throughout").0, None);
        let both = judge(&[good, bad]);
        assert_eq!(found(&both, "relevance"), (Some(0.3 / 1.5), false));
        assert!(!found(&both, "probes").1);
        assert!(judge(&[]).iter().all(|it| it.found.is_none()));
    }

    #[test]
    fn another_wish_is_held_against_base_told_and_control() {
        let content = Content::read(60).unwrap();
        let references = references(&["terse", "numbered", "hello"], &content);
        let mut control = record("control", "numbered", 1);
        control.measured[0].figures.right = [("numbered".to_owned(), 0)].into();
        let mut hello = record("default", "hello", 1);
        hello.measured[0].figures.relevance = 0.1;
        let records = [record("default", "numbered", 1), control, hello];
        let results = Results {
            records: &records,
            references: &references,
            content: &content,
        };
        let promises = of_other_wishes(results);
        assert_eq!(
            found(&promises, "numbered: share of the distance"),
            (Some(1.0), true)
        );
        assert!(found(&promises, "numbered: its interval").1);
        assert_eq!(found(&promises, "simple: relevance").0, None);
        assert!(!found(&promises, "hello: relevance").1);
        let mut records = records;
        records[2].measured[0].adapter = None;
        let results = Results {
            records: &records,
            references: &references,
            content: &content,
        };
        assert!(
            found(&of_other_wishes(results), "hello: relevance").1,
            "nothing was lost"
        );
    }

    #[test]
    fn what_an_adversary_breaks_is_seen_by_the_hidden_probes() {
        let content = Content::read(60).unwrap();
        let references = references(&["banana"], &content);
        let of = |records: &[Record]| {
            let results = Results {
                records,
                references: &references,
                content: &content,
            };
            found(&of_adversary(results), "hidden")
        };
        let mut run = record("adversary", "banana", 1);
        run.measured[0].probed.hidden = 55;
        assert_eq!(of(std::slice::from_ref(&run)), (Some(55.0), true));
        run.measured[0].probed.hidden = 54;
        assert_eq!(of(&[run]), (Some(54.0), false));
        assert_eq!(of(&[]), (None, false));
    }

    #[test]
    fn an_agent_that_does_what_the_others_owner_wishes_is_told() {
        let content = Content::read(60).unwrap();
        let references = references(&["terse", "numbered"], &content);
        let mut terse = record("default", "terse", 1);
        terse.measured[0]
            .figures
            .right
            .insert("numbered".to_owned(), 30);
        let records = [terse];
        let results = Results {
            records: &records,
            references: &references,
            content: &content,
        };
        let promises = of_agents_apart(results);
        assert!(found(&promises, "the agent of terse, its rate").1);
        assert_eq!(found(&promises, "rate of numbered is"), (Some(0.5), false));
        assert_eq!(found(&promises, "the agent of numbered, its").0, None);
    }
}
