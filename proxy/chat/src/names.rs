//! Names of agents, sessions, turns and rollouts.

use std::{str::FromStr, sync::Arc};

use schemars::JsonSchema;

use crate::excerpt::excerpt;

const MAX_AGENT: usize = 64;
/// The digits of a rollout's id: 12 of its time and 8 random ones.
const ROLLOUT_DIGITS: usize = 20;

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {value:?} is not allowed: {allowed}")]
pub struct NameError {
    kind: &'static str,
    value: String,
    allowed: &'static str,
}

/// The name of the agent that a request belongs to. It is also a folder name in the skills folder.
///
/// A name has 1 to 64 characters of `a-z A-Z 0-9 _ - .` and begins with a letter, a digit or `_`. So it contains no
/// path separator and is never `.` or `..`. `_default` and `_shared` are reserved.
///
/// # Examples
/// ```
/// use metaclaw_chat::AgentId;
///
/// let agent: AgentId = "writer".parse()?;
/// assert_eq!(agent.as_str(), "writer");
/// assert!("../other".parse::<AgentId>().is_err(), "it names a folder");
/// # Ok::<(), metaclaw_chat::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
pub struct AgentId(#[schemars(with = "String")] Arc<str>);

/// One conversation of one agent, by the client's name for it. It is never used as a path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

/// The id of a turn in the log: the session's number and the turn's place in the session.
///
/// Its text form is `12-3`. It is unique within one log, and ordered like the turns of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
#[display("{session}-{seq}")]
pub struct TurnId {
    /// The number that the log gave the session when it first saw it.
    pub session: u64,
    /// The turn's place in its session, from 0.
    pub seq: u32,
}

/// A person who writes to an agent: the id that the agent's host has for this person. It is never used as a path.
///
/// An id has 1 to 128 bytes, and no control character.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SenderId(Arc<str>);

/// The name of a task that rollouts try. The program that opens the rollouts chooses it. It is never used as a path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(Arc<str>);

/// The name of a group: the rollouts of one task whose outcomes are compared with each other.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(Arc<str>);

/// The id of a rollout: 20 hexadecimal digits. Ids are ordered by the time at which the rollouts were opened.
///
/// It is part of the address that the rollout's agent talks to, and of the name of its session.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RolloutId(Arc<str>);

// === impl AgentId ===

impl AgentId {
    /// Returns the agent of requests that name none.
    pub fn default_agent() -> Self {
        Self(Arc::from("_default"))
    }

    /// Returns the name that stands for every agent. See [`Self::is_shared`].
    pub fn shared() -> Self {
        Self(Arc::from("_shared"))
    }

    /// Returns whether the name stands for every agent. Only a folder of lessons has this name, never a caller.
    pub fn is_shared(&self) -> bool {
        &*self.0 == "_shared"
    }
}

impl FromStr for AgentId {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, NameError> {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let begins = value.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if begins && value.len() <= MAX_AGENT && value.chars().all(is_legal) {
            return Ok(Self(Arc::from(value)));
        }
        let allowed = "1 to 64 of a-z A-Z 0-9 _ - ., beginning with a letter, a digit or _";
        Err(NameError::new("agent name", value, allowed))
    }
}

// === impl RolloutId ===

impl RolloutId {
    const SESSION: &'static str = "rollout:";

    /// Makes the id of a rollout that is opened at a time in Unix milliseconds.
    pub fn new(opened_ms: u64, random: u32) -> Self {
        let opened = opened_ms & 0xffff_ffff_ffff;
        Self(format!("{opened:012x}{random:08x}").into())
    }

    /// Returns the session in which the rollout's turns are.
    pub fn session(&self) -> SessionId {
        SessionId(format!("{}{}", Self::SESSION, self.0).into())
    }

    /// Returns the rollout whose session has this name.
    pub fn of_session(session: &SessionId) -> Option<Self> {
        let id = session.as_str().strip_prefix(Self::SESSION)?;
        id.parse().ok()
    }
}

impl FromStr for RolloutId {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, NameError> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if value.len() == ROLLOUT_DIGITS && value.bytes().all(is_digit) {
            return Ok(Self(Arc::from(value)));
        }
        let allowed = "20 hexadecimal digits, as `metaclaw rollout list` shows them";
        Err(NameError::new("rollout id", value, allowed))
    }
}

// === impl TurnId ===

