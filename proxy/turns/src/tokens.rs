//! Token ids and log-probabilities beside a turn's record.
//!
//! A prompt usually begins with its parent's prompt and reply. Of these, only the length is stored. A value is a JSON
//! line with the counts, then the new prompt ids and the sampled ids as u32, then the log-probabilities as f32, all
//! little-endian.

use metaclaw_chat::TurnId;
use serde::{Deserialize, Serialize};

use crate::{
    error::LogError,
    keys,
    new_turn::NewTurn,
    record::{Record, damaged_turn},
    state,
    store::{StoreResult, StoreSource, Table},
    turn::{StreamEnd, Tokens},
    txn::Txn,
    values::{self, TxnError, TxnResult},
};

/// Largest number of turns whose ids build on one another, which limits the time to read them.
const MAX_DEPTH: u32 = 32;

#[derive(Debug, Serialize, Deserialize)]
struct TokensHeader {
    adapter: Option<String>,
    version: Option<u64>,
    base: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base_fingerprint: Option<String>,
    /// The turn whose prompt and reply this prompt begins with, and the number of these ids.
    shared: Option<(u32, usize)>,
    /// Number of turns whose ids these build on, in a chain.
    depth: u32,
    /// Number of prompt ids after those.
    n_prompt: usize,
    n_ids: usize,
}

/// Adds the ids that came with a new turn, unless the turn is masked. If the log refuses the ids, the turn is stored
/// without them. An error of the store is returned.
pub(crate) fn put_new(
    txn: &mut Txn<'_>,
    id: TurnId,
    new: &NewTurn,
    record: &Record,
) -> StoreResult<()> {
    let Some(tokens) = new.tokens.as_ref().filter(|_| !record.meta.masked) else {
        return Ok(());
    };
    let checked = check(id, tokens).map_err(TxnError::from);
    let stored = checked.and_then(|()| put(txn, id, record.parent, tokens));
    match values::split(stored)? {
        Ok(()) if new.meta.is_learnable() => txn.count(&new.agent, |funnel| funnel.with_ids += 1),
        Ok(()) => Ok(()),
        Err(error) => {
            tracing::warn!(turn = %id, %error, "a turn is stored without its token ids");
            Ok(())
        }
    }
}

/// Adds the ids to a turn. Returns false if it has some, or may not have any.
pub(crate) fn add(txn: &mut Txn<'_>, id: TurnId, tokens: &Tokens) -> TxnResult<bool> {
    check(id, tokens)?;
    let (agent, _) = state::of_turn(txn, id)?;
    let turn = Record::get(txn, id)?.ok_or(LogError::NoSuchTurn { id })?;
    if turn.meta.masked || has(txn, id)? {
        return Ok(false);
    }
    put(txn, id, turn.parent, tokens)?;
    if turn.meta.is_learnable() {
        txn.count(&agent, |funnel| funnel.with_ids += 1)?;
    }
    Ok(true)
}

pub(crate) fn has(source: &impl StoreSource, id: TurnId) -> StoreResult<bool> {
    Ok(source.get(Table::Tokens, &keys::turn(id))?.is_some())
}

pub(crate) fn check(id: TurnId, tokens: &Tokens) -> Result<(), LogError> {
    let (n_ids, n_logprobs) = (tokens.ids.len(), tokens.logprobs.len());
    let n_sampling = tokens.sampling_logprobs.len();
    if n_ids != n_logprobs || n_sampling != 0 && n_ids != n_sampling {
        return Err(LogError::UnevenTokens {
            id,
            n_ids,
            n_logprobs,
            n_sampling,
        });
    }
    Ok(())
}

fn put(txn: &Txn<'_>, id: TurnId, parent: Option<u32>, tokens: &Tokens) -> TxnResult<()> {
    let before = parent
        .map(|seq| shared(txn, TurnId { seq, ..id }))
        .transpose()?;
    let (mut n_shared, mut depth) = (0, 0);
    if let Some((of_parent, before)) = before.flatten() {
        let theirs = before.prompt_ids.iter().chain(&before.ids);
        let same = theirs.zip(&tokens.prompt_ids).take_while(|(a, b)| a == b);
        n_shared = same.count();
        depth = of_parent + 1;
    }
    let shared = parent.filter(|_| n_shared > 0).map(|seq| (seq, n_shared));
    let bytes =
        write(tokens, shared, depth).map_err(|error| damaged_turn(id, error.to_string()))?;
    Ok(values::put(txn, Table::Tokens, &keys::turn(id), &bytes)?)
}

/// Returns a parent's ids with which a prompt may begin, and the length of their chain.
///
/// The parent must be complete, because another try may replace an incomplete one. Its chain must not be too long,
/// because reading would take longer with every turn.
fn shared(txn: &Txn<'_>, parent: TurnId) -> TxnResult<Option<(u32, Tokens)>> {
    let turn = Record::get(txn, parent)?;
    let is_complete = turn.is_some_and(|turn| turn.meta.end == StreamEnd::Complete);
    let before = get_with_depth(txn, parent)?;
    Ok(before.filter(|(depth, _)| is_complete && *depth < MAX_DEPTH))
}

