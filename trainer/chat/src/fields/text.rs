//! The fields of chat and tokenising.

use super::{Field, done, no_effect, refused};

const BILLING: &str = "for billing, storage or tracing";
const CACHING: &str = "prefixes are found again without it";
const TOOLS: &str = "tools and tool_choice took its place";
const ONE_DRAW: &str = "tokens are drawn one after the other, each for good";
const FREE_TEXT: &str = "text is drawn freely, no grammar is put on it";
const TEMPLATE: &str = "the model's own template is used as it is";
const TEXT_ONLY: &str = "this model reads and writes text alone";
const IDS: &str = "ids and log-probabilities are at GET /v1/sampled/{reply id}";
const MEASURING: &str = "this server has no such part";

/// The fields of `/v1/chat/completions`: OpenAI's, then vLLM's, then other providers'.
pub const CHAT: &[Field] = &[
    done("messages", "text, or a list of text parts"),
    done(
        "model",
        "`base`, an adapter, or `default`: the adapter last saved",
    ),
    done(
        "max_completion_tokens",
        "at least 1; without it, what the context leaves",
    ),
    done("max_tokens", "as max_completion_tokens, which wins"),
    done("temperature", "0 takes the likeliest token; default 0.7"),
    done("top_p", "above 0, at most 1; default 1"),
    done("n", "1 to 16 choices"),
    done("stream", "as events"),
    done(
        "stream_options",
        "`include_usage`; `include_obfuscation` has no effect",
    ),
    done("stop", "a text or up to 16; not part of the reply"),
    done("seed", "a whole number"),
    done(
        "presence_penalty",
        "subtracted from the logits of ids that the reply has; 0 is off",
    ),
    done(
        "frequency_penalty",
        "the same, for each time that the reply has the id; 0 is off",
    ),
    refused(
        "logit_bias",
        &["{}"],
        "the model's own distribution is drawn from",
    ),
    done("logprobs", "at temperature 1 over the whole vocabulary"),
    done("top_logprobs", "0 to 20, with logprobs"),
    done(
        "tools",
        "as the model's template shows them; calls come as text",
    ),
    done(
        "tool_choice",
        "`auto`, or `none`: the template is shown no tools",
    ),
    done("response_format", "`text`"),
    done(
        "reasoning_effort",
        "a variable of the template; `none` switches thinking off where the template can",
    ),
    refused(
        "parallel_tool_calls",
        &["true"],
        "how many calls a reply has is the model's choice",
    ),
    refused("verbosity", &["\"medium\""], "say it in a message"),
    refused("modalities", &["[\"text\"]"], TEXT_ONLY),
    refused("audio", &[], TEXT_ONLY),
    refused(
        "web_search_options",
        &[],
        "nothing is searched for; give a tool",
    ),
    refused("functions", &["[]"], TOOLS),
    refused("function_call", &["\"none\"", "\"auto\""], TOOLS),
    no_effect("prediction", "only for speed"),
    no_effect("prompt_cache_key", CACHING),
    no_effect("prompt_cache_retention", CACHING),
    no_effect("user", BILLING),
    no_effect("safety_identifier", BILLING),
    no_effect("metadata", BILLING),
    no_effect("store", BILLING),
    no_effect("service_tier", BILLING),
    done("top_k", "0 and -1 are all"),
    done(
        "min_p",
        "leaves out what is less likely than this share of the likeliest token; 0 is off",
    ),
    done(
        "repetition_penalty",
        "for ids that prompt or reply have; 1 is off",
    ),
    done(
        "stop_token_ids",
        "ids that end the reply, as the model's own end does",
    ),
    done("ignore_eos", "the model's own end does not end the reply"),
    done("min_tokens", "the least ids of a reply"),
    done(
        "chat_template_kwargs",
        "variables of the template, as `enable_thinking`",
    ),
    refused(
        "thinking_token_budget",
        &[],
        "give max_tokens, or reasoning_effort none",
    ),
    refused(
        "include_reasoning",
        &["true"],
        "thinking stands apart, in reasoning_content",
    ),
    refused("use_beam_search", &["false"], ONE_DRAW),
    refused("best_of", &["1"], ONE_DRAW),
    refused("length_penalty", &["1"], ONE_DRAW),
    refused("repetition_detection", &[], "give repetition_penalty"),
    refused("watermarking", &["false"], MEASURING),
    refused(
        "include_stop_str_in_output",
        &["false"],
        "a stop text is not part of the reply",
    ),
    refused("skip_special_tokens", &["true"], IDS),
    no_effect(
        "spaces_between_special_tokens",
        "special tokens are not in the text",
    ),
    refused(
        "truncate_prompt_tokens",
        &["-1"],
        "a prompt is read whole or refused",
    ),
    refused("truncation_side", &[], "a prompt is read whole or refused"),
    refused("prompt_logprobs", &[], "POST /v1/train/forward has them"),
    refused("logprob_token_ids", &[], "POST /v1/train/forward has any"),
    refused("allowed_token_ids", &[], FREE_TEXT),
    refused("bad_words", &["[]"], FREE_TEXT),
    refused("structured_outputs", &[], FREE_TEXT),
    refused("guided_json", &[], FREE_TEXT),
    refused("guided_regex", &[], FREE_TEXT),
    refused("guided_choice", &[], FREE_TEXT),
    refused("guided_grammar", &[], FREE_TEXT),
    refused("echo", &["false"], "the reply is what is new"),
    refused(
        "add_generation_prompt",
        &["true"],
        "a reply begins where the template lets it",
    ),
    refused(
        "continue_final_message",
        &["false"],
        "a reply begins where the template lets it",
    ),
    refused("add_special_tokens", &["false"], TEMPLATE),
    refused("documents", &["[]"], "put them into a message"),
    refused("chat_template", &[], TEMPLATE),
    refused("mm_processor_kwargs", &["{}"], TEXT_ONLY),
    refused("media_io_kwargs", &["{}"], TEXT_ONLY),
    refused("priority", &["0"], "first come, first served"),
    refused("return_tokens_as_token_ids", &["false"], IDS),
    refused("return_token_ids", &["false"], IDS),
    refused("return_token_offsets", &["false"], IDS),
    refused("return_prompt_text", &["false"], IDS),
    refused(
        "cache_salt",
        &[],
        "prefixes are shared among those who have the key",
    ),
    refused("kv_transfer_params", &[], MEASURING),
    refused("ec_transfer_params", &[], MEASURING),
    refused("vllm_xargs", &["{}"], MEASURING),
    refused("logits_processors", &["[]"], MEASURING),
    refused(
        "stream_interval",
        &["1"],
        "each token is sent when it is there",
    ),
    no_effect("request_id", BILLING),
    no_effect("session_id", CACHING),
    no_effect("routed_experts_prompt_start", "no model here has experts"),
    no_effect("return_mm_kwargs", "there are none"),
    done("enable_thinking", "Alibaba's: as in chat_template_kwargs"),
    done(
        "thinking",
        "Anthropic's, Z.ai's, Moonshot's: `{\"type\": \"enabled\"}` or `\"disabled\"`, as enable_thinking",
    ),
    done("reasoning", "OpenRouter's: `effort`, `enabled`"),
    no_effect("provider", "OpenRouter's: which provider it asks"),
    no_effect("providerOptions", "Vercel's: which provider it asks"),
    no_effect(
        "models",
        "OpenRouter's: which model or provider it asks next",
    ),
    no_effect(
        "route",
        "OpenRouter's: which model or provider it asks next",
    ),
    no_effect(
        "transforms",
        "OpenRouter's: a prompt is read whole or refused",
    ),
    no_effect("plugins", "OpenRouter's"),
    no_effect("usage", "OpenRouter's: the usage is always reported"),
    no_effect("tool_stream", "Z.ai's: all is streamed"),
    done(
        "metaclaw_system_append",
        "ours: a text at the end of the system text",
    ),
];

/// The fields of `/tokenize`.
pub const TOKENIZE: &[Field] = &[
    done("prompt", "a text, instead of messages"),
    done("messages", "a conversation, instead of prompt"),
    done("tools", "as the template shows them"),
    done(
        "add_generation_prompt",
        "whether it ends where the assistant begins; default true",
    ),
    done("chat_template_kwargs", "variables of the template"),
    done(
        "split_reply",
        "ours: the messages end with the assistant's, and the answer has reply_start, the number of tokens before that; default false",
    ),
    no_effect("model", "there is one tokenizer"),
    refused(
        "add_special_tokens",
        &["false"],
        "nothing is added to a text, and the template adds its own; with a prompt vLLM's default is true",
    ),
    refused("return_token_strs", &["false"], "the ids alone are given"),
    refused("continue_final_message", &["false"], TEMPLATE),
    refused("chat_template", &[], TEMPLATE),
    refused("mm_processor_kwargs", &["{}"], TEXT_ONLY),
    refused("media_io_kwargs", &["{}"], TEXT_ONLY),
];
