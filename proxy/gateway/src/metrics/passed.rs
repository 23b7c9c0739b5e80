//! Counts requests that pass unread, by route.

use std::{collections::BTreeMap, sync::Mutex};

use http::Method;

use super::traffic::OTHER;
use crate::lock::lock;

/// The number of routes that are counted by name. Later ones are counted together.
const MAX_ROUTES: usize = 16;
#[derive(Debug, Default)]
pub(crate) struct PassedRequests(Mutex<BTreeMap<String, u64>>);

// === impl PassedRequests ===

impl PassedRequests {
    pub(super) fn add(&self, method: &Method, path: &str) {
        let name = name(method, path);
        let mut counts = lock(&self.0);
        let is_known = counts.len() < MAX_ROUTES || counts.contains_key(&name);
        let name = if is_known { name } else { OTHER.to_owned() };
        *counts.entry(name).or_default() += 1;
    }

    pub(super) fn all(&self) -> BTreeMap<String, u64> {
        lock(&self.0).clone()
    }
}

/// Returns the name of a route: its first segment below `/v1`. Ids and names of the caller's may follow.
fn name(method: &Method, path: &str) -> String {
    let mut segments = path.split('/').skip(2);
    let is_word =
        |word: &&str| word.len() < 32 && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let first = segments.next().filter(is_word).unwrap_or("*");
    let below = if segments.next().is_some() { "/.." } else { "" };
    let method = method.as_str();
    let method = &method[..method.len().min(16)];
    format!("{method} /v1/{first}{below}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_counted_by_a_bounded_number_of_names() {
        let passed = PassedRequests::default();
        for (method, path, route) in [
            (Method::POST, "/v1/embeddings", "POST /v1/embeddings"),
            (Method::GET, "/v1/models", "GET /v1/models"),
            (Method::GET, "/v1/models/gpt-4o", "GET /v1/models/.."),
            (
                Method::POST,
                "/v1/responses/r1/cancel",
                "POST /v1/responses/..",
            ),
            (Method::GET, "/v1//x", "GET /v1//.."),
            (Method::GET, "/v1/%1b[2J", "GET /v1/*"),
        ] {
            passed.add(&method, path);
            assert_eq!(passed.all().get(route), Some(&1), "{path}");
        }
        let letters = |n: usize| "abcdefghij".chars().nth(n % 10).unwrap();
        for n in 0..1_000 {
            let path: String = [n, n / 10, n / 100].map(letters).into_iter().collect();
            passed.add(&Method::POST, &format!("/v1/{path}"));
        }
        let all = passed.all();
        assert_eq!(all.len(), MAX_ROUTES + 1);
        assert_eq!(all.values().sum::<u64>(), 1_006);
        assert!(all[OTHER] > 700);
    }
}
