//! Counts of how turns with a lesson in their prompt were judged. They are kept when the turns or the lesson are
//! deleted.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, Score, TurnId};

use crate::{
    counts::LessonCounts,
    keys,
    new_turn::NewTurn,
    record::{Record, Setup},
    store::{Store, StoreResult, Table},
    texts,
    turn::{Served, TurnKind},
    txn::Txn,
    values::{self, TxnResult},
};

/// Prefix of the id of a wish: [`Served::wish_ids`].
pub const WISH: &str = "wish:";
/// The key under which all turns of an agent are counted, with or without lessons. No lesson has an empty name.
const ALL: &str = "";

/// Returns the counts of each lesson of the agents whose keys begin with `prefix`, by a skill's name, or [`WISH`] and a
/// wish's id.
pub(crate) fn counts(store: &Store, prefix: &[u8]) -> TxnResult<BTreeMap<String, LessonCounts>> {
    let stored: Vec<(_, LessonCounts)> = values::readable_json(store, Table::Lessons, prefix)?;
    let mut all: BTreeMap<Vec<u8>, LessonCounts> = BTreeMap::new();
    let mut found: BTreeMap<String, LessonCounts> = BTreeMap::new();
    for (key, counts) in stored {
        let (Some(agent), Some(name)) = (keys::read_agent(&key), keys::read_lesson(&key)) else {
            continue;
        };
        // The empty name comes before every other one of its agent.
        if name == ALL {
            all.insert(keys::agent(&agent), counts);
            continue;
        }
        let all = all.get(&keys::agent(&agent)).copied().unwrap_or_default();
        let sum = found.entry(name.to_owned()).or_default();
        sum.injected += counts.injected;
        sum.good += counts.good;
        sum.bad += counts.bad;
        sum.good_without += all.good.saturating_sub(counts.good);
        sum.bad_without += all.bad.saturating_sub(counts.bad);
    }
    Ok(found)
}

/// Counts that a turn was added to the log (1), or was replaced by another (-1).
pub(crate) fn served(txn: &Txn<'_>, turn: &NewTurn, n: i64) -> StoreResult<()> {
    if turn.meta.kind != TurnKind::Main {
        return Ok(());
    }
    each(txn, &turn.agent, &turn.served, |counts| {
        counts.injected = counts.injected.saturating_add_signed(n);
    })
}

pub(crate) fn judged(
    txn: &Txn<'_>,
    agent: &AgentId,
    id: TurnId,
    before: Option<Score>,
    score: Score,
) -> TxnResult<()> {
    match values::split(under_what(txn, id))? {
        Ok(None) => {}
        Ok(Some(served)) => each(txn, agent, &served, |counts| {
            add(counts, before, -1);
            add(counts, Some(score), 1);
        })?,
        // A damaged turn must not prevent a verdict.
        Err(error) => {
            tracing::warn!(turn = %id, %error, "a verdict is not counted for its lessons");
        }
    }
    Ok(())
}

fn add(counts: &mut LessonCounts, score: Option<Score>, n: i64) {
    let count = match score {
        Some(Score::Good) => &mut counts.good,
        Some(Score::Bad) => &mut counts.bad,
        Some(Score::Unclear) | None => return,
    };
    *count = count.saturating_add_signed(n);
}

fn under_what(txn: &Txn<'_>, id: TurnId) -> TxnResult<Option<Served>> {
    let record = Record::get(txn, id)?;
    let Some(record) = record.filter(|record| record.meta.kind == TurnKind::Main) else {
        return Ok(None);
    };
    let (_, served): Setup = texts::value(txn, &record.setup)?;
    Ok(Some(served))
}

fn each(
    txn: &Txn<'_>,
    agent: &AgentId,
    served: &Served,
    change: impl Fn(&mut LessonCounts),
) -> StoreResult<()> {
    let skills = served.skills.iter().map(|skill| skill.name.clone());
    let wishes = served.wish_ids.iter().map(|id| format!("{WISH}{id}"));
    for name in skills.chain(wishes).chain([ALL.to_owned()]) {
        self::change(txn, agent, &name, &change)?;
    }
    Ok(())
}

pub(crate) fn change(
    txn: &Txn<'_>,
    agent: &AgentId,
    name: &str,
    change: impl FnOnce(&mut LessonCounts),
) -> StoreResult<()> {
    let key = keys::lesson(agent, name);
    txn.lessons.change(txn, agent, &key, change)
}
