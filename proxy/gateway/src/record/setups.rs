//! What turns are asked and served under, written out once for all that are alike.
//!
//! The same agent asks with the same parameters and tools in every request, and is given the same
//! lessons: to read that, write it out and hash it took a third of the time that the way to the log took
//! in all.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use metaclaw_dialects::Api;
use metaclaw_turns::{JsonText, RawSetup};
use serde_json::{Map, Value};

use super::{Unread, asked::AsItCame};
use crate::{
    inject::Written,
    recent::Recent,
    request::value,
    scan::{self, Member},
    splice::OWN_FIELDS,
    threads::PerThread,
    upstream::Target,
};

/// How many are kept for a thread, about.
const BOUND: usize = 64;
/// The most bytes that what tells setups apart may take; one with more is written out each time.
const LONGEST: usize = 8 << 10;
/// The same of their tools, which stay with the setup: 8 MiB for a thread at worst.
const LONGEST_TOOLS: usize = 64 << 10;

/// The setups of late, on each thread.
pub(super) struct Setups(PerThread<Mutex<Recent<Vec<u8>, Kept>>>);

struct Kept {
    setup: RawSetup,
    /// Known by where they are, and so kept there.
    _lessons: Arc<Written>,
}

impl fmt::Debug for Setups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setups").finish_non_exhaustive()
    }
}

// === impl Setups ===

impl Setups {
    pub(super) fn new(n_threads: usize) -> Self {
        Self(PerThread::new(n_threads, || Mutex::new(Recent::new(BOUND))))
    }

    /// The setup of a request with these tools, and the bytes that no other has a part in.
    pub(super) fn of(
        &self,
        request: &AsItCame,
        tools: Option<JsonText>,
    ) -> Result<(RawSetup, u64), Unread> {
        let key = key(request, tools.as_ref());
        let n_bytes = key.len() as u64;
        let n_tools = tools.as_ref().map_or(0, |tools| tools.as_str().len());
        if key.len() > LONGEST || n_tools > LONGEST_TOOLS {
            return Ok((request.setup(params(request), tools)?, n_bytes));
        }
        let mut known = self.0.get().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = known.get_mut(&key) {
            return Ok((kept.setup.clone(), 0));
        }
        let setup = request.setup(params(request), tools)?;
        let kept = Kept {
            setup: setup.clone(),
            _lessons: Arc::clone(&request.lessons),
        };
        known.insert(key, kept);
        Ok((setup, n_bytes))
    }
}

/// All that a setup is made of: equal ones give equal setups.
fn key(request: &AsItCame, tools: Option<&JsonText>) -> Vec<u8> {
    let mut key = Vec::with_capacity(512);
    let mut part = |bytes: Option<&[u8]>| {
        let n_bytes = bytes.map_or(u64::MAX, |bytes| bytes.len() as u64);
        key.extend(n_bytes.to_le_bytes());
        key.extend(bytes.unwrap_or_default());
    };
    let kind = match request.target {
        Target::Policy(_) => "policy",
        Target::Named(_) => "named",
    };
    part(Some(request.chat.api.path().as_bytes()));
    part(Some(kind.as_bytes()));
    part(Some(request.target.name().as_bytes()));
    part(request.model().map(str::as_bytes));
    part(request.adapter.as_deref().map(str::as_bytes));
    part(Some(&Arc::as_ptr(&request.lessons).addr().to_le_bytes()));
    part(tools.map(|tools| &tools.hash()[..]));
    for member in steering(request) {
        part(Some(&request.chat.raw[member.whole.clone()]));
    }
    key
}

/// What steers the answer, beside the conversation and the tools.
fn params(request: &AsItCame) -> Map<String, Value> {
    let api = request.chat.api;
    let param = |member: &Member| {
        // A number that no f64 holds is all that can fail: nothing that steers an answer.
        let value = value(&request.chat.raw[member.value.clone()]);
        (
            api.param(&member.key).to_owned(),
            value.unwrap_or(Value::Null),
        )
    };
    steering(request).map(param).collect()
}

fn steering(request: &AsItCame) -> impl Iterator<Item = &Member> {
    let api = request.chat.api;
    let is_said = move |key: &str| match (key, api) {
        ("system", Api::Messages) | ("instructions", Api::Responses) => true,
        (key, _) => key == "tools" || key == scan::conversation(api),
    };
    let members = request.chat.layout.members.iter();
    members.filter(move |member| {
        let key = member.key.as_str();
        !is_said(key) && !OWN_FIELDS.contains(&key)
    })
}
