//! Changes a translated request so that Anthropic accepts it.
//!
//! A chat completion may contain things that Anthropic always answers with 400, so that a session with one of them
//! could not continue. All of them that can be detected beforehand are changed here, in one place and in this order.
//! The rules come from the API reference (<https://docs.claude.com/en/api/messages>) and from its errors.
//! `docs/operating/translation.md` lists them.

mod conversation;
mod schema;

use serde_json::{Map, Value, json};

pub(crate) use self::conversation::{first_reply_under_way, pair_results};

const MAX_CACHE_MARKS: usize = 4;
const MAX_USER_ID: usize = 256;
const MIN_BUDGET: u64 = 1024;

/// The largest output of a Claude model, if it is smaller than the default `max_tokens`.
const MAX_TOKENS: [((u64, u64), u64); 2] = [((3, 5), 8192), ((3, 0), 4096)];

/// From this version on, `temperature` and `top_p` may not both be given.
const ONE_SAMPLER: (u64, u64) = (4, 1);
/// From this version on, the model does not accept a beginning of its reply.
const NO_PREFILL: (u64, u64) = (4, 6);
/// From this version on, the model accepts neither sampling parameters nor a budget for thinking.
const NO_SAMPLERS: (u64, u64) = (4, 7);

pub(super) fn fit(request: &mut Map<String, Value>) {
    let model = request.get("model").and_then(Value::as_str);
    let version = model.and_then(version);
    let is_from = |least| version.is_some_and(|version| version >= least);
    if let Some(Value::Array(messages)) = request.get_mut("messages") {
        conversation::pair_results(messages);
        conversation::begin_with_user(messages);
    }
    limit_tokens(request, version);
    tools_of_history(request);
    thinking(request, is_from(NO_SAMPLERS));
    samplers(request, is_from(ONE_SAMPLER), is_from(NO_SAMPLERS));
    let takes_prefill = !is_from(NO_PREFILL) && !thinks(request);
    if let Some(Value::Array(messages)) = request.get_mut("messages") {
        conversation::end(messages, takes_prefill);
    }
    if let Some(tools) = request.get_mut("tools").and_then(Value::as_array_mut) {
        let schemas = tools
            .iter_mut()
            .filter_map(|tool| tool.get_mut("input_schema"));
        schemas.for_each(schema::of_tool);
    }
    let format = request.get_mut("output_config");
    if let Some(format) = format.and_then(|config| config.get_mut("format")) {
        schema::of_reply(&mut format["schema"]);
    }
    limit_cache_marks(request);
    let user_id = request.get("metadata").map(|metadata| &metadata["user_id"]);
    let n_chars = user_id.and_then(Value::as_str).map(|id| id.chars().count());
    if n_chars.is_some_and(|n| n > MAX_USER_ID) {
        request.shift_remove("metadata");
    }
}

