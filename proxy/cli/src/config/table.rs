//! Every key there is, in one table: ours and those of the Python original, with what becomes of
//! each. `config.example.yaml` and `docs/config.md` are made from it, unknown keys are found by it,
//! and values are checked by it before any room reads them.

use super::{
    key::{
        Key, Section,
        State::{Alias, Done, Inert, Refused},
        alias, inert, key,
    },
    kind::Kind::{
        self, Bool, Count, Host, Number, OneOf, Path, Secret, Size, SomeOf, Span, Text, Texts,
        Time, Tree, Url,
    },
};

/// Any whole number.
const ANY: Kind = Count(0, u64::MAX);
/// Any whole number but 0.
const SOME: Kind = Count(1, u64::MAX);
/// A number that is not negative.
const POSITIVE: Kind = Number(0.0, f64::MAX);

const LATER: &str = "not built yet";
const NO_MEMORY: &str = "there is no memory store: wishes and skills remember";
const NO_BEDROCK: &str = "Bedrock is not built: give an OpenAI-compatible address in llm.api_base";
const NO_CLI: &str =
    "signing in through a provider's command line is not built: give llm.api_base and llm.api_key";
const NO_CLOUD: &str = "not built yet: use local or remote";
const NO_EMBEDDINGS: &str = "not built yet: bm25 is used";
const NO_AGENT_SETTINGS: &str = "settings of single agents are not built yet";
const NO_ADAPTERS: &str =
    "the agent's own configuration is never touched: point it at the base URL";

const METHODS: &[&str] = &["redo", "opd", "binary_rl", "hybrid", "grpo", "metaclaw"];
const TARGETS: &[&str] = &[
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
];

/// All of it, in the order of the example file.
pub(crate) const TABLE: &[Section] = &[
    Section {
        title: "How it works",
        keys: MODE,
    },
    Section {
        title: "The model that answers, and that judges where nothing else is named",
        keys: LLM,
    },
    Section {
        title: "Where agents come in",
        keys: PROXY,
    },
    Section {
        title: "The log of turns",
        keys: TURNS,
    },
    Section {
        title: "Lessons: wishes and skills",
        keys: LESSONS,
    },
    Section {
        title: "Who says whether a reply did its job",
        keys: JUDGE,
    },
    Section {
        title: "Training",
        keys: RL,
    },
    Section {
        title: "The local trainer and what serves",
        keys: TRAINER,
    },
    Section {
        title: "When to train",
        keys: SCHEDULER,
    },
    Section {
        title: "Single agents",
        keys: AGENTS,
    },
    Section {
        title: "Older keys, read and without effect",
        keys: OLDER,
    },
];

const MODE: &[Key] = &[
    key(
        "mode",
        OneOf(&["auto", "rl", "skills_only", "madmax"]),
        "auto",
        "skills_only: never train; rl: train when a batch is ready; auto: when a batch is ready and the user is away",
    )
    .values(&[("madmax", Alias("auto"))]),
    inert("max_context_tokens", ANY, "prompts are never cut; this will be the way to ask for it"),
    inert("context_window", ANY, "the window is the policy model's own"),
    inert("claw_type", Text, NO_ADAPTERS),
    inert("configure_openclaw", Bool, NO_ADAPTERS),
];

const LLM: &[Key] = &[
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
        "without one, the caller's own authorisation passes and is never kept",
    ),
    key(
        "llm.timeout",
        Span,
        "60 s",
        "for one answer to the judge; chat has no limit but the caller's own",
    ),
    inert("llm.provider", Text, "llm.api_base decides").values(&[
        ("custom", Done),
        ("openai", Done),
        ("bedrock", Refused(NO_BEDROCK)),
        ("openai-codex", Refused(NO_CLI)),
        ("gemini", Refused(NO_CLI)),
    ]),
    inert(
        "llm.auth_method",
        OneOf(&["api_key", "oauth_token"]),
        "llm.api_key is used",
    )
    .values(&[("api_key", Done), ("oauth_token", Refused(NO_CLI))]),
    inert("llm.oauth_token", Secret, NO_CLI),
    inert("llm.bedrock_region", Text, NO_BEDROCK),
];

