//! Evidence to verdict: judge prompts, votes, rules; no network.
