//! Keys of the loop behind the chat.

use metaclaw_learner::METHOD_NAMES;

use super::shared::{ANY, LATER, NO_BEDROCK, NO_GOOGLE, POSITIVE, SOME};
use crate::{
    key::{
        Key,
        State::{Done, Inert},
        alias, inert, key,
    },
    kind::Kind::{
        AnyOf, Bool, Calendars, Count, Minutes, Number, OneOf, Path, Secret, Size, SomeOf, Span,
        Text, Time, Tree, Url,
    },
};

const TARGETS: &[&str] = &[
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "lm_head",
];

/// Kinds of tests of the gate.
const GATE_TESTS: &[&str] = &["replies", "capability", "tools", "preference"];

pub(super) const JUDGE: &[Key] = &[
    key(
        "judge.kind",
        OneOf(&["llm", "rules", "off", "http", "base"]),
        "",
        "without one: llm where there is a model to ask, else rules; http: a reward function of yours at judge.url; base: the policy model without its adapter; off: turns wait (docs/training/judging.md)",
    ),
    key(
        "judge.url",
        Url,
        "",
        "of the judge model, without one llm.api_base; of judge.kind http, the reward function",
    ),
    key("judge.model", Text, "", "without one, llm.model_id"),
    key(
        "judge.key",
        Secret,
        "",
        "without one, llm.api_key where judge.url is not given",
    ),
    key(
        "judge.api_version",
        Text,
        "",
        "of Azure's deployments, as in 2024-10-21; without one, upstreams.llm.api_version where judge.url is not given",
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
    key(
        "judge.policy",
        OneOf(&["next_state", "metaclaw", "openclaw_rl"]),
        "next_state",
        "how a model is asked, and its votes are counted: ours, MetaClaw's or OpenClaw-RL's rules",
    ),
    key(
        "judge.session_end",
        Bool,
        "true",
        "whether a session's last turn is judged too, by request and reply alone; it counts 0.3",
    ),
    key(
        "judge.session_idle",
        Span,
        "30 min",
        "a session has ended when nobody spoke in it for so long",
    ),
    alias("rl.prm_url", Url, "judge.url"),
    alias("rl.prm_model", Text, "judge.model"),
    alias("rl.prm_api_key", Secret, "judge.key"),
    alias("rl.prm_m", Count(1, 15), "judge.votes"),
    inert("rl.prm_provider", Text, "judge.url decides")
        .values(&[("openai", Done), ("bedrock", Inert(NO_BEDROCK))]),
    key(
        "budget.share",
        Number(0.0, 1.0),
        "0.05",
        "of the tokens that the chat used today: so many may asking for verdicts and lessons cost; budget.tokens_per_day is the least",
    ),
    key(
        "budget.tokens_per_day",
        ANY,
        "50000",
        "or so many, if that is more",
    ),
];

pub(super) const EVOLVER: &[Key] = &[
    key("evolver.url", Url, "", "without one, llm.api_base"),
    key("evolver.model", Text, "", "without one, llm.model_id"),
    key(
        "evolver.key",
        Secret,
        "",
        "without one, llm.api_key where evolver.url is not given",
    ),
    key(
        "evolver.api_version",
        Text,
        "",
        "of Azure's deployments, as in 2024-10-21; without one, upstreams.llm.api_version where evolver.url is not given",
    ),
    key("evolver.timeout", Span, "120 s", "for one answer"),
    alias("rl.evolver_api_base", Url, "evolver.url"),
    alias("rl.evolver_model", Text, "evolver.model"),
    alias("rl.evolver_api_key", Secret, "evolver.key"),
    inert("rl.evolver_provider", Text, "evolver.url decides")
        .values(&[("openai", Done), ("bedrock", Inert(NO_BEDROCK))]),
];

pub(super) const RL: &[Key] = &[
    key(
        "rl.backend",
        OneOf(&["auto", "local", "remote", "tinker", "mint", "weaver"]),
        "auto",
        "auto: remote where rl.remote_url is given, one of tinker, mint and weaver where rl.tinker_api_key or rl.tinker_base_url is, else local (docs/training/tinker.md)",
    ),
    key(
        "rl.model",
        Path,
        "",
        "policy model: a folder in Hugging Face form or a GGUF file, of which trainer.model comes first; with rl.backend tinker, mint or weaver as its server names it, as in Qwen/Qwen3-8B",
    ),
    key(
        "rl.remote_url",
        Url,
        "",
        "training server of rl.backend remote; it serves too, and loads rl.model where it has no model",
    ),
    key("rl.remote_api_key", Secret, "", "its key"),
    key(
        "rl.remote_timeout_s",
        Count(1, 86_400),
        "600",
        "for one call, in seconds",
    ),
    key(
        "rl.inference_backend",
        OneOf(&["auto", "builtin", "vllm"]),
        "auto",
        "who answers chats with the policy model: builtin, our trainer's own engine; vllm, a server at rl.inference_url or one that the trainer starts (docs/operating/vllm.md); auto: vllm where rl.inference_url is given",
    ),
    key(
        "rl.inference_url",
        Url,
        "",
        "a vLLM server on this machine that runs already and has the policy model, as in http://127.0.0.1:8001",
    ),
    key("rl.inference_key", Secret, "", "its key"),
    key(
        "rl.inference_python",
        Path,
        "",
        "a Python that has vLLM, to start it with; without one, python3",
    ),
    key(
        "rl.inference_args",
        Text,
        "",
        "more flags for the vLLM server that is started, as in --gpu-memory-utilization 0.5",
    ),
    key(
        "rl.method",
        SomeOf(METHOD_NAMES),
        "context_distillation",
        "what a step is made of: context_distillation (redo for short), opd, and one of binary_rl, hybrid, grpo and metaclaw, joined by + (docs/training/README.md)",
    ),
    key("rl.w_redo", POSITIVE, "1", "weight of redo"),
    key(
        "rl.w_opd",
        POSITIVE,
        "1",
        "weight of opd, and of that part of hybrid",
    ),
    key(
        "rl.w_rl",
        POSITIVE,
        "0.3",
        "weight of what verdicts push: binary_rl, grpo, that part of hybrid",
    ),
    key(
        "rl.loss_fn",
        OneOf(&["cispo", "ppo", "importance_sampling"]),
        "",
        "loss of what is pushed by its verdict; without one cispo, for metaclaw importance_sampling, for hybrid ppo (docs/training/binary-rl.md)",
    ),
    key(
        "rl.clip_low",
        POSITIVE,
        "",
        "the least that the probability of a token, by what it was when sampled, counts as; without one 0 for cispo, 0.8 for ppo",
    ),
    key(
        "rl.clip_high",
        POSITIVE,
        "",
        "the most that it counts as; without one 2 for cispo, 1.28 for ppo",
    ),
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
    key("rl.lora_alpha", SOME, "32", "stays so whatever the rank"),
    key(
        "rl.targets",
        SomeOf(TARGETS),
        "q_proj+k_proj+v_proj+o_proj+gate_proj+up_proj+down_proj",
        "which maps have an adapter; lm_head is the one to the logits",
    ),
    key(
        "rl.epochs",
        Count(1, 16),
        "",
        "steps that are taken on one batch, and tested together; without one: 2 where rl.method has redo, else 1",
    ),
    key("rl.batch_size", SOME, "4", "samples of one step"),
    key(
        "rl.max_wait",
        Span,
        "8 h",
        "a batch of two goes after so long",
    ),
    key("rl.max_age", Span, "14 d", "older samples are not used"),
    key(
        "rl.report_to",
        AnyOf(&["tensorboard", "jsonl"]),
        "[jsonl]",
        "the numbers of each step: jsonl: a line in steps.jsonl; tensorboard: event files (docs/operating/metrics.md); []: nowhere",
    ),
    key(
        "rl.log_dir",
        Path,
        "",
        "folder of those files; without one, learning in the home folder",
    ),
    key(
        "rl.reuse",
        Count(1, 64),
        "4",
        "the most steps that a sample of redo serves in, each with as many new ones; 1: once",
    ),
    key(
        "rl.consolidate",
        Bool,
        "true",
        "standing wishes go into the weights: every judged turn of an agent that has some is answered again; false: only those that failed",
    ),
    inert("rl.support_query", Text, LATER),
    key(
        "rl.teacher",
        OneOf(&["base", "current", "session"]),
        "base",
        "who says what is better: base: the model without adapters, which what was learned wrongly cannot move; current: the weights themselves, for opd and hybrid; session: the session's own accepted reply, whatever it is, for redo in comparisons: it has ruined models",
    ),
    key(
        "rl.draws",
        Count(1, 64),
        "4",
        "the teacher's replies to one turn; those that are relevant and do what is wished are taught",
    ),
    key(
        "rl.min_relevance",
        Number(0.0, 2.0),
        "0.8",
        "how relevant a reply must be to be taught, as a share of the mean of the teacher's; 0: it does not matter",
    ),
    key(
        "rl.target",
        OneOf(&["one_hot", "top_k"]),
        "one_hot",
        "what is taught at each token: the teacher's, or the 20 that it found likeliest, by their probabilities",
    ),
    key(
        "rl.anchor",
        POSITIVE,
        "0",
        "weight of the divergence from what the model says without adapters and with the wishes, to questions of our own; 0: none (docs/training/anchor.md)",
    ),
    key(
        "rl.max_steps",
        ANY,
        "0",
        "the most steps that are made for an agent; 0: no bound",
    ),
    inert("rl.allow_quantised_sampling", Bool, LATER),
    inert("rl.enabled", Bool, "mode decides"),
    inert(
        "rl.resume_from_ckpt",
        Text,
        "the last good checkpoint is found without it",
    ),
    inert("rl.manual_train_trigger", Bool, LATER),
    key(
        "rl.tinker_api_key",
        Secret,
        "",
        "key of a training server that speaks Tinker's API; without one TINKER_API_KEY, MINT_API_KEY or WEAVER_API_KEY of the environment",
    ),
    key(
        "rl.tinker_base_url",
        Url,
        "",
        "its address; without one TINKER_BASE_URL, MINT_BASE_URL or WEAVER_BASE_URL of the environment, else the service's own",
    ),
    key(
        "rl.tinker_project",
        Text,
        "",
        "the project at the service that sessions are counted to; without one its default",
    ),
    key(
        "rl.tokenizer",
        Path,
        "",
        "where the tokenizer of that model is: a folder that has tokenizer.json or tiktoken.model, or a name at the Hugging Face hub; without one rl.model",
    ),
    key(
        "rl.price_train",
        POSITIVE,
        "",
        "what a million tokens that are trained on cost there, as its price list says; without one no price is shown",
    ),
    key(
        "rl.price_read",
        POSITIVE,
        "",
        "the same of tokens of prompts",
    ),
    key(
        "rl.price_sample",
        POSITIVE,
        "",
        "the same of tokens that are sampled",
    ),
    key("rl.price_currency", Text, "USD", "of these prices"),
    alias("rl.api_key", Secret, "rl.tinker_api_key"),
    alias("rl.base_url", Url, "rl.tinker_base_url"),
    key(
        "gate.enabled",
        Bool,
        "true",
        "whether weights are tested before they serve; false: whatever was learned serves at once, and mode auto trains only when asked to",
    ),
    key(
        "gate.min_relevance",
        Number(0.0, 1.0),
        "0.8",
        "how well replies must fit their questions, as a share of the base model's with your wishes in its prompt",
    ),
    key(
        "gate.held_out",
        Number(0.0, 0.5),
        "0.15",
        "the share of conversations that are not learned from, so that the gate can ask an adapter about them; the first 32 of a home are all learned from",
    ),
    key(
        "gate.accept_without",
        AnyOf(GATE_TESTS),
        "[]",
        "tests that an adapter may serve without, where the training server cannot answer what they ask: replies, capability, tools, preference (docs/training/tinker.md)",
    ),
    inert(
        "gate.max_kl",
        POSITIVE,
        "relevance and fluency of replies are tested instead",
    ),
    inert("gate.probes", Text, LATER),
    key(
        "opd.enabled",
        Bool,
        "false",
        "whether a larger model says of each id that was sampled how likely it finds it, beside what the verdict pushes (rl.method metaclaw, binary_rl or grpo)",
    ),
    key(
        "opd.teacher_url",
        Url,
        "",
        "its API, as in http://127.0.0.1:8082/v1: POST /completions with echo and logprobs, which vLLM has",
    ),
    key(
        "opd.teacher_model",
        Text,
        "",
        "its name there; it has the policy model's tokenizer",
    ),
    key(
        "opd.teacher_api_key",
        Secret,
        "",
        "without one it is asked for without",
    ),
    key(
        "opd.kl_penalty_coef",
        POSITIVE,
        "1",
        "what it weighs: the advantage of each id grows by this times log p of the teacher less log p of the policy",
    ),
];

pub(super) const TRAINER: &[Key] = &[
    key(
        "trainer.model",
        Path,
        "",
        "policy model: a folder in Hugging Face form, a GGUF file, a name at the Hugging Face hub (as in Qwen/Qwen3-4B), which is fetched, or demo; without one, rl.model",
    ),
    key(
        "trainer.dtype",
        OneOf(&["auto", "bf16", "f16", "f32"]),
        "auto",
        "numbers of the base model",
    ),
    key(
        "trainer.quantization",
        OneOf(&["none", "int8"]),
        "none",
        "int8 keeps 8 bits of each weight of the base model: a quarter to a half of its memory, and faster replies",
    ),
    key(
        "trainer.devices",
        Text,
        "",
        "what the trainer computes on: cpu, a GPU's number, or several as \"0,1\"; without one, a GPU if its libtorch sees one",
    ),
    key(
        "trainer.threads",
        Count(0, 1_024),
        "0",
        "of the engine; 0: one a physical core",
    ),
    key(
        "trainer.checkpoint_dir",
        Path,
        "",
        "without one, trainer in the home folder",
    ),
    key(
        "trainer.keep",
        Count(1, 1_000),
        "5",
        "checkpoints of each agent that stay, with their adapters, besides those that serve; older ones are deleted after a step",
    ),
    key(
        "trainer.memory",
        Size,
        "",
        "beside the weights: half for keys and values (at most two contexts or 1 GiB), the rest for training, which computes more twice the less it has; without one, what is free",
    ),
    key(
        "trainer.max_queue",
        Count(1, 65_535),
        "256",
        "requests for text that may wait or run at once; more are answered 429",
    ),
    key(
        "trainer.archive",
        Text,
        "",
        "where `metaclaw trainer install` takes the training server from: the address or file of its release archive, in which {version} stands for this program's version",
    ),
    key(
        "serving.pin_idle",
        Span,
        "10 min",
        "a session stays on its adapter until it was idle for so long",
    ),
    inert("serving.max_adapters", ANY, LATER),
    key(
        "serving.temperature",
        Number(0.0, 2.0),
        "",
        "temperature of chats with the policy model that name none; without one, its server's own, 0.7 at our trainer; verdicts train on replies drawn at 0.3 to 1.2",
    ),
    key(
        "serving.top_p",
        Number(0.001, 1.0),
        "",
        "top_p of chats with the policy model that name none; without one, its server's own, 1 at our trainer; verdicts train on nothing that was drawn below 1",
    ),
];

pub(super) const SCHEDULER: &[Key] = &[
    key(
        "scheduler.idle_minutes",
        Minutes(0, 100_000),
        "30",
        "so long without a turn, and without a key where there is a keyboard, means that you are away",
    ),
    alias(
        "scheduler.idle_threshold_minutes",
        Minutes(0, 100_000),
        "scheduler.idle_minutes",
    ),
    key(
        "scheduler.sleep_start",
        Time,
        "\"23:00\"",
        "when you go to bed, by the clock of this machine; the same as sleep_end: no sleep hours",
    ),
    key(
        "scheduler.sleep_end",
        Time,
        "\"07:00\"",
        "when you get up; who chats in sleep hours is awake",
    ),
    key(
        "scheduler.min_window_minutes",
        Minutes(0, 1_440),
        "15",
        "of sleep or of a meeting, so much must be left",
    ),
    key(
        "scheduler.ics",
        Calendars,
        "[]",
        "calendars (iCalendar files or addresses): while one says that you are busy, you are away",
    ),
    key(
        "scheduler.on_battery",
        Bool,
        "false",
        "whether to learn on battery too",
    ),
    inert("scheduler.enabled", Bool, "mode decides"),
    inert("scheduler.calendar.enabled", Bool, NO_GOOGLE),
    inert("scheduler.calendar.credentials_path", Text, NO_GOOGLE),
    inert("scheduler.calendar.token_path", Text, NO_GOOGLE),
    key(
        "privacy.cloud_training_ok",
        Bool,
        "",
        "whether what is said may be sent to a training server on another machine; asked once at a start. false: it serves and does not train",
    ),
];
