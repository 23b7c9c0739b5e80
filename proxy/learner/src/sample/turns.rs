//! Properties of a turn that matter for training.

use metaclaw_chat::{Role, Score};
use metaclaw_reward::{Evidence, count_words};
use metaclaw_trainer_api::DEFAULT_TEMPERATURE;
use metaclaw_turns::{StreamEnd, Tokens, Turn, TurnKind};

/// The upstream whose replies MetaClaw's own trainer samples: the policy model.
pub const POLICY_UPSTREAM: &str = "policy";
/// The least number of words of a target, because shorter ones would train the model to say nothing.
pub(crate) const MIN_TARGET_WORDS: usize = 3;
/// The range of temperatures, because colder replies are nearly the argmax and hotter ones noise, and neither says much
/// about the policy at T = 1.
const TEMPERATURES: std::ops::RangeInclusive<f64> = 0.3..=1.2;
/// Other settings that change the distribution that a reply is drawn from, each with its value when it is off.
const SHAPING: [(&str, f64); 5] = [
    ("min_p", 0.0),
    ("repetition_penalty", 1.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
    ("min_tokens", 0.0),
];

/// Returns whether a reply may get an advantage from its verdict: it was drawn from (nearly) the policy's own
/// distribution.
pub(crate) fn sampled_fairly(turn: &Turn) -> bool {
    let number = |name: &str| {
        turn.request
            .params
            .get(name)
            .and_then(serde_json::Value::as_f64)
    };
    let temperature = number("temperature").unwrap_or(DEFAULT_TEMPERATURE);
    let whole =
        number("top_p").is_none_or(|p| p >= 1.0) && number("top_k").is_none_or(|k| k <= 0.0);
    let is_off = |(name, off): &(&str, f64)| {
        number(name).is_none_or(|value| (value - off).abs() < f64::EPSILON)
    };
    let ends_itself = turn.request.params.get("ignore_eos") != Some(&true.into());
    TEMPERATURES.contains(&temperature) && whole && SHAPING.iter().all(is_off) && ends_itself
}

/// Returns whether the turn called tools; such turns succeed so often that they have a baseline of their own.
pub(crate) fn is_tool_turn(turn: &Turn) -> bool {
    turn.reply
        .as_ref()
        .is_some_and(|reply| !reply.tool_calls().is_empty())
}

pub(crate) fn score(turn: &Turn) -> Option<Score> {
    turn.verdict.as_ref().map(|verdict| verdict.score)
}

/// Returns what would have been better according to its verdict: the owner's words before a judge's.
pub(crate) fn hint(turn: &Turn) -> Option<&String> {
    let verdict = turn.verdict.as_ref()?;
    let of_judge = || verdict.judge_hints.first();
    verdict.hint.as_ref().or_else(of_judge)
}

/// Returns all hints; `of_owner` is the owner's hint if it is known from elsewhere.
pub(crate) fn all_hints(turn: &Turn, of_owner: Option<String>) -> Vec<String> {
    let verdict = turn.verdict.iter();
    let of_judge = verdict
        .clone()
        .flat_map(|it| it.judge_hints.iter().cloned());
    let own = verdict.filter_map(|it| it.hint.clone());
    let all = of_owner.into_iter().chain(own).chain(of_judge);
    let trimmed = all.map(|hint| hint.trim().to_owned());
    trimmed.filter(|hint| !hint.is_empty()).collect()
}

/// Returns whether a main turn continues its parent with the owner's words only, without a tool's message between.
pub(crate) fn is_owners_answer(turn: &Turn) -> bool {
    let evidence = turn.evidence();
    turn.meta.kind == TurnKind::Main
        && turn.new_words().is_some()
        && !evidence.iter().any(|message| message.role() == Role::Tool)
}

/// Returns whether a reply can be a target: it ended by itself, is no tool call, and says something.
///
/// A reply that a stop text may have ended contains that text, and no end id, so it would train the model to continue.
pub(crate) fn is_whole_target(turn: &Turn) -> bool {
    let Some(reply) = &turn.reply else {
        return false;
    };
    let said = Evidence::new(&[], reply.clone(), &[]).said();
    turn.meta.end == StreamEnd::Complete
        && !may_be_stopped(turn)
        && turn.meta.finish_reason.as_deref() == Some("stop")
        && reply.tool_calls().is_empty()
        && count_words(&said) >= MIN_TARGET_WORDS
}

fn may_be_stopped(turn: &Turn) -> bool {
    use serde_json::Value;
    match turn.request.params.get("stop") {
        None | Some(Value::Null) => false,
        Some(Value::Array(texts)) => !texts.is_empty(),
        Some(_) => true,
    }
}

pub(crate) fn is_usable(tokens: &Tokens) -> bool {
    !tokens.prompt_ids.is_empty()
        && !tokens.ids.is_empty()
        && tokens.logprobs.len() == tokens.ids.len()
}
