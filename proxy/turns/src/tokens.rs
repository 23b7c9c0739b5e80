//! Token ids and log-probabilities beside a turn's record.
//!
//! A prompt mostly begins with its parent's prompt and reply: of that only the length is stored. A
//! value is a JSON line with the counts, then the new prompt ids and the sampled ids as LEB128, then
//! the log-probabilities as f32 little-endian.

use metaclaw_chat::TurnId;
use serde::{Deserialize, Serialize};

use crate::{
    error::LogError,
    keys,
    record::{Record, damaged},
    state,
    store::Table,
    tail::MAX_DEPTH,
    turn::{StreamEnd, Tokens, TurnKind},
    txn::{Fault, Source, Txn},
};

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    adapter: Option<String>,
    version: Option<u64>,
    base: String,
    /// The turn whose prompt and reply this prompt begins with.
    parent: Option<u32>,
    /// Turns whose ids these build on, one upon the other.
    #[serde(default)]
    depth: u32,
    /// With how many of its ids.
    shared: usize,
    /// Prompt ids after those.
    n_prompt: usize,
    n_ids: usize,
    /// Whether the log-probabilities of sampling are the others, as they are at temperature 1.
    same: bool,
    /// Whether those of sampling are not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unknown: bool,
}

/// One value, read but not yet put behind its parent's ids.
struct Stored {
    head: Head,
    prompt: Vec<u32>,
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    sampling: Vec<f32>,
}

/// Adds the ids that came with a new turn. The turn is worth more than its ids: where they cannot be
/// stored, it is without them.
pub(crate) fn add_to_new(txn: &mut Txn<'_>, id: TurnId, tokens: &Tokens) -> Result<(), Fault> {
    match add(txn, id, tokens) {
        Err(Fault::Refused(error)) => {
            tracing::warn!(turn = %id, %error, "a turn is stored without its token ids");
            Ok(())
        }
        added => added.map(|_| ()),
    }
}

/// Adds the ids to a turn; false if it has some.
pub(crate) fn add(txn: &mut Txn<'_>, id: TurnId, tokens: &Tokens) -> Result<bool, Fault> {
    let (n_ids, n_logprobs) = (tokens.ids.len(), tokens.logprobs.len());
    let n_sampling = tokens.sampling_logprobs.len();
    if n_ids != n_logprobs || n_sampling != 0 && n_ids != n_sampling {
        return Err(Fault::Refused(LogError::UnevenTokens {
            id,
            n_ids,
            n_logprobs,
            n_sampling,
        }));
    }
    let agent = state::agent_of(txn, id)?;
    let record = Record::get(txn, id)?.ok_or(LogError::NoSuchTurn { id })?;
    let key = keys::turn(id);
    if txn
        .get_guarded(Table::Tokens, &keys::piece(&key, 0))?
        .is_some()
    {
        return Ok(false);
    }
    let beginning = shared(txn, id, &record, tokens)?;
    let bytes = write(tokens, &beginning).map_err(|why| damaged(id, why))?;
    txn.put_long(Table::Tokens, &key, &bytes)?;
    let header = &record.header;
    if header.kind == TurnKind::Main && header.end == StreamEnd::Complete {
        state::count(txn, &agent, |funnel| funnel.with_ids += 1)?;
    }
    Ok(true)
}

/// What a prompt begins with: so many ids of its parent's prompt and reply.
#[derive(Debug, Default)]
struct Beginning {
    parent: Option<u32>,
    shared: usize,
    depth: u32,
}

/// How much of its parent's ids this prompt begins with.
///
/// Only a complete parent: another try may take the place of one that is not. And only one that does not
/// build on too many others: reading would take longer with every turn.
fn shared(txn: &Txn<'_>, id: TurnId, record: &Record, tokens: &Tokens) -> Result<Beginning, Fault> {
    let Some(seq) = record.header.parent else {
        return Ok(Beginning::default());
    };
    let parent = TurnId { seq, ..id };
    let is_complete =
        Record::get(txn, parent)?.is_some_and(|record| record.header.end == StreamEnd::Complete);
    let depth = match head(txn, parent)? {
        Some(head) if is_complete && head.depth < MAX_DEPTH => head.depth + 1,
        _ => return Ok(Beginning::default()),
    };
    let Some(before) = get(txn, parent)? else {
        return Ok(Beginning::default());
    };
    let theirs = before.prompt_ids.iter().chain(&before.ids);
    let shared = theirs.zip(&tokens.prompt_ids).take_while(|(a, b)| a == b);
    match shared.count() {
        0 => Ok(Beginning::default()),
        n => Ok(Beginning {
            parent: Some(seq),
            shared: n,
            depth,
        }),
    }
}

/// The head of a turn's ids, if it has some.
fn head(source: &impl Source, id: TurnId) -> Result<Option<Head>, Fault> {
    let bytes = source.get_long(Table::Tokens, &keys::turn(id))?;
    let read = |bytes: Vec<u8>| read(&bytes).ok_or_else(|| damaged(id, "its ids do not read back"));
    Ok(bytes.map(read).transpose()?.map(|stored| stored.head))
}

