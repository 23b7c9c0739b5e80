//! Deletes whole sessions, and masks texts. The counts are kept.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

use metaclaw_chat::{AgentId, SessionId};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{
    jobs::LogJob,
    journal, keys,
    log::{LogFuture, TurnLog},
    query::last_turn,
    record::{Record, Stored},
    rollouts::closing,
    session::SessionRecord,
    state,
    store::{Store, Table},
    text::hash,
    texts,
    turn::TurnState,
    txn::Txn,
    values::{self, TxnError, TxnResult},
    verdicts,
};

/// Returns a text with masks, or `None` if nothing has to be masked.
type TextMask = dyn Fn(&str) -> Option<String> + Send;

// === impl TurnLog ===

impl TurnLog {
    /// Deletes a session: its turns, and the texts that no other session uses. Counts and steps stay. Returns the
    /// number of its turns.
    ///
    /// sled overwrites deleted data only when it needs the room, and its file never shrinks. The bytes stay on the disk
    /// until [`TurnLog::compact`].
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn forget(&self, agent: &AgentId, session: &SessionId) -> LogFuture<'_, u64> {
        let (agent, session) = (agent.clone(), session.clone());
        self.write(move |txn| forget(txn, &agent, &session))
    }

    /// Writes the database anew, so that deleted data is gone from the disk. Turns wait in the meantime.
    ///
    /// # Errors
    /// Returns the store's error. The log is unchanged in that case, or opens again.
    pub fn compact(&self) -> LogFuture<'_, ()> {
        Box::pin(async move {
            let (done, compacted) = oneshot::channel();
            self.send(LogJob::Compact(done)).await?;
            compacted.await.map_err(|_| self.gone())
        })
    }

    /// Deletes the sessions whose last turn ended before a time in Unix milliseconds, and returns their number.
    ///
    /// A turn that says so was written with a clock that was behind if an earlier one of the log ended between that time
    /// and `now_ms`. Its session stays.
    ///
    /// # Errors
    /// Returns the store's error. Sessions that were deleted before it stay deleted.
    pub fn forget_before(&self, before_ms: u64, now_ms: u64) -> LogFuture<'_, u64> {
        Box::pin(async move {
            let since = move |store: &Store| journal::sessions_since(store, before_ms..=now_ms);
            let young = self.read(since).await?;
            let old = self.ended_but(0..before_ms, young).await?;
            for (agent, session) in &old {
                self.forget(agent, session).await?;
            }
            self.forget_rollouts_before(before_ms).await?;
            Ok(old.len() as u64)
        })
    }

    /// Returns the sessions whose last turn ended in a range of times in Unix milliseconds.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn ended(&self, times_ms: Range<u64>) -> LogFuture<'_, Vec<(AgentId, SessionId)>> {
        self.ended_but(times_ms, HashSet::new())
    }

    fn ended_but(
        &self,
        times_ms: Range<u64>,
        without: HashSet<u64>,
    ) -> LogFuture<'_, Vec<(AgentId, SessionId)>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for (number, session) in self.sessions().await? {
                let ended = move |store: &Store| {
                    let Some(last) = last_turn(store, number)? else {
                        return Ok(None);
                    };
                    let turn = values::readable(Record::get(store, last))?.flatten();
                    Ok(turn.map(|turn| turn.meta.ended_ms))
                };
                let ended_ms = self.read(ended).await?;
                let is_in = ended_ms.is_some_and(|ended_ms| times_ms.contains(&ended_ms));
                if is_in && !without.contains(&number) {
                    found.push((session.agent, session.session));
                }
            }
            Ok(found)
        })
    }

    /// Masks the texts of a session. `mask` gets each text and returns its replacement. From the first turn with a
    /// masked text on, the turns lose their token ids and get none. Returns the number of these turns.
    ///
    /// # Errors
    /// Returns `LogError::Damaged`, or the store's error.
    pub fn mask(
        &self,
        agent: &AgentId,
        session: &SessionId,
        mask: Box<TextMask>,
    ) -> LogFuture<'_, u64> {
        let (agent, session) = (agent.clone(), session.clone());
        self.write(move |txn| mask_session(txn, &agent, &session, &*mask))
    }
}

