//! Translates the effort that a model should spend on thinking between the APIs.
//!
//! Chat completions have `reasoning_effort` (OpenRouter: `reasoning`), Responses `reasoning.effort`, Anthropic
//! `output_config.effort` and `thinking`, with a token budget before Claude 4.6. A server answers a word that its model
//! does not support with 400. Many servers reject the field itself, so a chat model gets the field only if the table
//! has the model.

use serde_json::{Map, Value, json};

/// `max_tokens` of a request to Anthropic whose caller set no limit. Every current model allows it.
pub const DEFAULT_MAX_TOKENS: u64 = 8192;

const LEVELS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// The budget for thinking of each of [`LEVELS`], in tokens, for models that have no words.
const BUDGETS: [u64; 7] = [0, 1024, 2048, 8192, 16384, 16384, 16384];
const LOW: usize = 2;
const HIGH: usize = 4;

/// The first Claude that thinks, the first that has words, and the first that has `xhigh`.
const THINKS: (u64, u64) = (3, 7);
const HAS_WORDS: (u64, u64) = (4, 6);
const HAS_XHIGH: (u64, u64) = (4, 7);

/// The chat models that accept the field.
const TABLE: &str = include_str!("efforts.tsv");

/// Sets the effort of a chat request whose other fields are translated already.
pub(super) fn to_chat(body: &Value, out: &mut Map<String, Value>) {
    let model = body["model"].as_str().unwrap_or_default().to_lowercase();
    let (vendor, name) = model.rsplit_once('/').unwrap_or(("", &model));
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let rows =
        rows.filter_map(|row| <[&str; 4]>::try_from(row.split('\t').collect::<Vec<_>>()).ok());
    let rows = rows.filter(|[begins, ..]| name.starts_with(begins));
    let Some([_, words, with_tools, _]) = rows.max_by_key(|[begins, ..]| begins.len()) else {
        return;
    };
    let words = || words.split_whitespace();
    let nearest = |level| words().rfind(|word| position(word) <= Some(level));
    let mut word = asked(body).and_then(|level| nearest(level).or_else(|| words().next()));
    // Routers that name the vendor use another API of OpenAI's.
    if vendor.is_empty() && out.contains_key("tools") {
        word = match with_tools {
            "" => word,
            "-" => word.filter(|word| *word == LEVELS[0]),
            only => Some(only),
        };
    }
    if let Some(word) = word {
        out.insert("reasoning_effort".into(), word.into());
    }
}

/// Sets effort and thinking of a request for a Claude of this version, which has its limit on tokens already.
pub(super) fn to_messages(
    body: &Value,
    version: Option<(u64, u64)>,
    has_limit: bool,
    out: &mut Map<String, Value>,
) {
    let (Some(level), Some(version)) = (asked(body), version) else {
        return;
    };
    if version >= HAS_WORDS {
        let word = match LEVELS[level.max(LOW)] {
            "xhigh" if version < HAS_XHIGH => LEVELS[HIGH],
            word => word,
        };
        let config = out.entry("output_config").or_insert_with(|| json!({}));
        config["effort"] = word.into();
    }
    if version < THINKS || level == 0 || out.contains_key("thinking") {
        return;
    }
    // Half of the caller's limit remains for the reply.
    let limit = out.get("max_tokens").and_then(Value::as_u64);
    let most = limit
        .filter(|_| has_limit)
        .map_or(BUDGETS[HIGH], |limit| limit / 2);
    let budget = reasoning_tokens(body).unwrap_or(BUDGETS[level]);
    let thinking = match version >= HAS_WORDS {
        true => json!({ "type": "adaptive" }),
        false if most < BUDGETS[1] => return,
        false => json!({ "type": "enabled", "budget_tokens": budget.clamp(BUDGETS[1], most) }),
    };
    if !has_limit {
        out.insert(
            "max_tokens".into(),
            (DEFAULT_MAX_TOKENS + BUDGETS[HIGH]).into(),
        );
    }
    out.insert("thinking".into(), thinking);
}

fn asked(body: &Value) -> Option<usize> {
    let (thinking, reasoning) = (&body["thinking"], &body["reasoning"]);
    if thinking["type"] == "disabled" || reasoning["enabled"] == false {
        return Some(0);
    }
    let words = [
        &body["output_config"]["effort"],
        &body["reasoning_effort"],
        &reasoning["effort"],
    ];
    let mut words = words.into_iter().filter_map(Value::as_str);
    let budget = thinking["budget_tokens"].as_u64();
    let budget = budget.or_else(|| reasoning_tokens(body));
    words.find_map(position).or_else(|| budget.map(of_budget))
}

/// OpenRouter's budget.
fn reasoning_tokens(body: &Value) -> Option<u64> {
    body["reasoning"]["max_tokens"].as_u64()
}

fn of_budget(tokens: u64) -> usize {
    let below = BUDGETS[LOW..HIGH].iter().filter(|most| tokens > **most);
    if tokens == 0 { 0 } else { LOW + below.count() }
}

fn position(word: &str) -> Option<usize> {
    LEVELS.iter().position(|it| it.eq_ignore_ascii_case(word))
}
