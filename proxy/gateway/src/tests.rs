//! Behaviour, seen from both ends: a raw client before the gateway and a raw upstream behind it.

mod agents;
mod answers;
mod any_reply;
mod apis;
mod corpus;
mod errands;
mod fail_over;
mod faults;
mod framing;
mod hardening;
mod harness;
mod host;
mod identity;
mod learning;
mod limits;
mod metrics;
mod origins;
mod policy;
mod privacy;
mod refresh;
mod relay;
mod request;
mod responses;
mod translation;
mod vllm;
mod ways;