const PROXY: &[Key] = &[
    key(
        "proxy.host",
        Host,
        "127.0.0.1",
        "address to listen on; anything but this machine needs proxy.api_key",
    ),
    key(
        "proxy.port",
        Count(0, 65_535),
        "30000",
        "0 takes a free one and says which",
    ),
    key(
        "proxy.api_key",
        Secret,
        "",
        "what callers must show; without one, this machine's callers need none",
    ),
    key("proxy.max_body", Size, "32 MiB", "longest request body"),
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
        "proxy.keys.*.key",
        Secret,
        "",
        "what callers of some agents must show; the name is yours to choose",
    ),
    key(
        "proxy.keys.*.agents",
        Texts,
        "",
        "the agents that this key may speak for",
    ),
    key(
        "upstreams.*.url",
        Url,
        "",
        "a model server beside llm.*; the name is yours to choose",
    ),
    key(
        "upstreams.*.dialect",
        OneOf(&["openai", "anthropic", "azure", "vllm"]),
        "",
        "what it speaks; openai without one",
    ),
    key("upstreams.*.keys", Texts, "", "its keys, taken in turn"),
    key(
        "upstreams.*.model",
        Text,
        "",
        "model to ask for; without one, the caller's own name passes",
    ),
    key("upstreams.*.connect", Span, "", "10 s without one"),
    key("upstreams.*.first_byte", Span, "", "no limit without one"),
    key("upstreams.*.idle", Span, "", "no limit without one"),
    inert("upstreams.*.proxy", Text, LATER),
    inert("upstreams.*.ca", Text, LATER),
    key(
        "routing.order",
        Texts,
        "[policy, llm]",
        "who is asked: the first that is there; policy is our own model",
    ),
    inert("routing.fail_over", Texts, LATER),
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
        "regular expressions; a first line that fits one makes a side turn, beside the built-in ones",
    ),
];

const TURNS: &[Key] = &[
    key(
        "turns.durability",
        OneOf(&["normal", "strict"]),
        "normal",
        "strict: a reply ends only after its turn is on disk",
    ),
    key("turns.cache", Size, "16 MiB", "memory of the store"),
    inert(
        "turns.retention",
        Span,
        "everything is kept until this is built",
    ),
    inert(
        "turns.statistics_retention",
        Span,
        "everything is kept until this is built",
    ),
    inert("turns.mask", Texts, LATER),
];

const LESSONS: &[Key] = &[
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
        "6",
        "at most so many skills in one request",
    ),
    key(
        "skills.refresh",
        OneOf(&["session", "turn"]),
        "session",
        "choose once a session, which keeps prompt caches, or each turn",
    ),
    key(
        "skills.retrieval_mode",
        OneOf(&["bm25", "template", "embedding", "hybrid"]),
        "bm25",
        "how skills are found",
    )
    .values(&[
        ("template", Inert("bm25 has taken its place")),
        ("embedding", Inert(NO_EMBEDDINGS)),
        ("hybrid", Inert(NO_EMBEDDINGS)),
    ]),
    inert(
        "skills.task_specific_top_k",
        ANY,
        "skills.budget_tokens is the bound",
    ),
    inert("skills.auto_evolve", Bool, LATER),
    inert("skills.evolve", Bool, LATER),
    inert("skills.review", Bool, LATER),
    inert("skills.evolution_every_n_turns", ANY, LATER),
    inert("embeddings.url", Url, NO_EMBEDDINGS),
    inert("embeddings.model", Text, NO_EMBEDDINGS),
    inert("embeddings.deadline", Span, NO_EMBEDDINGS),
];

