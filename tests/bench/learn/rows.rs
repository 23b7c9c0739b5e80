//! What is run: the rows of rows.yaml with the flags applied, and the questions, wishes and probes.

use std::{fmt, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use metaclaw_chat::{Message, Score};
use metaclaw_reward::{Evidence, Rule, Rules};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::checker::{Check, Checker, SCRIPT};

const ROWS: &str = include_str!("rows.yaml");
const WISHES: &str = include_str!("wishes.yaml");
/// The rows and wishes of `cargo xtask bench wishes`.
const ARMS: &str = include_str!("../wishes/rows.yaml");
const CHECKED: &str = include_str!("../wishes/wishes.yaml");
const TRAIN: &str = include_str!("questions/train.txt");
const TEST: &str = include_str!("questions/test.txt");
const HIDDEN: &str = include_str!("hidden_probes.yaml");
const CAPABILITY: &str = include_str!("../../../proxy/learner/src/gate/probes/capability.yaml");
/// Results with other files cannot be compared.
pub const FILES: [&str; 9] = [
    ROWS, WISHES, ARMS, CHECKED, SCRIPT, TRAIN, TEST, HIDDEN, CAPABILITY,
];

/// The values with `--full`.
const FULL_SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
const FULL_SESSIONS: usize = 100;

// The flags about rows. A doc comment would be the help text of the command.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Selection {
    /// Two rows, few sessions, 20 test questions.
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Five seeds and 100 sessions of every run.
    #[arg(long)]
    pub full: bool,
    /// These rows alone (their names are in rows.yaml).
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Runs with these wishes alone.
    #[arg(long, value_delimiter = ',')]
    pub wishes: Vec<String>,
    /// So many sessions of each run with one wish.
    #[arg(long)]
    pub sessions: Option<usize>,
    /// These seeds of each run.
    #[arg(long, value_delimiter = ',')]
    pub seeds: Option<Vec<u64>>,
}

/// A configuration, and the agents that use it.
#[derive(Debug, Clone)]
pub struct Row {
    pub name: String,
    pub what: String,
    pub config: Value,
    pub runs: Vec<Run>,
}

/// One agent with its owner.
#[derive(Debug, Clone)]
pub struct Run {
    pub id: RunId,
    pub phases: Vec<Phase>,
    /// The sessions after which results are measured, including the last one.
    pub at: Vec<usize>,
    /// The sessions after which the owner is away until the learner has done what is due.
    pub day: usize,
    /// Whether the test questions are also asked through the product, which adds the wish to them.
    pub asks_product: bool,
}

/// The identity of the run, by which its results are found again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunId {
    pub row: String,
    /// The wishes, in order, joined by `+`.
    pub wish: String,
    pub seed: u64,
    pub sessions: usize,
}

