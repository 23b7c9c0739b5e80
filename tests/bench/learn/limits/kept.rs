//! Say it once and keep it: wishes in the prompt, and what is left when their line is gone.

use super::promise::{Promise, Results};
use crate::{
    measure::{share, three_in_a_row},
    record::Record,
};

const THREE: &str = "three-wishes";

/// The promise that replies are right from the second session on.
pub fn of_wishes(results: Results<'_>) -> Vec<Promise> {
    let places = [("wishes-system", 0.5), ("wishes-user", 0.9)];
    let mut promises = Vec::new();
    for (row, least) in places {
        for wish in ["terse", "numbered", "simple"] {
            let run = results.runs(row, wish).first().copied();
            // What the model does not do when it is told is no fault of the line.
            let told = results.told(wish).map_or(1.0, |told| told.rate(wish));
            let what = format!("{row}, {wish}: right from session 2 on");
            promises.push(Promise::at_least(
                what,
                f64::min(least, told),
                run.and_then(from_second),
            ));
        }
    }
    promises
}

fn from_second(run: &Record) -> Option<f64> {
    let rest = run.sessions.get(1..).filter(|rest| !rest.is_empty())?;
    Some(share(rest.iter().filter(|it| it.right).count(), rest.len()))
}

/// The rate without the line, of the told one; a first wish after others; one that is undone.
pub fn of_consolidation(results: Results<'_>) -> Vec<Promise> {
    let mut promises = Vec::new();
    for wish in ["terse", "numbered"] {
        let rate =
            || Some(results.end("both", wish)?.figures.rate(wish) / results.told(wish)?.rate(wish));
        let what = format!("both, {wish}: rate with the line removed, of the told one");
        promises.push(Promise::at_least(what, 0.85, rate()));
    }
    let run = results.records.iter().find(|it| it.id.row == THREE);
    let first = run.and_then(|run| run.id.wish.split('+').next());
    for (number, at) in [("second", 1), ("third", 2)] {
        let rate = || {
            let told = results.told(first?)?.rate(first?);
            Some(run?.measured.get(at)?.figures.rate(first?) / told)
        };
        let what = format!("{THREE}: rate of the first after the {number}, of the told one");
        promises.push(Promise::at_least(what, 0.8, rate()));
    }
    let undone = || {
        let from = run?.measured.get(2)?.after;
        let last: Vec<bool> = run?
            .sessions
            .get(from..)?
            .iter()
            .map(|it| it.right)
            .collect();
        let soon = three_in_a_row(&last).map_or(f64::INFINITY, |n| n as f64);
        (!last.is_empty()).then_some(soon)
    };
    let what = format!("{THREE}: sessions until the first is undone (three in a row)");
    promises.push(Promise::at_most(what, 15.0, undone()));
    promises
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        content::Content, record::testing::record, reference::testing::references,
        session::Session, trainer::Reply,
    };

    fn session(right: bool) -> Session {
        Session {
            question: 0,
            first: Reply::default(),
            right,
            corrected: None,
            adapter: None,
            longest_ms: 1,
            n_requests: 1,
            n_held: 0,
            failures: Vec::new(),
        }
    }

    #[test]
    fn the_first_session_is_the_one_that_says_it() {
        let mut run = record("wishes-user", "terse", 1);
        assert_eq!(from_second(&run), None);
        run.sessions = [false, true, true, false].map(session).to_vec();
        assert_eq!(from_second(&run), Some(2.0 / 3.0));
    }

    #[test]
    fn one_wish_after_another_and_then_the_first_is_undone() {
        let content = Content::read(60).unwrap();
        let references = references(&["terse"], &content);
        let mut run = record(THREE, "terse", 1);
        run.id.wish = "terse+simple+definition+detail".to_owned();
        let mut later = run.measured[0].clone();
        later.figures.right.insert("terse".to_owned(), 30);
        run.measured = vec![run.measured[0].clone(), run.measured[0].clone(), later];
        for (measured, after) in run.measured.iter_mut().zip([4, 8, 12]) {
            measured.after = after;
        }
        run.sessions = [vec![false; 12], vec![false, true, true, true]]
            .concat()
            .into_iter()
            .map(session)
            .collect();
        let records = [run];
        let promises = of_consolidation(Results {
            records: &records,
            references: &references,
            content: &content,
        });
        let found = |what: &str| {
            let promise = promises.iter().find(|it| it.what.contains(what)).unwrap();
            (promise.found, promise.is_kept)
        };
        assert_eq!(found("after the second"), (Some(1.0), true));
        assert!(!found("after the third").1);
        assert_eq!(found("undone"), (Some(4.0), true));
        assert_eq!(found("both, terse").0, None);
    }
}