const JUDGE: &[Key] = &[
    key(
        "judge.kind",
        OneOf(&["llm", "rules", "http", "base"]),
        "",
        "without one: llm where there is a model to ask, else rules",
    )
    .values(&[
        ("http", Refused("not built yet: use llm or rules")),
        ("base", Refused("not built yet: use llm or rules")),
    ]),
    key("judge.url", Url, "", "without one, llm.api_base"),
    key("judge.model", Text, "", "without one, llm.model_id"),
    key(
        "judge.key",
        Secret,
        "",
        "without one, llm.api_key where judge.url is not given",
    ),
    key(
        "judge.votes",
        Count(1, 15),
        "3",
        "votes for one verdict; stops when decided",
    ),
    key("judge.timeout", Span, "60 s", "for one vote"),
    key(
        "judge.rules",
        Tree("a list of {on: reply or next, pattern, min_words, max_words, score: -1, 0 or 1}"),
        "[]",
        "first match wins",
    ),
    inert("judge.policy", Text, "next_state is used"),
    inert("judge.session_end", Bool, LATER),
    alias("rl.prm_url", Url, "judge.url"),
    alias("rl.prm_model", Text, "judge.model"),
    alias("rl.prm_api_key", Secret, "judge.key"),
    alias("rl.prm_m", Count(1, 15), "judge.votes"),
    inert("rl.prm_provider", Text, "judge.url decides")
        .values(&[("openai", Done), ("bedrock", Refused(NO_BEDROCK))]),
    inert("budget.share", Number(0.0, 1.0), LATER),
    inert("budget.tokens_per_day", ANY, LATER),
];

const RL: &[Key] = &[
    key(
        "rl.backend",
        OneOf(&["auto", "local", "remote", "tinker", "mint", "weaver"]),
        "auto",
        "auto: remote where rl.remote_url is given, else local",
    )
    .values(&[
        ("tinker", Refused(NO_CLOUD)),
        ("mint", Refused(NO_CLOUD)),
        ("weaver", Refused(NO_CLOUD)),
    ]),
    key(
        "rl.model",
        Path,
        "",
        "policy model: a folder in Hugging Face form or a GGUF file; trainer.model comes first",
    ),
    key(
        "rl.remote_url",
        Url,
        "",
        "training server of rl.backend remote; it serves too",
    ),
    key("rl.remote_api_key", Secret, "", "its key"),
    key(
        "rl.remote_timeout_s",
        Count(1, 86_400),
        "600",
        "for one call, in seconds",
    ),
    key(
        "rl.method",
        SomeOf(METHODS),
        "redo+opd+binary_rl",
        "what a step is made of",
    ),
    key("rl.w_redo", POSITIVE, "1", "weight of redo"),
    inert("rl.w_opd", POSITIVE, "opd is not built yet"),
    key("rl.w_rl", POSITIVE, "0.3", "weight of binary_rl"),
    key(
        "rl.learning_rate",
        Number(0.0, 1.0),
        "",
        "without one, by model size: 5e-4 to 200M parameters, 1e-4 from 1B",
    ),
    key("rl.beta1", Number(0.0, 1.0), "0.9", "AdamW"),
    key("rl.beta2", Number(0.0, 1.0), "0.95", "AdamW"),
    key("rl.eps", Number(0.0, 1.0), "1e-8", "AdamW"),
    key("rl.weight_decay", POSITIVE, "0", "AdamW"),
    key("rl.clip_norm", POSITIVE, "1", "longest gradient"),
    key("rl.warmup_steps", ANY, "3", "steps until the full rate"),
    key("rl.lora_rank", Count(1, 512), "32", "rank of the adapters"),
    key(
        "rl.lora_alpha",
        POSITIVE,
        "32",
        "stays so whatever the rank",
    ),
    key(
        "rl.targets",
        SomeOf(TARGETS),
        "q_proj+k_proj+v_proj+o_proj+gate_proj+up_proj+down_proj",
        "which projections have an adapter",
    ),
    key("rl.batch_size", SOME, "4", "samples of one step"),
    key(
        "rl.max_wait",
        Span,
        "8 h",
        "a batch of two goes after so long",
    ),
    key("rl.max_age", Span, "14 d", "older samples are not used"),
    inert("rl.reuse", ANY, LATER),
    inert("rl.support_query", Text, LATER),
    inert("rl.teacher", Text, LATER),
    inert("rl.anchor", POSITIVE, LATER),
    inert("rl.allow_quantised_sampling", Bool, LATER),
    inert("rl.enabled", Bool, "mode decides"),
    inert(
        "rl.resume_from_ckpt",
        Text,
        "the last good checkpoint is found without it",
    ),
    inert("rl.manual_train_trigger", Bool, LATER),
    inert("rl.api_key", Secret, NO_CLOUD),
    inert("rl.base_url", Url, NO_CLOUD),
    inert("rl.tinker_api_key", Secret, NO_CLOUD),
    inert("rl.tinker_base_url", Url, NO_CLOUD),
    inert("rl.evolver_provider", Text, LATER),
    inert("rl.evolver_api_base", Url, LATER),
    inert("rl.evolver_api_key", Secret, LATER),
    inert("rl.evolver_model", Text, LATER),
    inert("gate.enabled", Bool, LATER),
    inert("gate.max_kl", POSITIVE, LATER),
    inert("gate.probes", Text, LATER),
];