/// The number of sessions after which a wish is added.
#[derive(Debug, Clone)]
pub struct Phase {
    pub wish: Arc<Wish>,
    pub sessions: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRow {
    name: String,
    what: String,
    #[serde(default)]
    config: Map<String, Value>,
    sessions: usize,
    /// The number of sessions of a day, in which the owner is never away; without it, the owner is away after each
    /// session.
    day: Option<usize>,
    /// Without any, each wish is a run.
    #[serde(default)]
    runs: Vec<WrittenRun>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRun {
    wishes: Vec<WrittenPhase>,
    #[serde(default = "first_seed")]
    seeds: Vec<u64>,
    #[serde(default)]
    at: Vec<usize>,
    quick: Option<usize>,
}

fn first_seed() -> Vec<u64> {
    vec![1]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPhase {
    wish: String,
    sessions: Option<usize>,
}

#[derive(Debug)]
pub struct Content {
    rows: &'static str,
    /// Whether a script decides which replies keep the wishes.
    pub is_checked: bool,
    pub wishes: Vec<Arc<Wish>>,
    pub train: Vec<String>,
    pub test: Vec<String>,
    /// Probes that the gate asks too.
    pub probes: Vec<Probe>,
    /// Probes that the gate never uses.
    pub hidden: Vec<Probe>,
}

/// What an owner wishes, and how a reply is checked against it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    pub name: String,
    #[expect(dead_code, reason = "for readers of the file")]
    #[serde(default)]
    fit: bool,
    /// The request alone, if the file has none.
    #[serde(default)]
    pub complaint: String,
    /// The part of the complaint that is a request.
    #[serde(rename = "wish")]
    pub request: String,
    /// A wish that this one replaces.
    pub undoes: Option<String>,
    /// Rules as in `judge.rules`.
    #[serde(default)]
    rules: Vec<Rule>,
    /// What decides in place of the rules.
    check: Option<Check>,
    /// A reply to "How?" that keeps it, and one that does not.
    #[serde(default)]
    kept: String,
    #[serde(default)]
    missed: String,
    #[serde(skip)]
    checker: Option<Arc<Checker>>,
}

/// A question with one right and one wrong answer of equal length and form.
#[derive(Debug, Clone, Deserialize)]
pub struct Probe {
    pub question: String,
    pub right: String,
    pub wrong: String,
}

/// Returns the selected rows, with the selected runs.
pub fn select(selection: &Selection, content: &Content) -> Result<Vec<Row>> {
    let written: Vec<WrittenRow> = serde_saphyr::from_str(content.rows).context("rows.yaml")?;
    let names: Vec<&str> = written.iter().map(|row| row.name.as_str()).collect();
    for name in &selection.only {
        let is_there = names.contains(&name.as_str());
        ensure!(
            is_there,
            "no such row: {name:?}; there are {}",
            names.join(", ")
        );
    }
    for name in &selection.wishes {
        content.wish(name)?;
    }
    let is_wanted =
        |row: &WrittenRow| selection.only.is_empty() || selection.only.contains(&row.name);
    let wanted = written.into_iter().filter(is_wanted);
    let rows = wanted.map(|row| row.expand(selection, content));
    let mut rows = rows.collect::<Result<Vec<Row>>>()?;
    rows.retain(|row| !row.runs.is_empty());
    ensure!(!rows.is_empty(), "nothing is left of what is selected");
    Ok(rows)
}

// === impl Row ===

impl Row {
    pub fn ids(&self) -> impl Iterator<Item = RunId> {
        self.runs.iter().map(|run| run.id.clone())
    }
}

// === impl WrittenRow ===

impl WrittenRow {
    fn adds_wishes(&self) -> bool {
        let wishes = self.config.get("wishes");
        wishes.is_none_or(|wishes| wishes["enabled"] != false)
    }

    fn expand(self, selection: &Selection, content: &Content) -> Result<Row> {
        let mut runs = Vec::new();
        for run in &self.runs {
            runs.extend(run.expand(&self, selection, content)?);
        }
        for wish in content.wishes.iter().filter(|_| self.runs.is_empty()) {
            runs.extend(WrittenRun::of(&wish.name).expand(&self, selection, content)?);
        }
        // `--full` and `--seeds` may give a run that another line has already: the longest one stays.
        runs.sort_by(|a, b| {
            let key = |run: &Run| {
                (
                    run.id.wish.clone(),
                    run.id.seed,
                    usize::MAX - run.id.sessions,
                )
            };
            key(a).cmp(&key(b))
        });
        runs.dedup_by(|later, kept| {
            (&later.id.wish, later.id.seed) == (&kept.id.wish, kept.id.seed)
        });
        Ok(Row {
            name: self.name,
            what: self.what,
            config: Value::Object(self.config),
            runs,
        })
    }
}

// === impl WrittenRun ===

impl WrittenRun {
    fn of(wish: &str) -> Self {
        let (wish, sessions) = (wish.to_owned(), None);
        Self {
            wishes: vec![WrittenPhase { wish, sessions }],
            seeds: first_seed(),
            at: Vec::new(),
            quick: None,
        }
    }

    /// Returns the runs of one line, one for each seed.
    fn expand(
        &self,
        row: &WrittenRow,
        selection: &Selection,
        content: &Content,
    ) -> Result<Vec<Run>> {
        let is_named = |phase: &WrittenPhase| selection.wishes.contains(&phase.wish);
        let is_left_out = !selection.wishes.is_empty() && !self.wishes.iter().any(is_named);
        if is_left_out || (selection.quick && self.quick.is_none()) {
            return Ok(Vec::new());
        }
        let quick = self.quick.filter(|_| selection.quick);
        let (mut phases, mut ends, mut sessions) = (Vec::new(), Vec::new(), 0);
        for phase in &self.wishes {
            let mut n = phase.sessions.unwrap_or(row.sessions);
            // With several wishes, each keeps its own number.
            if self.wishes.len() == 1 {
                let full = if selection.full {
                    n.max(FULL_SESSIONS)
                } else {
                    n
                };
                n = selection.sessions.or(quick).unwrap_or(full);
            }
            ensure!(n > 0, "row {}: no sessions with {}", row.name, phase.wish);
            sessions += n;
            ends.push(sessions);
            phases.push(Phase {
                wish: Arc::clone(content.wish(&phase.wish)?),
                sessions: n,
            });
        }
        let mut at: Vec<usize> = self.at.iter().copied().filter(|n| *n < sessions).collect();
        at.extend(ends);
        at.sort_unstable();
        at.dedup();
        let seeds = match &selection.seeds {
            Some(seeds) => &seeds[..],
            None if quick.is_some() => &self.seeds[..1],
            None if selection.full => &FULL_SEEDS,
            None => &self.seeds,
        };
        let wishes: Vec<&str> = phases
            .iter()
            .map(|phase| phase.wish.name.as_str())
            .collect();
        let run = |seed: &u64| Run {
            id: RunId {
                row: row.name.clone(),
                wish: wishes.join("+"),
                seed: *seed,
                sessions,
            },
            phases: phases.clone(),
            at: at.clone(),
            day: row.day.unwrap_or(1),
            asks_product: content.is_checked && row.adds_wishes(),
        };
        Ok(seeds.iter().map(run).collect())
    }
}

// === impl RunId ===

impl RunId {
    pub fn agent(&self) -> String {
        let name = format!("{}-{}-{}", self.row, self.wish.replace('+', "-"), self.seed);
        name.to_ascii_lowercase()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} #{} x{}",
            self.row, self.wish, self.seed, self.sessions
        )
    }
}

