//! What of a turn seldom changes within a session: what steers the answer, the tools, and under what it
//! was served. It has lines of its own in the record that has it first; later ones name that turn.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    error::LogError,
    new_turn::NewTurn,
    record::Line,
    text::{Hash, hash},
    turn::Served,
};

/// The first line.
#[derive(Serialize, Deserialize)]
struct Setup<'a> {
    params: Cow<'a, Map<String, Value>>,
    /// Without its `system_block`.
    served: Cow<'a, Served>,
    /// Whether a line with the tools follows,
    tools: bool,
    /// and one with the block.
    block: bool,
}

/// A turn's setup before it is known whether the log has it.
pub(crate) struct NewSetup<'a> {
    line: String,
    new: &'a NewTurn,
    /// Equal setups have equal ones.
    pub(crate) hash: Hash,
}

/// A setup that was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadSetup {
    pub(crate) params: Map<String, Value>,
    pub(crate) served: Served,
    pub(crate) tools: Option<Value>,
}

// === impl NewSetup ===

impl<'a> NewSetup<'a> {
    pub(crate) fn of(new: &'a NewTurn) -> Result<Self, LogError> {
        let mut served = new.served.clone();
        let block = served.system_block.take();
        let setup = Setup {
            params: Cow::Borrowed(&new.params),
            served: Cow::Owned(served),
            tools: new.tools.is_some(),
            block: block.is_some(),
        };
        let line = serde_json::to_string(&setup).map_err(|error| unreadable(&error))?;
        let tools = new.tools.as_ref().map_or([0; 16], |tools| tools.hash);
        let block = block.map_or([0; 16], |block| hash(block.as_bytes()));
        let parts = [hash(line.as_bytes()), tools, block];
        Ok(Self {
            line,
            new,
            hash: hash(parts.as_flattened()),
        })
    }

    pub(crate) fn lines(self) -> Result<Vec<Line>, LogError> {
        let mut lines = vec![Line::new(self.line)];
        if let Some(tools) = &self.new.tools {
            lines.push(Line::new(
                tools.canonical().map_err(|error| unreadable(&error))?,
            ));
        }
        if let Some(block) = &self.new.served.system_block {
            lines.push(Line::new(Value::from(block.as_str()).to_string()));
        }
        Ok(lines)
    }
}

/// That some of a new turn fits in no value.
pub(crate) fn unreadable(error: &serde_json::Error) -> LogError {
    LogError::Unreadable {
        why: error.to_string(),
    }
}

// === impl ReadSetup ===

impl ReadSetup {
    /// Reads a setup from its lines.
    pub(crate) fn read(mut lines: impl Iterator<Item = String>) -> Result<Self, String> {
        let first = lines.next().ok_or("it has no setup")?;
        let setup: Setup<'_> = read(&first)?;
        let mut served = setup.served.into_owned();
        let mut next = |there: bool| there.then(|| lines.next().ok_or("its setup ends early"));
        let tools = next(setup.tools).transpose()?;
        let block = next(setup.block).transpose()?;
        served.system_block = block.map(|line| read(&line)).transpose()?;
        Ok(Self {
            params: setup.params.into_owned(),
            served,
            tools: tools.map(|line| read(&line)).transpose()?,
        })
    }
}

fn read<T: serde::de::DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| error.to_string())
}