pub(crate) fn get(source: &impl StoreSource, id: TurnId) -> TxnResult<Option<Tokens>> {
    Ok(get_with_depth(source, id)?.map(|(_, tokens)| tokens))
}

fn get_with_depth(source: &impl StoreSource, id: TurnId) -> TxnResult<Option<(u32, Tokens)>> {
    let Some(bytes) = values::get(source, Table::Tokens, &keys::turn(id))? else {
        return Ok(None);
    };
    let damaged = || damaged_turn(id, "its ids do not read back");
    let (head, mut tokens) = read(&bytes).ok_or_else(damaged)?;
    if let Some((seq, n)) = head.shared {
        // The depth decreases with each recursion, so it ends.
        let (depth, before) = get_with_depth(source, TurnId { seq, ..id })?.ok_or_else(damaged)?;
        let mut ids = before.prompt_ids;
        ids.extend(before.ids);
        if depth >= head.depth || n > ids.len() {
            return Err(damaged());
        }
        ids.truncate(n);
        ids.append(&mut tokens.prompt_ids);
        tokens.prompt_ids = ids;
    }
    Ok(Some((head.depth, tokens)))
}

/// If the log-probabilities of sampling equal those at temperature 1, they take no space, because zstd compresses them.
fn write(
    tokens: &Tokens,
    shared: Option<(u32, usize)>,
    depth: u32,
) -> Result<Vec<u8>, serde_json::Error> {
    let n_shared = shared.map_or(0, |(_, n)| n);
    let prompt = tokens.prompt_ids.get(n_shared..).unwrap_or_default();
    let head = TokensHeader {
        adapter: tokens.adapter.clone(),
        version: tokens.version,
        base: tokens.base.clone(),
        base_fingerprint: tokens.base_fingerprint.clone(),
        shared,
        depth,
        n_prompt: prompt.len(),
        n_ids: tokens.ids.len(),
    };
    let mut bytes = serde_json::to_vec(&head)?;
    bytes.push(b'\n');
    let ids = prompt.iter().chain(&tokens.ids);
    bytes.extend(ids.flat_map(|id| id.to_le_bytes()));
    let logprobs = tokens.logprobs.iter().chain(&tokens.sampling_logprobs);
    bytes.extend(logprobs.flat_map(|logprob| logprob.to_le_bytes()));
    Ok(bytes)
}

fn read(bytes: &[u8]) -> Option<(TokensHeader, Tokens)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: TokensHeader = serde_json::from_slice(&bytes[..end]).ok()?;
    let (words, []) = bytes[end + 1..].as_chunks::<4>() else {
        return None;
    };
    let (prompt, words) = words.split_at_checked(head.n_prompt)?;
    let (sampled, words) = words.split_at_checked(head.n_ids)?;
    let (logprobs, sampling) = words.split_at_checked(head.n_ids)?;
    let ids = |words: &[[u8; 4]]| words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let floats = |words: &[[u8; 4]]| words.iter().map(|word| f32::from_le_bytes(*word)).collect();
    let tokens = Tokens {
        prompt_ids: ids(prompt),
        ids: ids(sampled),
        logprobs: floats(logprobs),
        sampling_logprobs: floats(sampling),
        adapter: head.adapter.clone(),
        version: head.version,
        base: head.base.clone(),
        base_fingerprint: head.base_fingerprint.clone(),
    };
    let is_whole = [0, head.n_ids].contains(&sampling.len());
    is_whole.then_some((head, tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(n: u8) -> Tokens {
        let logprob = |id: u8| -f32::from(id) / 7.0;
        Tokens {
            prompt_ids: vec![0, 300, u32::MAX],
            ids: (0..u32::from(n)).collect(),
            logprobs: (0..n).map(logprob).collect(),
            sampling_logprobs: (0..n).map(logprob).collect(),
            adapter: Some("main-3".to_owned()),
            version: Some(u64::MAX),
            base: "demo".to_owned(),
            base_fingerprint: Some("0badcafe".to_owned()),
        }
    }

    #[test]
    fn ids_read_back_and_damage_is_no_panic() {
        let same = tokens(5);
        let mut nan = tokens(5);
        nan.sampling_logprobs[3] = f32::NEG_INFINITY;
        let mut unknown = tokens(5);
        unknown.sampling_logprobs.clear();
        let none = tokens(0);
        for tokens in [same, nan, unknown, none] {
            let bytes = write(&tokens, None, 0).unwrap();
            assert_eq!(read(&bytes).map(|(_, tokens)| tokens), Some(tokens));
            for cut in 0..bytes.len() {
                // Without the last part, the log-probabilities of sampling seem to be unknown.
                let read = read(&bytes[..cut]);
                assert!(
                    read.is_none_or(|(_, it)| it.sampling_logprobs.is_empty()),
                    "{cut}"
                );
            }
        }
        assert!(read(b"{}\n").is_none());
    }
}
