//! Keys of what happens while somebody chats.

use metaclaw_gateway::Failure;

use super::shared::{ANY, NO_ADAPTERS, NO_BEDROCK, NO_EMBEDDINGS, SOME};
use crate::{
    key::{
        Key, State,
        State::{Alias, Done, Inert, Refused},
        alias, inert, key,
    },
    kind::Kind::{
        Among, AnyOf, Bool, CallersKey, Count, Host, OneOf, OneOrMore, Path, Secret, Secrets, Size,
        Span, Text, Texts, Url,
    },
};

const CLAWS: &[&str] = &[
    "openclaw", "none", "copaw", "ironclaw", "picoclaw", "zeroclaw", "nanoclaw", "nemoclaw",
    "hermes",
];
const OTHER_CLAWS: &[(&str, State)] = &[
    ("copaw", Inert(NO_ADAPTERS)),
    ("ironclaw", Inert(NO_ADAPTERS)),
    ("picoclaw", Inert(NO_ADAPTERS)),
    ("zeroclaw", Inert(NO_ADAPTERS)),
    ("nanoclaw", Inert(NO_ADAPTERS)),
    ("nemoclaw", Inert(NO_ADAPTERS)),
    ("hermes", Inert(NO_ADAPTERS)),
];

pub(super) const MODE: &[Key] = &[
    key(
        "mode",
        OneOf(&["auto", "rl", "skills_only", "madmax"]),
        "auto",
        "skills_only: never train; rl: train whenever a batch is ready; auto: when a batch is ready and you are away",
    )
    .values(&[("madmax", Alias("auto"))]),
    inert("max_context_tokens", ANY, "prompts are never cut; this will be the way to ask for it"),
    inert("context_window", ANY, "the window is the policy model's own"),
    key(
        "claw_type",
        OneOf(CLAWS),
        "",
        "the agent whose own file is changed while the proxy runs, once you said yes at a start (docs/using/openclaw.md); none: never; openclaw without one",
    )
    .values(OTHER_CLAWS),
    inert(
        "configure_openclaw",
        Bool,
        "true: it is done once you said yes at a start; false: claw_type: none says it better",
    ),
];

pub(super) const LLM: &[Key] = &[
    key(
        "llm.api_base",
        Url,
        "",
        "OpenAI-compatible address, as in https://api.openai.com/v1",
    ),
    key(
        "llm.model_id",
        Text,
        "",
        "model to ask for; without one, the caller's own name passes",
    ),
    key(
        "llm.api_key",
        Secret,
        "",
        "without one, that of `metaclaw auth`; without any, the caller's own authorisation passes and is never kept",
    ),
    alias("llm.model", Text, "llm.model_id"),
    key(
        "llm.provider",
        Text,
        "",
        "stands for the address where llm.api_base is not given (openai, anthropic, gemini, openrouter, deepseek, kimi, qwen, minimax, novita, volcengine, ollama, lmstudio), and for whose key of `metaclaw auth` is used",
    )
    .values(&[("bedrock", Inert(NO_BEDROCK))]),
    key(
        "llm.auth_method",
        OneOf(&["api_key", "oauth_token"]),
        "api_key",
        "oauth_token: the token that `metaclaw auth paste-token` keeps for llm.provider comes before llm.api_key",
    ),
    inert(
        "llm.oauth_token",
        Secret,
        "a token is kept by `metaclaw auth paste-token --provider NAME`, and not in this file",
    ),
    inert("llm.bedrock_region", Text, NO_BEDROCK),
];