/// Deletes a session with everything that it alone uses. Returns the number of its turns.
fn forget(txn: &mut Txn<'_>, agent: &AgentId, name: &SessionId) -> TxnResult<u64> {
    let Some(number) = SessionRecord::number(txn, agent, name)? else {
        return Ok(0);
    };
    let (mut turns, mut used) = (Vec::new(), BTreeSet::new());
    for id in (0..).map(|seq| keys::id(number, seq)) {
        match Stored::get_read(txn, id) {
            Ok(Some((stored, mut turn))) => {
                used.extend(turn.texts().filter_map(|name| texts::shared(name)));
                used.extend(stored.lines().filter_map(|(_, line)| texts::shared(line)));
            }
            Ok(None) => break,
            // Its texts stay, because a damaged turn does not name them.
            Err(TxnError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        turns.push((id, state::get(txn, id).unwrap_or(TurnState::Captured)));
    }
    for (id, state) in &turns {
        state::remove(txn, agent, *id, state)?;
        for table in [Table::Turns, Table::Tokens, Table::Verdicts, Table::Uses] {
            values::remove(txn, table, &keys::turn(*id))?;
        }
    }
    for hash in used {
        texts::release(txn, number, &hash)?;
    }
    values::remove(txn, Table::Sessions, &keys::session(number))?;
    txn.remove(Table::Names, &keys::name(agent, name))?;
    closing::forget(txn, name)?;
    txn.cache.take(number);
    let n_turns = turns.len() as u64;
    txn.count(agent, |funnel| {
        funnel.forgotten += n_turns;
        for (_, state) in &turns {
            if matches!(state, TurnState::Taken { .. }) {
                state::leave(funnel, state);
            }
        }
    })?;
    Ok(n_turns)
}

/// Masks the texts of a session. Returns the number of turns concerned. These turns keep no token ids, which would
/// reveal the text, and get none. Hints about its turns are masked too, because they may be the owner's words.
fn mask_session(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    name: &SessionId,
    mask: &TextMask,
) -> TxnResult<u64> {
    let Some(number) = SessionRecord::number(txn, agent, name)? else {
        return Ok(0);
    };
    let (mut turns, mut gone) = (Vec::new(), BTreeSet::new());
    let (mut lines, mut others) = (Vec::new(), Vec::new());
    let mut judged = Vec::new();
    let mut is_told = false;
    for id in (0..).map(|seq| keys::id(number, seq)) {
        let Some((stored, mut turn)) = Stored::get_read(txn, id)? else {
            break;
        };
        let mut verdicts = verdicts::all(txn, id)?;
        let mut is_hint_told = false;
        for verdict in &mut verdicts {
            is_hint_told |= verdicts::mask_hints(verdict, &|text| mask(text));
        }
        if is_hint_told {
            judged.push((id, verdicts));
        }
        let mut mask = |line: &str| {
            let text = masked(txn, line, mask)?;
            if text.is_some() {
                is_told = true;
                gone.extend(texts::shared(line));
            }
            Ok::<_, TxnError>(text)
        };
        for name in turn.texts() {
            if let Some(text) = mask(name)? {
                *name = texts::name(&hash(text.as_bytes()));
                others.push(text);
            }
        }
        let first = stored.lines().next().map_or(0, |(first, _)| first);
        for (_, line) in stored.lines() {
            lines.push(match mask(line)? {
                Some(text) => text,
                None => texts::text(txn, line)?.into_owned(),
            });
        }
        // Requests after the first masked text may repeat it.
        if is_told {
            turn.meta.masked = true;
            turns.push((id, turn, first, std::mem::take(&mut lines)));
        }
        lines.clear();
    }
    for hash in gone {
        texts::release(txn, number, &hash)?;
    }
    for text in &others {
        texts::share(txn, number, &hash(text.as_bytes()), text)?;
    }
    for (id, turn, first, lines) in &turns {
        turn.put(txn, *id, *first, lines)?;
        values::remove(txn, Table::Tokens, &keys::turn(*id))?;
    }
    for (id, verdicts) in &judged {
        values::put_json(txn, Table::Verdicts, &keys::turn(*id), verdicts)?;
    }
    txn.cache.take(number);
    Ok(turns.len() as u64)
}

fn masked(txn: &Txn<'_>, line: &str, mask: &TextMask) -> TxnResult<Option<String>> {
    let mut value: Value = texts::value(txn, line)?;
    Ok(mask_value(&mut value, mask).then(|| value.to_string()))
}

fn mask_value(value: &mut Value, mask: &TextMask) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => mask(text).map(|masked| *text = masked).is_some(),
        Value::Array(values) => values
            .iter_mut()
            .fold(false, |is, value| mask_value(value, mask) | is),
        Value::Object(fields) => fields
            .values_mut()
            .fold(false, |is, value| mask_value(value, mask) | is),
    }
}