/// Returns the version in the name of a Claude model: 4.5 for `claude-opus-4-5-20251101`. Returns `None` for other
/// models.
pub(super) fn version(model: &str) -> Option<(u64, u64)> {
    let name = &model[model.find("claude")?..];
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    // A longer number is a date.
    let words = words.filter(|word| word.len() <= 2);
    let mut numbers = words.filter_map(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

fn limit_tokens(request: &mut Map<String, Value>, version: Option<(u64, u64)>) {
    let of_model = MAX_TOKENS.iter().find(|(of, _)| version == Some(*of));
    let given = request.get("max_tokens").and_then(Value::as_u64);
    if let (Some((_, most)), Some(given)) = (of_model, given)
        && given > *most
    {
        request.insert("max_tokens".into(), (*most).into());
    }
}

/// Calls in the history need definitions of their tools, and `tool_choice` needs tools.
fn tools_of_history(request: &mut Map<String, Value>) {
    if request.contains_key("tools") {
        return;
    }
    request.shift_remove("tool_choice");
    let messages = request.get("messages").and_then(Value::as_array);
    let blocks = messages.into_iter().flatten();
    let blocks = blocks.flat_map(|message| message["content"].as_array().into_iter().flatten());
    let calls = blocks.filter(|block| block["type"] == "tool_use");
    let mut names: Vec<&str> = calls.filter_map(|call| call["name"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let tool = |name| json!({ "name": name, "input_schema": { "type": "object" } });
    let tools: Vec<Value> = names.into_iter().map(tool).collect();
    if !tools.is_empty() {
        request.insert("tools".into(), tools.into());
        request.insert("tool_choice".into(), json!({ "type": "none" }));
    }
}

/// Fits `thinking` to the model: adaptive from 4.7 on, else a budget of at least 1024 and below `max_tokens`. Removes
/// it if that is impossible, its type is unknown, a tool must be called, or calls began without thinking.
fn thinking(request: &mut Map<String, Value>, is_adaptive: bool) {
    let kind = request.get("thinking").map(|it| it["type"].clone());
    if !matches!(
        kind.as_ref().and_then(Value::as_str),
        Some("enabled" | "adaptive")
    ) {
        // The value has no effect, or is unknown.
        if kind.is_some_and(|kind| kind != "disabled") {
            request.shift_remove("thinking");
        }
        return;
    }
    let choice = request.get("tool_choice").map(|choice| &choice["type"]);
    let is_forced = choice.is_some_and(|kind| *kind == "any" || *kind == "tool");
    let messages = request.get("messages").and_then(Value::as_array);
    if is_forced || messages.is_some_and(|it| conversation::is_mid_call_without_thinking(it)) {
        request.shift_remove("thinking");
        return;
    }
    if is_adaptive {
        request.insert("thinking".into(), json!({ "type": "adaptive" }));
        return;
    }
    let Some(budget) = request
        .get("thinking")
        .and_then(|thinking| thinking["budget_tokens"].as_u64())
    else {
        return;
    };
    let budget = budget.max(MIN_BUDGET);
    let limit = request.get("max_tokens").and_then(Value::as_u64);
    let budget = limit.map_or(budget, |limit| budget.min(limit.saturating_sub(1)));
    if budget < MIN_BUDGET {
        request.shift_remove("thinking");
    } else if let Some(thinking) = request.get_mut("thinking") {
        thinking["budget_tokens"] = budget.into();
    }
}

fn thinks(request: &Map<String, Value>) -> bool {
    let thinking = request.get("thinking");
    thinking.is_some_and(|thinking| thinking["type"] != "disabled")
}

/// Keeps those of `temperature`, `top_p` and `top_k` that the model accepts. If it does not accept two together, keeps
/// the one that has an effect.
fn samplers(request: &mut Map<String, Value>, is_one: bool, is_none: bool) {
    let number = |request: &Map<String, Value>, name: &str| request.get(name)?.as_f64();
    if number(request, "top_k").is_some_and(|k| k < 0.0) {
        request.shift_remove("top_k");
    }
    if is_none || thinks(request) {
        request.shift_remove("temperature");
        request.shift_remove("top_k");
        if is_none || number(request, "top_p").is_some_and(|p| p < 0.95) {
            request.shift_remove("top_p");
        }
        return;
    }
    let (Some(temperature), Some(top_p)) =
        (number(request, "temperature"), number(request, "top_p"))
    else {
        return;
    };
    let says_nothing = |value: f64| (value - 1.0).abs() < f64::EPSILON;
    if says_nothing(top_p) {
        request.shift_remove("top_p");
    } else if says_nothing(temperature) {
        request.shift_remove("temperature");
    } else if is_one {
        request.shift_remove("top_p");
    }
}

/// Keeps the last four marks, because a longer prefix includes the shorter ones.
fn limit_cache_marks(request: &mut Map<String, Value>) {
    let mut n_over = n_marks(request).saturating_sub(MAX_CACHE_MARKS);
    for place in ["tools", "system", "messages"] {
        if let Some(value) = request.get_mut(place) {
            unmark(value, &mut n_over);
        }
    }
}

fn n_marks(request: &Map<String, Value>) -> usize {
    fn of(value: &Value) -> usize {
        let own = usize::from(value.get("cache_control").is_some());
        let inner = value.as_array().or_else(|| value["content"].as_array());
        own + inner.into_iter().flatten().map(of).sum::<usize>()
    }
    let places = ["tools", "system", "messages"].iter();
    places.filter_map(|place| request.get(*place)).map(of).sum()
}

fn unmark(value: &mut Value, n_over: &mut usize) {
    if *n_over == 0 {
        return;
    }
    match value {
        Value::Array(list) => list.iter_mut().for_each(|item| unmark(item, n_over)),
        Value::Object(block) => {
            // The content of a block is cached before the block's end.
            if let Some(content) = block.get_mut("content") {
                unmark(content, n_over);
            }
            if *n_over > 0 && block.shift_remove("cache_control").is_some() {
                *n_over -= 1;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