// === impl Content ===

impl Content {
    /// Reads the files; takes `n_test` of the questions for measuring, spread evenly. With a checker, the wishes are
    /// those that it decides on.
    pub fn read(n_test: usize, checker: Option<Checker>) -> Result<Self> {
        let test = lines(TEST);
        let n = test.len();
        ensure!(
            (3..=n).contains(&n_test),
            "{n_test} test questions: 3 to {n} are there"
        );
        let is_checked = checker.is_some();
        let (rows, wishes) = if is_checked {
            (ARMS, CHECKED)
        } else {
            (ROWS, WISHES)
        };
        let checker = checker.map(Arc::new);
        let mut wishes: Vec<Wish> = serde_saphyr::from_str(wishes).context("wishes.yaml")?;
        for wish in &mut wishes {
            wish.checker.clone_from(&checker);
            let is_known = |reply: &str| wish.is_obeyed("How?", reply);
            ensure!(
                !is_checked || (is_known(&wish.kept) && !is_known(&wish.missed)),
                "the checker of {} takes its example for the opposite",
                wish.name
            );
            if wish.complaint.is_empty() {
                wish.complaint.clone_from(&wish.request);
            }
        }
        let content = Self {
            rows,
            is_checked,
            wishes: wishes.into_iter().map(Arc::new).collect(),
            train: lines(TRAIN),
            test: (0..n_test).map(|i| test[i * n / n_test].clone()).collect(),
            probes: serde_saphyr::from_str(CAPABILITY).context("capability.yaml")?,
            hidden: serde_saphyr::from_str(HIDDEN).context("hidden_probes.yaml")?,
        };
        for wish in &content.wishes {
            Rules::compile(&wish.rules).with_context(|| format!("the wish {:?}", wish.name))?;
        }
        Ok(content)
    }

    /// Returns a wish by its name.
    pub fn wish(&self, name: &str) -> Result<&Arc<Wish>> {
        let found = self.wishes.iter().find(|wish| wish.name == name);
        found.with_context(|| {
            let names: Vec<&str> = self.wishes.iter().map(|wish| wish.name.as_str()).collect();
            format!("no such wish: {name:?}; there are {}", names.join(", "))
        })
    }
}

fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

// === impl Wish ===

impl Wish {
    /// Returns whether a reply to a question does what is wished.
    pub fn is_obeyed(&self, question: &str, reply: &str) -> bool {
        if let (Some(check), Some(checker)) = (&self.check, &self.checker) {
            return checker.keeps(check, question, reply);
        }
        let evidence = Evidence::new(&[], Message::assistant(reply), &[]);
        let rules = Rules::compile(&self.rules).expect("they were compiled when they were read");
        rules
            .judge(&evidence)
            .is_some_and(|verdict| verdict.score == Score::Good)
    }

