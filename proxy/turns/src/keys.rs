//! How the keys of the tables are built, so that a range of keys is a question worth asking.

use std::ops::Bound;

use metaclaw_chat::{AgentId, SessionId, TurnId};

use crate::{
    diff::{Short, short},
    store::Key,
    turn::StateKind,
};

/// The turn at place `seq` of a session.
pub(crate) fn id(session: u64, seq: u32) -> TurnId {
    TurnId { session, seq }
}

/// Session number and place, big-endian: turns of a session in order.
pub(crate) fn turn(id: TurnId) -> Key {
    joined(&[&id.session.to_be_bytes(), &id.seq.to_be_bytes()])
}

/// The id in a key that ends with [`turn`].
pub(crate) fn read_turn(key: &[u8]) -> Option<TurnId> {
    let (session, seq) = key.last_chunk::<12>()?.split_first_chunk::<8>()?;
    Some(TurnId {
        session: u64::from_be_bytes(*session),
        seq: u32::from_be_bytes(seq.try_into().ok()?),
    })
}

/// One piece of a long value.
pub(crate) fn piece(key: &[u8], piece: u16) -> Key {
    joined(&[key, &piece.to_be_bytes()])
}

/// The turn and the piece in a key of one piece of a turn's value.
pub(crate) fn read_piece(key: &[u8]) -> Option<(TurnId, u16)> {
    let (turn, piece) = key.split_last_chunk::<2>()?;
    Some((read_turn(turn)?, u16::from_be_bytes(*piece)))
}

/// A session's number, big-endian.
pub(crate) fn session(number: u64) -> Key {
    (&number.to_be_bytes()).into()
}

/// Agent and session by name. Neither can hold a zero byte.
pub(crate) fn name(agent: &AgentId, session: &SessionId) -> Key {
    joined(&[agent.as_str().as_bytes(), &[0], session.as_str().as_bytes()])
}

/// Beginning of every key of one agent.
pub(crate) fn agent_prefix(agent: &AgentId) -> Key {
    joined(&[agent.as_str().as_bytes(), &[0]])
}

/// The turns of one agent in one state.
pub(crate) fn index_prefix(kind: StateKind, agent: &AgentId) -> Key {
    joined(&[&[kind as u8], agent.as_str().as_bytes(), &[0]])
}

/// One turn among those of its agent and state.
pub(crate) fn index(kind: StateKind, agent: &AgentId, id: TurnId) -> Key {
    joined(&[&index_prefix(kind, agent), &turn(id)])
}

/// One turn among all, by the time at which it ended.
pub(crate) fn time(ended_ms: u64, id: TurnId) -> Key {
    joined(&[&ended_ms.to_be_bytes(), &turn(id)])
}

/// The time in a key that [`time`] made.
pub(crate) fn read_time(key: &[u8]) -> Option<u64> {
    key.first_chunk().map(|ms| u64::from_be_bytes(*ms))
}

/// What stands for a reply id, and begins every key of it.
pub(crate) fn reply_hash(reply_id: &str) -> Short {
    short(blake3::hash(reply_id.as_bytes()).as_bytes())
}

/// One reply id in one session.
pub(crate) fn reply(reply_id: &Short, number: u64) -> Key {
    joined(&[reply_id, &number.to_be_bytes()])
}

/// Step `n` of one lineage of one agent.
pub(crate) fn step(agent: &AgentId, lineage: &str, n: u64) -> Key {
    let agent = agent.as_str().as_bytes();
    joined(&[agent, &[0], lineage.as_bytes(), &[0], &n.to_be_bytes()])
}

/// The range of keys that begin with `prefix`.
pub(crate) fn under(prefix: &[u8]) -> (Bound<Key>, Bound<Key>) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return (Bound::Included(prefix.into()), Bound::Excluded(end.into()));
        }
    }
    (Bound::Included(prefix.into()), Bound::Unbounded)
}

/// Reads a number that stands alone.
pub(crate) fn read_u64(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}

/// Reads a place that stands alone.
pub(crate) fn read_u32(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// The parts one behind the other; mostly few bytes, for which no memory is asked.
fn joined(parts: &[&[u8]]) -> Key {
    let mut short = [0; 32];
    let n_bytes = parts.iter().map(|part| part.len()).sum();
    let Some(mut room) = short.get_mut(..n_bytes) else {
        return parts.concat().into();
    };
    for part in parts {
        let (to, rest) = room.split_at_mut(part.len());
        to.copy_from_slice(part);
        room = rest;
    }
    (&short[..n_bytes]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_keys_sort_as_turns_and_read_back() {
        let id = |session, seq| TurnId { session, seq };
        let ids = [id(0, 0), id(0, 255), id(0, 256), id(1, 0), id(256, 3)];
        for pair in ids.windows(2) {
            assert!(turn(pair[0]) < turn(pair[1]));
        }
        let agent = AgentId::default_agent();
        for id in ids {
            assert_eq!(read_turn(&index(StateKind::Judged, &agent, id)), Some(id));
        }
        assert_eq!(read_turn(b"short"), None);
    }

    #[test]
    fn one_agents_keys_never_reach_another_whose_name_begins_the_same() {
        let (short, long) = ("a".parse().unwrap(), "ab".parse().unwrap());
        let key = index(StateKind::Judged, &long, TurnId { session: 1, seq: 1 });
        assert!(!key.starts_with(&index_prefix(StateKind::Judged, &short)));
    }

    #[test]
    fn a_prefix_that_ends_in_ff_has_an_end() {
        let (_, end) = under(&[1, 0xff]);
        assert_eq!(end, Bound::Excluded(vec![2].into()));
        assert_eq!(under(&[0xff]).1, Bound::Unbounded);
    }
}
