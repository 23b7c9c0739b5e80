//! A chat on its way to whoever answers it.

use bytes::Bytes;
use http::{HeaderMap, uri::PathAndQuery};
use metaclaw_dialects::{Api, vllm};

use crate::upstream::Upstream;

/// A chat as the caller sent it.
pub(crate) struct Chat<'a> {
    pub api: Api,
    pub route: &'a PathAndQuery,
    pub headers: &'a HeaderMap,
    /// Its body as an upstream gets it, with or without the fields that ask for token ids.
    pub body: &'a (dyn Fn(&Upstream, bool) -> Vec<Bytes> + Sync),
    /// Where token ids may be asked for: what the caller asked for itself.
    pub ids: Option<vllm::RequestedIds>,
}
