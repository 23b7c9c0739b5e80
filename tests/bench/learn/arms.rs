//! The tables of `cargo xtask bench wishes`, in Markdown: which wishes the base model can keep, and what came of the arms.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    play::Record,
    rows::{Content, Wish},
    score::{Figures, Probed, References, Scored, mean},
};

/// A wish is fit for learning if the base model keeps it in at most this share of its plain replies,
const PLAIN: f64 = 0.15;
/// in at least this share when told,
const TOLD: f64 = 0.5;
/// and these replies are so relevant, as a share of the plain ones.
const RELEVANT: f64 = 0.7;
/// Sessions of one column.
const COLUMN: usize = 5;
const ARMS: [&str; 5] = ["nothing", "text", "weights", "both", "forgotten"];

/// One arm of an owner.
struct Arm {
    name: &'static str,
    /// Enforcements a session, for each five sessions; none of the arm `forgotten`, which has no sessions.
    enforced: Vec<f64>,
    /// The share of replies to unseen questions that keep the wish.
    kept: f64,
    figures: Figures,
    /// The base model told: relevance and length are shares of its own.
    told: Figures,
    probed: Probed,
    adapters: String,
    minutes: f64,
}

/// Returns whether the base model can keep the wish, and does not do so unasked.
pub fn is_fit(wish: &Wish, references: &References, content: &Content) -> bool {
    let base = references.base(content);
    references.told(&wish.name, content).is_some_and(|told| {
        base.rate(&wish.name) <= PLAIN
            && told.rate(&wish.name) >= TOLD
            && told.relevance >= RELEVANT * base.relevance
    })
}

/// Returns what the base model does with each wish that it was told.
pub fn kinds(references: &References, content: &Content) -> String {
    let base = references.base(content);
    let mut text = format!(
        "{} questions; plain replies have {:.0} words, relevance {:.2}, and {} of them ended by themselves\n\n\
         | wish | plain | told | words, told | ended, told | relevance, told | as a share of plain | fit |\n\
         |---|---|---|---|---|---|---|---|\n",
        base.n, base.words, base.relevance, base.n_ended
    );
    for wish in &content.wishes {
        let Some(told) = references.told(&wish.name, content) else {
            continue;
        };
        let _ = writeln!(
            text,
            "| `{}` | {:.2} | {:.2} | {:.0} | {} | {:.2} | {:.2} | {} |",
            wish.name,
            base.rate(&wish.name),
            told.rate(&wish.name),
            told.words,
            told.n_ended,
            told.relevance,
            told.relevance / base.relevance,
            if is_fit(wish, references, content) {
                "yes"
            } else {
                ""
            }
        );
    }
    text
}