/// A turn's ids, if it has some.
pub(crate) fn get(source: &impl Source, id: TurnId) -> Result<Option<Tokens>, Fault> {
    let mut chain = Vec::new();
    let mut next = Some(id.seq);
    while let Some(seq) = next {
        let at = TurnId { seq, ..id };
        let Some(bytes) = source.get_long(Table::Tokens, &keys::turn(at))? else {
            if chain.is_empty() {
                return Ok(None);
            }
            return Err(damaged(
                id,
                format!("the ids of turn {at}, which its begin with, are missing"),
            ));
        };
        let stored = read(&bytes).ok_or_else(|| damaged(at, "its ids do not read back"))?;
        next = stored.head.parent;
        if next.is_some_and(|parent| parent >= seq) {
            return Err(damaged(at, "its ids build on a later turn"));
        }
        chain.push(stored);
    }
    let mut whole: Option<Tokens> = None;
    while let Some(stored) = chain.pop() {
        let tokens = join(stored, whole.as_ref());
        whole = Some(tokens.ok_or_else(|| damaged(id, "its ids begin with more than there are"))?);
    }
    Ok(whole)
}

fn join(stored: Stored, parent: Option<&Tokens>) -> Option<Tokens> {
    let shared = stored.head.shared;
    let theirs = parent
        .into_iter()
        .flat_map(|parent| parent.prompt_ids.iter().chain(&parent.ids));
    let mut prompt_ids: Vec<u32> = theirs.take(shared).copied().collect();
    if prompt_ids.len() != shared {
        return None;
    }
    prompt_ids.extend(stored.prompt);
    Some(Tokens {
        prompt_ids,
        ids: stored.ids,
        logprobs: stored.logprobs,
        sampling_logprobs: stored.sampling,
        adapter: stored.head.adapter,
        version: stored.head.version,
        base: stored.head.base,
    })
}

/// Bit for bit, as a NaN is not equal to itself.
fn is_same(a: &[f32], b: &[f32]) -> bool {
    a.iter()
        .map(|x| x.to_bits())
        .eq(b.iter().map(|x| x.to_bits()))
}

fn write(tokens: &Tokens, beginning: &Beginning) -> Result<Vec<u8>, String> {
    let prompt = &tokens.prompt_ids[beginning.shared..];
    let head = Head {
        adapter: tokens.adapter.clone(),
        version: tokens.version,
        base: tokens.base.clone(),
        parent: beginning.parent,
        shared: beginning.shared,
        depth: beginning.depth,
        n_prompt: prompt.len(),
        n_ids: tokens.ids.len(),
        same: is_same(&tokens.logprobs, &tokens.sampling_logprobs),
        unknown: tokens.sampling_logprobs.is_empty() && !tokens.logprobs.is_empty(),
    };
    let mut bytes = serde_json::to_vec(&head).map_err(|error| error.to_string())?;
    bytes.push(b'\n');
    for id in prompt.iter().chain(&tokens.ids) {
        write_id(*id, &mut bytes);
    }
    let sampling = if head.same {
        &[]
    } else {
        tokens.sampling_logprobs.as_slice()
    };
    for logprob in tokens.logprobs.iter().chain(sampling) {
        bytes.extend(logprob.to_le_bytes());
    }
    Ok(bytes)
}

fn read(bytes: &[u8]) -> Option<Stored> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
    let mut rest = &bytes[end + 1..];
    // Each id takes a byte at least: a count that claims more is damage, and reserves nothing.
    let mut ids = |n: usize| {
        (0..n)
            .map(|_| read_id(&mut rest))
            .collect::<Option<Vec<u32>>>()
    };
    let (prompt, ids) = (ids(head.n_prompt)?, ids(head.n_ids)?);
    let floats = |bytes: &[u8]| -> Vec<f32> {
        let (floats, _) = bytes.as_chunks::<4>();
        floats
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()
    };
    let n_bytes = head.n_ids.checked_mul(4)?;
    let logprobs = floats(rest.get(..n_bytes)?);
    let sampling = match (head.same, head.unknown) {
        (true, _) => logprobs.clone(),
        (false, true) => Vec::new(),
        (false, false) => floats(rest.get(n_bytes..n_bytes.checked_mul(2)?)?),
    };
    Some(Stored {
        head,
        prompt,
        ids,
        logprobs,
        sampling,
    })
}

/// LEB128: seven bits a byte, the lowest first.
fn write_id(mut id: u32, to: &mut Vec<u8>) {
    loop {
        let [low, ..] = id.to_le_bytes();
        id >>= 7;
        if id == 0 {
            return to.push(low & 0x7f);
        }
        to.push(low | 0x80);
    }
}

fn read_id(from: &mut &[u8]) -> Option<u32> {
    let mut id = 0u32;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        id |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(id);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_every_length_read_back() {
        for id in [0, 1, 127, 128, 49_151, 151_936, u32::MAX] {
            let mut bytes = Vec::new();
            write_id(id, &mut bytes);
            let mut rest = bytes.as_slice();
            assert_eq!(read_id(&mut rest), Some(id));
            assert!(rest.is_empty());
        }
        assert_eq!(read_id(&mut &[0x80, 0x80][..]), None);
        assert_eq!(read_id(&mut &[0x80; 9][..]), None);
    }

    #[test]
    fn a_cut_value_is_no_value() {
        for sampling_logprobs in [vec![-0.25, -1.0], vec![-0.5, -1.5], Vec::new()] {
            let tokens = Tokens {
                prompt_ids: vec![1, 2, 3],
                ids: vec![300, 4],
                logprobs: vec![-0.5, -1.5],
                sampling_logprobs,
                ..Tokens::default()
            };
            let bytes = write(&tokens, &Beginning::default()).unwrap();
            let back = join(read(&bytes).unwrap(), None).unwrap();
            assert_eq!(back, tokens);
            for cut in 0..bytes.len() {
                assert!(read(&bytes[..cut]).is_none(), "cut at {cut}");
            }
        }
    }
}
