//! Finds out which model names of a vLLM server are adapters, and their base models.
//!
//! A reply names the adapter as its model, in the same way as a base model. `GET /v1/models` distinguishes them. The
//! proxy requests it once for each name, in parallel with the chat, so that nobody waits for it.

use std::{
    future::Future,
    num::NonZeroUsize,
    sync::{Arc, Mutex, OnceLock},
};

use lru::LruCache;
use metaclaw_capture::Parent;
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::{LONGEST_NAME, lock::lock};

const NAMES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

#[derive(Debug)]
pub(super) struct Parents(Arc<Mutex<LruCache<String, Parent>>>, Mutex<JoinSet<()>>);

#[derive(Debug, Deserialize)]
struct ModelsAnswer {
    data: Vec<Card>,
}

#[derive(Debug, Deserialize)]
struct Card {
    id: String,
    /// The base model, if this is an adapter.
    #[serde(default)]
    parent: Option<String>,
}

#[derive(Debug)]
pub(super) enum Said {
    List(Vec<u8>),
    /// It refuses, and will refuse the next time too.
    Refusal,
    /// It did not answer.
    Nothing,
}

// === impl Parents ===

impl Parents {
    pub(super) fn new() -> Self {
        let known = LruCache::new(NAMES);
        Self(Arc::new(Mutex::new(known)), Mutex::default())
    }

    /// Returns the base model of `name`. If this is the first request for it, the value is empty until `list` has
    /// answered.
    pub(super) fn find<F>(&self, name: &str, list: impl FnOnce() -> F) -> Parent
    where
        F: Future<Output = Said> + Send + 'static,
    {
        if name.len() > LONGEST_NAME {
            return Parent::default();
        }
        let mut known = lock(&self.0);
        if let Some(parent) = known.get(name) {
            return Arc::clone(parent);
        }
        let parent = Parent::default();
        known.put(name.to_owned(), Arc::clone(&parent));
        drop(known);
        let (known, listing) = (Arc::clone(&self.0), list());
        let (name, asked) = (name.to_owned(), Arc::clone(&parent));
        let ask = async move {
            match listing.await {
                Said::List(body) => set(&asked, parent_in(&body, &name)),
                Said::Refusal => set(&asked, None),
                Said::Nothing => {
                    lock(&known).pop(&name);
                }
            }
        };
        let mut asking = lock(&self.1);
        while asking.try_join_next().is_some() {}
        asking.spawn(ask);
        parent
    }
}

fn set(parent: &OnceLock<Option<String>>, found: Option<String>) {
    // Nothing else sets it.
    let _ = parent.set(found);
}

fn parent_in(body: &[u8], name: &str) -> Option<String> {
    let models: ModelsAnswer = serde_json::from_slice(body).ok()?;
    let mut models = models.data.into_iter();
    models.find(|card| card.id == name)?.parent
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"object":"list","data":[
        {"id":"smol","root":"/m","parent":null,"max_model_len":2048},
        {"id":"px","root":"/a/px","parent":"smol","max_model_len":null}]}"#;

    #[test]
    fn an_adapter_has_a_parent_and_a_base_has_none() {
        assert_eq!(parent_in(LIST.as_bytes(), "px").as_deref(), Some("smol"));
        assert_eq!(parent_in(LIST.as_bytes(), "smol"), None);
        assert_eq!(parent_in(LIST.as_bytes(), "other"), None);
        assert_eq!(parent_in(b"<html>", "px"), None);
    }

    #[tokio::test]
    async fn a_server_is_asked_once_for_each_name_until_it_has_answered() {
        let parents = Parents::new();
        let said = |said: Said| move || std::future::ready(said);
        let asked_again = || -> std::future::Ready<Said> { panic!("it is known") };
        let settled = async || {
            let asking = std::mem::take(&mut *lock(&parents.1));
            asking.join_all().await;
        };
        let first = parents.find("px", said(Said::Nothing));
        settled().await;
        assert_eq!(first.get(), None);
        let second = parents.find("px", said(Said::List(LIST.into())));
        assert!(second.get().is_none(), "nobody waits for it");
        settled().await;
        assert_eq!(second.get(), Some(&Some("smol".to_owned())));
        assert_eq!(parents.find("px", asked_again).get(), second.get());
        parents.find("other", said(Said::Refusal));
        settled().await;
        assert_eq!(parents.find("other", asked_again).get(), Some(&None));
    }
}