pub(super) const PROXY: &[Key] = &[
    key(
        "proxy.host",
        Host,
        "127.0.0.1",
        "address to listen on; anything but this machine needs proxy.api_key or proxy.keys",
    ),
    key(
        "proxy.port",
        Count(0, 65_535),
        "30000",
        "0 takes a free one and says which",
    ),
    key(
        "proxy.api_key",
        CallersKey,
        "",
        "what callers must show; without one, this machine's callers need none",
    ),
    key("proxy.max_body", Size, "32 MiB", "longest request body"),
    key(
        "proxy.body_memory",
        Size,
        "256 MiB",
        "for request bodies in total; beyond, 503",
    ),
    key(
        "proxy.max_streams",
        SOME,
        "2000",
        "replies under way at once; beyond, 503",
    ),
    key(
        "proxy.capture_memory",
        Size,
        "64 MiB",
        "held for capture in total; beyond, a reply is relayed and not learned from",
    ),
    key(
        "proxy.drain",
        Span,
        "30 s",
        "at the end, replies under way may go on for so long",
    ),
    key(
        "proxy.allow_origins",
        Texts,
        "[]",
        "sites whose web pages may speak to the proxy, as in https://chat.example or 'null'; pages of this machine may, and any that shows a key",
    ),
    key(
        "proxy.keys.*.key",
        CallersKey,
        "",
        "what callers of some agents must show; `metaclaw keys add NAME` makes one",
    ),
    key(
        "proxy.keys.*.agents",
        OneOrMore,
        "",
        "the agents that this key may speak for; the first, where a caller does not say",
    ),
    key(
        "upstreams.*.url",
        Url,
        "",
        "a model server beside llm.*, with or without /v1; the name is yours to choose, llm adds to llm.*",
    ),
    key(
        "upstreams.*.dialect",
        OneOf(&["openai", "anthropic", "azure", "vllm"]),
        "",
        "how it wants its key, and what it speaks; openai without one",
    ),
    key(
        "upstreams.*.keys",
        Secrets,
        "",
        "its keys, taken in turn; one that is refused rests; without one, the caller's own passes",
    ),
    key(
        "upstreams.*.model",
        Text,
        "",
        "model to ask for; without one, the caller's own name passes",
    ),
    key(
        "upstreams.*.connect",
        Span,
        "",
        "longest wait for a connection, TLS and a proxy's greeting included; 10 s without one",
    ),
    key(
        "upstreams.*.first_byte",
        Span,
        "",
        "longest wait for a reply's beginning, from when the request has gone up; no limit without one",
    ),
    key(
        "upstreams.*.idle",
        Span,
        "",
        "longest silence inside a reply; no limit without one, and none for the whole",
    ),
    key(
        "upstreams.*.pool_idle",
        Span,
        "",
        "how long an idle connection is kept: less than the server keeps it (uvicorn and Node: 5 s); 4 s without one",
    ),
    key(
        "upstreams.*.speaks",
        Among(&["chat", "responses", "messages"]),
        "",
        "the chat APIs that it has; an agent's words are put in those of one that it has; without one, its dialect says, and what it turns out to have",
    ),
    key(
        "upstreams.*.api_version",
        Text,
        "",
        "of Azure's deployments, as in 2024-10-21; an address that ends in /openai/v1 needs none",
    ),
    key(
        "upstreams.*.tool_calls_in_text",
        Bool,
        "",
        "its models write calls and thinking as text (Qwen, Kimi): put them into their fields; false without one, true for the policy model",
    ),
    key(
        "upstreams.*.proxy",
        Secret,
        "",
        "on the way to it: http://host:port, socks5://host:port, with user:password@ where it asks, or none; without one, the environment's (HTTPS_PROXY, NO_PROXY)",
    ),
    key(
        "upstreams.*.ca",
        Path,
        "",
        "PEM file of certificates that it is trusted by, beside this machine's",
    ),
    key(
        "routing.order",
        OneOrMore,
        "[policy, llm]",
        "who is asked: the first that is there; policy is our own model",
    ),
    key(
        "routing.fail_over",
        AnyOf(&Failure::NAMES),
        "[]",
        "failures upon which the next key or upstream is asked, before the first byte; none, as agents retry by themselves",
    ),
    key(
        "routing.mend_history",
        Bool,
        "true",
        "what a client lost of its history and the upstream asks for (signatures, thinking) is put back from the log, and what another upstream made is taken out; false: histories go as they come (docs/operating/translation.md)",
    ),
    key(
        "compat.session_implies_side",
        Bool,
        "false",
        "the original's rule: a session header without a turn type means a side turn",
    ),
    key(
        "compat.side_patterns",
        Texts,
        "[]",
        "regular expressions for the last text in the user's place; one that fits makes a side turn, beside the built-in ones",
    ),
];

