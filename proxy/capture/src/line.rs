//! One log line for each turn, without any conversation text.

use metaclaw_dialects::Api;
use metaclaw_turns::NewTurn;

/// The longest text of a caller in the line, in characters.
const LONGEST: usize = 100;

/// Writes a turn's line in the current span. Fields that the turn does not contain are passed separately.
pub(crate) fn log_turn(
    turn: &NewTurn,
    api: Api,
    status: u16,
    n_bytes: u64,
    traceparent: Option<&str>,
) {
    let served = &turn.served;
    let usage = turn.meta.usage.as_ref();
    let since = |ms: u64| ms.saturating_sub(turn.meta.started_ms);
    tracing::info!(
        target: "metaclaw::turn",
        api = api.name(),
        agent = %turn.agent,
        session = %turn.session,
        kind = ?turn.meta.kind,
        upstream = served.upstream,
        model = bounded(&served.model),
        adapter = served.adapter,
        skills = served.skills.len(),
        status,
        end = ?turn.meta.end,
        first_byte_ms = turn.meta.first_byte_ms.map(since),
        total_ms = since(turn.meta.ended_ms),
        n_bytes,
        prompt_tokens = usage.map(|it| it.prompt_tokens),
        cached_tokens = usage.map(|it| it.cached_tokens),
        completion_tokens = usage.map(|it| it.completion_tokens),
        started_ms = turn.meta.started_ms,
        traceparent = traceparent.map(bounded),
        "turn"
    );
}

/// Returns the beginning of a text, because a caller may send one as long as a request.
fn bounded(text: &str) -> &str {
    let end = text.char_indices().nth(LONGEST);
    end.map_or(text, |(end, _)| &text[..end])
}