const TRAINER: &[Key] = &[
    key(
        "trainer.model",
        Path,
        "",
        "policy model: a folder in Hugging Face form, a GGUF file, or demo; without one, rl.model",
    ),
    key(
        "trainer.dtype",
        OneOf(&["auto", "bf16", "f32"]),
        "auto",
        "numbers of the base model",
    ),
    key(
        "trainer.threads",
        Count(0, 1_024),
        "0",
        "of the engine; 0: all cores",
    ),
    key(
        "trainer.checkpoint_dir",
        Path,
        "",
        "without one, trainer in the home folder",
    ),
    inert("trainer.memory", Text, LATER),
    inert("trainer.max_queue", ANY, LATER),
    inert("trainer.devices", Text, LATER),
    inert("trainer.quantise", Text, LATER),
    key(
        "serving.pin_idle",
        Span,
        "10 min",
        "a session stays on its adapter until it was idle for so long",
    ),
    inert("serving.max_adapters", ANY, LATER),
    inert("serving.temperature", POSITIVE, LATER),
    inert("serving.top_p", Number(0.0, 1.0), LATER),
];

const SCHEDULER: &[Key] = &[
    key(
        "scheduler.idle_minutes",
        Count(0, 100_000),
        "30",
        "mode auto: so long without a turn means away",
    ),
    alias(
        "scheduler.idle_threshold_minutes",
        Count(0, 100_000),
        "scheduler.idle_minutes",
    ),
    inert("scheduler.enabled", Bool, "mode decides"),
    inert(
        "scheduler.sleep_start",
        Time,
        "sleep hours are not built yet: idle time decides",
    ),
    inert(
        "scheduler.sleep_end",
        Time,
        "sleep hours are not built yet: idle time decides",
    ),
    inert("scheduler.min_window_minutes", ANY, LATER),
    inert("scheduler.ics", Texts, LATER),
    inert("scheduler.calendar.enabled", Bool, LATER),
    inert("scheduler.calendar.credentials_path", Text, LATER),
    inert("scheduler.calendar.token_path", Text, LATER),
    inert("privacy.cloud_training_ok", Bool, "no cloud trains yet"),
];

const AGENTS: &[Key] = &[
    inert("agents.*.mode", Text, NO_AGENT_SETTINGS),
    inert("agents.*.skills_dir", Text, NO_AGENT_SETTINGS),
    inert("agents.*.upstream", Text, NO_AGENT_SETTINGS),
    inert("agents.*.wishes", Tree("a tree"), NO_AGENT_SETTINGS),
    inert("agents.*.rl", Tree("a tree"), NO_AGENT_SETTINGS),
    inert("agents.*.lora_output", Text, NO_AGENT_SETTINGS),
];