impl FromStr for TurnId {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, NameError> {
        let parsed = value.split_once('-').and_then(|(session, seq)| {
            Some(Self {
                session: session.parse().ok()?,
                seq: seq.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| NameError::new("turn id", value, "SESSION-SEQUENCE, as in 12-3"))
    }
}

// === impl NameError ===

impl NameError {
    fn new(kind: &'static str, value: &str, allowed: &'static str) -> Self {
        Self {
            kind,
            value: excerpt(value).into_owned(),
            allowed,
        }
    }
}

/// Implements what all names share that wrap one `Arc<str>`: access to the text, display, and serde. The type
/// implements `FromStr` itself.
#[macro_export]
macro_rules! text_name {
    ($name:ident) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl ::std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        $crate::serde_as_text!($name);
    };
}

/// Implements serde by the text of a type, which it displays and parses.
#[macro_export]
macro_rules! serde_as_text {
    ($name:ident) => {
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                let text = <String as ::serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(::serde::de::Error::custom)
            }
        }
    };
}

/// Displays enums of words by the names that serde gives them.
#[macro_export]
macro_rules! display_as_serde {
    ($($name:ident),+) => {$(
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::serde::Serialize::serialize(self, f)
            }
        }
    )+};
}

/// Implements a name of free text, given its longest length in bytes and its kind. The space around it is removed. A
/// longer text is refused and not cut, because two names could become the same.
macro_rules! short_name {
    ($name:ident, $max:literal, $kind:literal) => {
        impl FromStr for $name {
            type Err = NameError;

            fn from_str(value: &str) -> Result<Self, NameError> {
                let name = value.trim();
                if (1..=$max).contains(&name.len()) && !name.chars().any(char::is_control) {
                    return Ok(Self(Arc::from(name)));
                }
                let allowed = concat!("1 to ", $max, " bytes, no control characters");
                Err(NameError::new($kind, name, allowed))
            }
        }
        text_name!($name);
    };
}
text_name!(AgentId);
short_name!(SessionId, 256, "session name");
short_name!(SenderId, 128, "sender id");
short_name!(TaskId, 200, "the name");
short_name!(GroupId, 200, "the name");
text_name!(RolloutId);
serde_as_text!(TurnId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_name_can_never_leave_its_folder() {
        let long = "a".repeat(65);
        for bad in [
            "", ".", "..", "../x", "a/b", "a\\b", ".hidden", "a\0", "-x", &long,
        ] {
            assert!(bad.parse::<AgentId>().is_err(), "{bad:?}");
        }
        for good in ["main", "_default", "a.b", "Agent-7"] {
            assert_eq!(good.parse::<AgentId>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn of_a_long_text_that_is_no_name_the_beginning_is_shown() {
        let long = "é".repeat(1 << 20);
        let errors = [
            long.parse::<AgentId>().unwrap_err(),
            long.parse::<SessionId>().unwrap_err(),
            long.parse::<TurnId>().unwrap_err(),
        ];
        let shown = format!("\"{}…\"", "é".repeat(100));
        for error in errors.map(|error| error.to_string()) {
            assert!(error.contains(&shown) && error.len() < 400, "{error}");
        }
    }

    #[test]
    fn a_turn_id_reads_back_as_shown() {
        let id = TurnId {
            session: 12,
            seq: 3,
        };
        assert_eq!(id.to_string(), "12-3");
        assert_eq!("12-3".parse::<TurnId>().unwrap(), id);
        assert!("12".parse::<TurnId>().is_err());
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"12-3\"");
    }

    #[test]
    fn a_bad_name_is_refused_when_deserialised() {
        let error = serde_json::from_str::<AgentId>("\"../x\"").unwrap_err();
        let refused = "agent name \"../x\" is not allowed";
        assert!(error.to_string().contains(refused), "{error}");
    }

    #[test]
    fn a_rollouts_id_is_ordered_by_time_and_names_its_session() {
        let (first, second) = (RolloutId::new(1_000, u32::MAX), RolloutId::new(1_001, 0));
        assert!(first < second);
        assert_eq!(first.as_str().parse::<RolloutId>().unwrap(), first);
        assert_eq!(RolloutId::of_session(&first.session()), Some(first));
        let named = "rollout:somebody".parse().unwrap();
        assert_eq!(RolloutId::of_session(&named), None);
        for bad in [
            "",
            "../../v1",
            "0000000003E8ffffffff",
            "0000000003e8fffffff",
        ] {
            assert!(bad.parse::<RolloutId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_task_may_be_named_in_any_script_and_within_bounds() {
        let long = "x".repeat(201);
        let task: TaskId = " Aufgabe 7 ".parse().unwrap();
        assert_eq!(task.as_str(), "Aufgabe 7");
        assert!(long.parse::<GroupId>().is_err() && "a\nb".parse::<TaskId>().is_err());
        let senders = ["x".repeat(128), "x".repeat(129)];
        assert!(senders[0].parse::<SenderId>().is_ok());
        let refused = senders[1].parse::<SenderId>().unwrap_err().to_string();
        assert!(refused.starts_with("sender id"), "{refused}");
    }
}