/// Returns the arms of each wish and seed, and their means over the owners that have all.
pub fn table(records: &[Record], references: &References, content: &Content) -> String {
    let mut owners: BTreeMap<(&str, u64), Vec<Arm>> = BTreeMap::new();
    for record in records {
        let arms = owners.entry((&record.id.wish, record.id.seed)).or_default();
        arms.extend(arms_of(record, references, content).into_iter().flatten());
    }
    let mut text = String::from(
        "| wish | seed | arm | enforcements a session: 1-5, 6-10, .. | unseen questions right | relevance, of told | \
         words, of told | under 3 words | probes, hidden | adapters | minutes |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut whole: Vec<&Arm> = Vec::new();
    for ((wish, seed), arms) in &mut owners {
        arms.sort_by_key(|arm| ARMS.iter().position(|name| *name == arm.name));
        for arm in &*arms {
            let head = format!("`{wish}` | {seed}");
            let probes = format!("{}, {}", arm.probed.known, arm.probed.hidden);
            let tail = format!("{probes} | {} | {:.0}", arm.adapters, arm.minutes);
            text += &line(&head, &[arm], &tail);
        }
        if arms.len() == ARMS.len() {
            whole.extend(&*arms);
        }
    }
    for name in ARMS {
        let own: Vec<&Arm> = whole
            .iter()
            .copied()
            .filter(|arm| arm.name == name)
            .collect();
        if !own.is_empty() {
            let head = format!("all | {} owners", own.len());
            text += &line(
                &head,
                &own,
                &format!(
                    "{:.1}, {:.1} | |",
                    mean(own.iter().map(|arm| arm.probed.known as f64)),
                    mean(own.iter().map(|arm| arm.probed.hidden as f64))
                ),
            );
        }
    }
    text
}

/// A line of the table, with the means of some arms.
fn line(head: &str, arms: &[&Arm], tail: &str) -> String {
    let of = |value: &dyn Fn(&Arm) -> f64| mean(arms.iter().map(|arm| value(arm)));
    let n_columns = arms
        .iter()
        .map(|arm| arm.enforced.len())
        .min()
        .unwrap_or_default();
    let enforced: Vec<String> = (0..n_columns)
        .map(|i| format!("{:.2}", of(&|arm| arm.enforced[i])))
        .collect();
    format!(
        "| {head} | {} | {} | {:.2} | {:.2} | {:.2} | {:.1} | {tail} |\n",
        arms[0].name,
        enforced.join(", "),
        of(&|arm| arm.kept),
        of(&|arm| arm.figures.relevance / arm.told.relevance),
        of(&|arm| arm.figures.words / arm.told.words),
        of(&|arm| arm.figures.n_short as f64),
    )
}

/// The arm of a run, and of `both` also what is left without the line.
fn arms_of(record: &Record, references: &References, content: &Content) -> Option<Vec<Arm>> {
    let (measured, wish) = (record.measured.last()?, &record.id.wish);
    let told = references.told(wish, content)?;
    let own = content.wish(wish).ok()?;
    let arm = |name: &str, enforced, replies: &[Scored]| {
        let figures = Figures::of(replies, [&**own]);
        Some(Arm {
            name: ARMS.into_iter().find(|arm| *arm == name)?,
            enforced,
            kept: figures.rate(wish),
            figures,
            told: told.clone(),
            probed: measured.probed,
            adapters: format!("{} of {}", record.watch.served.len(), record.made.len()),
            minutes: record.seconds / 60.0,
        })
    };
    let columns = record.sessions.chunks(COLUMN);
    let enforced = columns.map(|five| {
        mean(
            five.iter()
                .map(|session| f64::from(u8::from(!session.right))),
        )
    });
    let replies = if measured.with_text.is_empty() {
        &measured.replies
    } else {
        &measured.with_text
    };
    let mut arms = vec![arm(&record.id.row, enforced.collect(), replies)?];
    if record.id.row == "both" {
        arms.push(arm("forgotten", Vec::new(), &measured.replies)?);
    }
    Some(arms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        play::{Measured, Session},
        rows::RunId,
        score::testing::scored,
    };

    fn record(row: &str, reply: &str, with_text: Option<&str>) -> Record {
        let id = RunId {
            row: row.to_owned(),
            wish: "terse".to_owned(),
            seed: 1,
            sessions: 10,
        };
        let mut record = Record::new(&id, 60);
        record.sessions = (0..10)
            .map(|i| Session {
                right: i > 3,
                ..Session::default()
            })
            .collect();
        let replies = vec![scored("q", reply, 1.0)];
        record.measured.push(Measured {
            after: 10,
            adapter: None,
            wish: "terse".to_owned(),
            figures: Figures::default(),
            probed: Probed::default(),
            replies,
            with_text: with_text
                .map(|text| scored("q", text, 1.0))
                .into_iter()
                .collect(),
        });
        record
    }

    #[test]
    fn the_weights_of_both_are_the_arm_that_forgot_the_text() {
        let long = "word ".repeat(50);
        let content = Content::read(60, None).unwrap();
        let mut references = References {
            plain: vec![scored("q", &long, 1.0)],
            ..References::default()
        };
        let told = vec![scored("q", "Boil it now.", 0.5)];
        references.told.insert("terse".to_owned(), told);
        let runs = [
            record("nothing", &long, None),
            record("text", &long, Some("Boil it.")),
            record("weights", "Boil it.", None),
            record("both", &long, Some("Boil it.")),
        ];
        let text = table(&runs, &references, &content);
        for (arm, rest) in [
            ("nothing", "0.80, 0.00 | 0.00 | 2.00"),
            ("text", "0.80, 0.00 | 1.00 | 2.00"),
            ("weights", "0.80, 0.00 | 1.00 | 2.00"),
            ("both", "0.80, 0.00 | 1.00 | 2.00"),
            ("forgotten", " | 0.00 | 2.00"),
        ] {
            let own = format!("| `terse` | 1 | {arm} | {rest} |");
            let mean = format!("| all | 1 owners | {arm} | {rest} |");
            assert!(text.contains(&own) && text.contains(&mean), "{own}\n{text}");
        }
        assert!(!table(&runs[..3], &references, &content).contains("| all |"));
        let terse = content.wish("terse").unwrap();
        assert!(!is_fit(terse, &references, &content), "half as relevant");
        references
            .told
            .insert("terse".to_owned(), vec![scored("q", "Boil it now.", 0.8)]);
        assert!(is_fit(terse, &references, &content));
    }
}