const OLDER: &[Key] = &[
    inert("bedrock_region", Text, NO_BEDROCK),
    inert("openrouter.app_name", Text, LATER),
    inert("openrouter.app_url", Text, LATER),
    inert("openrouter.route", Text, LATER),
    inert("openrouter.fallback_models", Text, LATER),
    inert("openrouter.data_policy", Text, LATER),
    inert("opd.enabled", Bool, "rl.method decides"),
    inert("opd.teacher_url", Text, "the teacher is the base model"),
    inert("opd.teacher_model", Text, "the teacher is the base model"),
    inert(
        "opd.teacher_api_key",
        Secret,
        "the teacher is the base model",
    ),
    inert("opd.kl_penalty_coef", POSITIVE, LATER),
    inert("memory.enabled", Bool, NO_MEMORY),
    inert("memory.dir", Text, NO_MEMORY),
    inert("memory.scope", Text, NO_MEMORY),
    inert("memory.store_path", Text, NO_MEMORY),
    inert("memory.policy_path", Text, NO_MEMORY),
    inert("memory.telemetry_path", Text, NO_MEMORY),
    inert("memory.retrieval_mode", Text, NO_MEMORY),
    inert("memory.use_embeddings", Bool, NO_MEMORY),
    inert("memory.embedding_mode", Text, NO_MEMORY),
    inert("memory.embedding_model", Text, NO_MEMORY),
    inert("memory.embedding_model_path", Text, NO_MEMORY),
    inert("memory.auto_upgrade_enabled", Bool, NO_MEMORY),
    inert("memory.auto_upgrade_interval_seconds", ANY, NO_MEMORY),
    inert("memory.auto_upgrade_require_review", Bool, NO_MEMORY),
    inert("memory.review_stale_after_hours", ANY, NO_MEMORY),
    inert("memory.max_injected_units", ANY, NO_MEMORY),
    inert("memory.max_injected_tokens", ANY, NO_MEMORY),
    inert("memory.auto_extract", Bool, NO_MEMORY),
    inert("memory.auto_consolidate", Bool, NO_MEMORY),
    inert("memory.ignore_turn_type", Bool, NO_MEMORY),
    inert("memory.manual_trigger", Bool, NO_MEMORY),
    inert("memory.flush_every", ANY, NO_MEMORY),
    inert("memory.top_k", ANY, NO_MEMORY),
    inert("memory.max_tokens", ANY, NO_MEMORY),
    inert("memory.consolidation_interval", ANY, NO_MEMORY),
    inert("memory.sidecar_url", Text, NO_MEMORY),
    inert(
        "wechat.enabled",
        Bool,
        "nothing is installed into other programs",
    ),
];

/// All keys.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    TABLE.iter().flat_map(|section| section.keys)
}

/// The key at `path`.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.is_at(path))
}

/// Whether keys lie below `path`.
pub(crate) fn is_section(path: &str) -> bool {
    keys().any(|key| key.is_below(path))
}

/// The known key that reads most like `path`, where one is near enough to be meant.
pub(crate) fn nearest(path: &str) -> Option<&'static str> {
    let close = |key: &'static Key| (key.path, strsim::damerau_levenshtein(key.path, path));
    let (best, distance) = keys()
        .filter(|key| !matches!(key.state, super::key::State::Inert(_)))
        .map(close)
        .min_by_key(|(_, distance)| *distance)?;
    (distance <= path.len().div_ceil(3)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_twice_and_each_default_is_allowed() {
        let mut seen = std::collections::BTreeSet::new();
        for key in keys() {
            assert!(seen.insert(key.path), "{} stands twice", key.path);
            if !key.default.is_empty() {
                let default = super::super::yaml::read(key.default).unwrap();
                assert!(key.kind.read(&default).is_some(), "default of {}", key.path);
            }
            if let super::super::key::State::Alias(target) = key.state {
                assert_eq!(find(target).map(|it| it.kind), Some(key.kind), "{target}");
            }
        }
    }

    #[test]
    fn a_misspelt_key_finds_its_neighbour() {
        assert_eq!(nearest("rl.batchsize"), Some("rl.batch_size"));
        assert_eq!(nearest("proxy.prot"), Some("proxy.port"));
        assert_eq!(nearest("something.else.entirely"), None);
        assert!(is_section("rl"));
        assert!(is_section("upstreams.mine"));
        assert!(!is_section("rl.batch_size"));
    }
}