pub(super) const TURNS: &[Key] = &[
    key(
        "turns.enabled",
        Bool,
        "true",
        "keep turns; without, chats only pass through, and nothing is learned from them",
    ),
    key(
        "turns.durability",
        OneOf(&["normal", "strict"]),
        "normal",
        "strict: a reply ends only after its turn is on disk",
    ),
    key(
        "turns.cache",
        Size,
        "8 MiB",
        "memory of the store, 256 KiB at least",
    ),
    key(
        "turns.retention",
        Span,
        "30 d",
        "sessions that ended longer ago are forgotten; what was learned from them stays, and the counts",
    ),
    key(
        "turns.statistics_retention",
        Span,
        "365 d",
        "counts by day and agent (turns, verdicts, tokens, lessons; no word of what was said) are forgotten after so long",
    ),
    key(
        "turns.mask_secrets",
        Bool,
        "true",
        "mask keys, tokens and passwords of known shapes before a turn is written; such a turn is not trained on",
    ),
    key(
        "turns.mask",
        Texts,
        "[]",
        "regular expressions; what they match is masked as well",
    ),
    key(
        "privacy.phrases",
        Texts,
        "[off the record, don't remember this, do not remember this, don't record this, don't learn from this, 别记住这个, 不要记住这个, 别记录这次对话, 不要记录这次对话]",
        "said by the owner, nothing of a session is kept from there on; header X-MetaClaw-Learn: no does the same",
    ),
];

pub(super) const LESSONS: &[Key] = &[
    key(
        "wishes.enabled",
        Bool,
        "true",
        "put the owner's standing wishes in force",
    ),
    key(
        "wishes.place",
        OneOf(&["system", "user"]),
        "system",
        "user: after each message of the owner, which small models need",
    ),
    key(
        "wishes.max_tokens",
        Count(0, 4_000),
        "300",
        "the newest win",
    ),
    key(
        "skills.enabled",
        Bool,
        "true",
        "put matching skills into the system text",
    ),
    key(
        "skills.dir",
        Path,
        "",
        "folder of skills; without one, skills in the home folder",
    ),
    key(
        "skills.budget_tokens",
        Count(0, 100_000),
        "1500",
        "for all skills of one request",
    ),
    key(
        "skills.top_k",
        Count(0, 1_000),
        "3",
        "at most so many skills in one request: of those behind the third hardly any is wanted",
    ),
    key(
        "skills.refresh",
        OneOf(&["session", "turn"]),
        "session",
        "choose once a session, which keeps prompt caches, or each turn",
    ),
    inert(
        "skills.retrieval_mode",
        OneOf(&["bm25", "template", "embedding", "hybrid"]),
        "skills are found in one way: by sample requests, keywords, and the words of their names and descriptions",
    )
    .values(&[
        ("bm25", Done),
        (
            "template",
            Inert("sample requests and keywords have taken the place of templates"),
        ),
        (
            "embedding",
            Inert("embeddings are not built: sample requests and keywords are used"),
        ),
        ("hybrid", Refused("embeddings are not built: use bm25")),
    ]),
    inert(
        "skills.task_specific_top_k",
        ANY,
        "skills.budget_tokens is the bound",
    ),
    key(
        "skills.auto_evolve",
        Bool,
        "true",
        "a model writes skills from turns that went wrong",
    ),
    alias("skills.evolve", Bool, "skills.auto_evolve"),
    key(
        "skills.evolution_every_n_turns",
        ANY,
        "10",
        "so many turns of an agent, and it is asked; 0: never",
    ),
    key(
        "skills.review",
        Bool,
        "true",
        "each skill that it writes waits for your look; without, only what may hold others' words or looks dangerous",
    ),
    inert("embeddings.url", Url, NO_EMBEDDINGS),
    inert("embeddings.model", Text, NO_EMBEDDINGS),
    inert("embeddings.deadline", Span, NO_EMBEDDINGS),
];
