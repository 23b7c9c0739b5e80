//! Ids of calls that no other call of a conversation has.
//!
//! Some servers number the calls of each reply from the start, and agents match results by id over a whole session. An
//! id that the conversation has already gets a suffix, by which the upstream's own id is found again.

use std::collections::HashMap;

use serde_json::Value;

use super::wire::filled;
use crate::calls::call_id;

const AGAIN: &str = "_mc";

/// The ids of a conversation's calls, and how many calls were to have each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CallIds(HashMap<String, u64>);

/// Returns the upstream's own id of a call that a caller knows by this id.
pub fn upstream_call_id(id: &str) -> &str {
    let is_number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    let parts = id.rsplit_once(AGAIN).filter(|(_, n)| is_number(n));
    parts.map_or(id, |(id, _)| id)
}

impl CallIds {
    pub(super) fn of_request(body: &Value) -> Self {
        fn list(value: &Value) -> impl Iterator<Item = &Value> {
            value.as_array().into_iter().flatten()
        }
        fn ids(item: &Value) -> impl Iterator<Item = (String, u64)> {
            let blocks = list(&item["content"]).filter(|block| block["type"] == "tool_use");
            let calls = list(&item["tool_calls"]).chain(blocks);
            let ids = calls.map(|call| &call["id"]).chain([&item["call_id"]]);
            ids.filter_map(filled).map(|id| (id.to_owned(), 1))
        }
        let items = list(&body["messages"]).chain(list(&body["input"]));
        Self(items.flat_map(ids).collect())
    }

    pub(super) fn id(&mut self, given: &Value, reply_id: &str, n: usize) -> String {
        let id = filled(given).map_or_else(|| call_id("call", reply_id, n), str::to_owned);
        self.unique(id)
    }

    pub(super) fn unique(&mut self, id: String) -> String {
        loop {
            let n = self.0.entry(id.clone()).or_default();
            *n += 1;
            if *n == 1 {
                return id;
            }
            let unique = format!("{id}{AGAIN}{n}");
            if !self.0.contains_key(&unique) {
                self.0.insert(unique.clone(), 1);
                return unique;
            }
        }
    }
}