    /// Returns a question with the wish as a paragraph of its own, as the reference gets it.
    pub fn told(&self, question: &str) -> String {
        format!("{question}\n\n{}", self.request)
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_skills::{Certainty, Heard, hear};

    use super::*;

    fn runs(selection: &Selection) -> Vec<String> {
        let rows = select(selection, &Content::read(60, None).unwrap()).unwrap();
        let runs = rows.iter().flat_map(|row| &row.runs);
        runs.map(|run| format!("{} {:?}", run.id, run.at)).collect()
    }

    fn only(row: &str) -> Selection {
        Selection {
            only: vec![row.to_owned()],
            ..Selection::default()
        }
    }

    #[test]
    fn flags_select_rows_and_change_how_much_there_is() {
        let default = runs(&only("default"));
        let long = "default terse #1 x200 [100, 200]".to_owned();
        assert!(
            default.contains(&long) && default.contains(&"default terse #5 x100 [100]".to_owned())
        );
        assert_eq!(default.len(), 8, "8 side by side");
        let phased = ["three-wishes terse+simple+definition+detail #1 x115 [40, 70, 100, 115]"];
        assert_eq!(runs(&only("three-wishes")), phased);
        let quick = runs(&Selection {
            quick: true,
            ..Selection::default()
        });
        assert_eq!(
            quick,
            ["default terse #1 x16 [16]", "wishes-user terse #1 x8 [8]"]
        );
        let full = runs(&Selection {
            full: true,
            wishes: vec!["terse".to_owned()],
            ..only("default")
        });
        assert!(
            full.len() == 5 && full.contains(&long),
            "no seed twice: {full:?}"
        );
        let error = select(&only("magic"), &Content::read(60, None).unwrap())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("\"magic\"") && error.contains("hybrid-gated"),
            "{error}"
        );
    }

    #[test]
    fn names_of_agents_are_names_of_folders() {
        let (row, wish) = ("both".to_owned(), "a+b".to_owned());
        let id = RunId {
            row,
            wish,
            seed: 2,
            sessions: 9,
        };
        assert_eq!(id.agent(), "both-a-b-2");
    }

    #[test]
    fn all_of_the_content_can_be_read() {
        let content = Content::read(60, None).unwrap();
        assert_eq!((content.train.len(), content.test.len()), (60, 60));
        assert_eq!((content.probes.len(), content.hidden.len()), (64, 64));
        assert!(
            content
                .train
                .iter()
                .all(|question| !content.test.contains(question))
        );
        for wish in &content.wishes {
            let undone = wish.undoes.as_deref().map(|name| content.wish(name));
            assert!(undone.is_none_or(|undone| undone.is_ok()), "{}", wish.name);
            assert!(wish.complaint.ends_with(&wish.request), "{}", wish.name);
        }
        assert!(content.wish("magic").is_err() && Content::read(61, None).is_err());
        let few = Content::read(20, None).unwrap().test;
        let all = lines(TEST);
        assert_eq!((few.len(), &few[1], &few[19]), (20, &all[3], &all[57]));
    }

    /// The arms with text must get the wish from the owner's words. "JSON" may be about a program, so that wish waits
    /// for review.
    #[test]
    fn a_checked_wish_is_heard_when_it_is_said() {
        let wishes: Vec<Wish> = serde_saphyr::from_str(CHECKED).unwrap();
        let is_heard = |wish: &&Wish| {
            let heard = hear(&wish.request, true);
            matches!(
                &heard[..],
                [Heard::Wish {
                    certainty: Certainty::Certain,
                    ..
                }]
            )
        };
        let (heard, others): (Vec<_>, Vec<_>) = wishes.iter().partition(is_heard);
        let others: Vec<&str> = others.iter().map(|wish| wish.name.as_str()).collect();
        assert_eq!((heard.len(), &others[..]), (30, &["json"][..]));
    }

    #[test]
    fn the_rules_tell_who_obeys() {
        let content = Content::read(60, None).unwrap();
        let long = "word ".repeat(41);
        for (wish, reply, obeys) in [
            ("terse", "Boil it for ten minutes.", true),
            ("terse", &long, false),
            ("hello", "Hello! Boil it.", true),
            ("hello", "Boil it. Hello!", false),
            ("detail", &long, true),
            ("detail", "Boil it.", false),
        ] {
            assert_eq!(
                content.wish(wish).unwrap().is_obeyed("", reply),
                obeys,
                "{wish}: {reply}"
            );
        }
    }
}
