//! Converts a finished capture into the turn that the log accepts: the reply decoded, the conversation in chat form, as
//! JSON texts with hashes, and the parameters that affect the reply.
//!
//! For a chat completion, each message keeps its original text, because building values of all of them would cost
//! several times as much. Messages of other APIs are converted to chat form.

use metaclaw_chat::{Chain, ChainHash, Message, Said};
use metaclaw_dialects::{
    Api, json,
    request::{ChatRequest, OWN_FIELDS, SHARED_FIELDS, ValueMark},
    translate::upstream_reply_id,
    vllm::Sampled,
};
use metaclaw_turns::{JsonText, NewMessage, NewTurn, Served, StreamEnd, Tokens, TurnMeta};
use serde_json::{Map, Value};

use crate::{
    budget::{CaptureMetrics, Held},
    long_texts::LongTexts,
    recording::{CapturedRequest, Recording},
};

// === impl Recording ===

impl Recording {
    /// Decodes the reply and reads the request. Returns the turn, and its memory, which is given back when the log is done
    /// with the turn. If the request cannot be read, counts this and returns `None`.
    pub(crate) fn decode(
        mut self: Box<Self>,
        metrics: &CaptureMetrics,
        texts: &mut LongTexts,
    ) -> Option<(NewTurn, [Held; 2])> {
        let _entered = self.request.span.clone().entered();
        let response = self.response;
        let copied = self.reply.bytes();
        let opened = copied.as_deref().and_then(|bytes| {
            let opened = response.encoding.open(bytes);
            if opened.is_none() {
                metrics.undecodable.inc();
            }
            opened
        });
        // What was said is as long as the opened reply; what came of it may be a thousandth of that. Of one that was
        // dropped, or cannot be opened, there is nothing.
        let n_reply = opened
            .as_ref()
            .map_or(0, |opened| self.n_bytes.max(opened.len() as u64));
        let sampled = opened.as_ref().and_then(|opened| response.sampled(opened));
        let mut reply = opened.map(|opened| response.parse(&opened));
        if reply.take_if(|reply| reply.n_skipped > 0).is_some() {
            metrics.overflowed.inc();
        }
        let end = response.end(self.end.unwrap_or(StreamEnd::Cut), reply.as_ref());
        let reply = reply.unwrap_or_default();
        let request = &mut self.request;
        if let Some((tell, id)) = request.on_reply_id.take().zip(reply.id.clone()) {
            tell(id);
        }
        if let Some((tell, reply)) = request.on_calls.take().zip(reply.message.as_ref()) {
            tell(&request.chat, reply);
        }
        let Some((mut turn, n_request)) = begin_turn(request, texts) else {
            metrics.unreadable.inc();
            return None;
        };
        // What is not known when the reply has ended is taken for a base model.
        let parent = request
            .parent
            .take()
            .and_then(|parent| parent.get()?.clone());
        let whole = sampled.filter(|_| end == StreamEnd::Complete);
        turn.tokens = whole.map(|sampled| tokens(sampled, &turn.served, parent));
        turn.reply = reply.message;
        turn.meta.reply_id = reply.id;
        turn.meta.finish_reason = reply.finish_reason;
        turn.meta.usage = reply.usage;
        let usage = reply.usage.unwrap_or_default();
        metrics.prompt_tokens.add(usage.prompt_tokens);
        metrics.cached_tokens.add(usage.cached_tokens);
        turn.meta.end = end;
        turn.meta.first_byte_ms = self.first_byte_ms;
        turn.meta.ended_ms = self.ended_ms;
        let n_ids = turn.tokens.as_ref().map_or(0, Tokens::n_bytes) as u64;
        let n_messages = size_of_val(turn.messages.as_slice());
        let n_turn = (n_request + n_messages + size_of::<NewTurn>()) as u64;
        let mut memory = [self.memory, self.waiting];
        for held in &mut memory {
            held.set(n_turn + n_ids + n_reply);
        }
        log_turn(
            &turn,
            self.request.chat.api(),
            response.status,
            self.n_bytes,
            self.request.traceparent.as_deref(),
        );
        Some((turn, memory))
    }
}

/// Converts sampled ids to the log's form. vLLM does not return the log-probabilities after temperature and top-p.
fn tokens(sampled: Sampled, served: &Served, parent: Option<String>) -> Tokens {
    let model = served.model.clone();
    let (base, adapter) = match parent {
        Some(parent) => (parent, Some(model)),
        None => (model, served.adapter.clone()),
    };
    Tokens {
        prompt_ids: sampled.prompt_ids,
        ids: sampled.ids,
        logprobs: sampled.logprobs,
        sampling_logprobs: Vec::new(),
        adapter,
        version: None,
        base,
        base_fingerprint: None,
    }
}

const LONGEST: usize = 100;

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
        prompt_tokens = usage.map(|usage| usage.prompt_tokens),
        cached_tokens = usage.map(|usage| usage.cached_tokens),
        completion_tokens = usage.map(|usage| usage.completion_tokens),
        started_ms = turn.meta.started_ms,
        traceparent = traceparent.map(bounded),
        "turn"
    );
}

/// Returns the beginning of a text, because a caller may send one as long as a request.
fn bounded(text: &str) -> &str {
    let end = text
        .char_indices()
        .nth(LONGEST)
        .map_or(text.len(), |(end, _)| end);
    &text[..end]
}

/// Makes a turn that has its request in the log's form and no reply yet. Also returns the bytes of the request, without
/// the texts that it shares with other turns.
///
/// Returns `None` if a part fits in no value: a number beyond `f64`, or too deep a nesting. Upstreams may accept such a
/// request, but MetaClaw does not learn from it.
pub(crate) fn begin_turn(
    request: &mut CapturedRequest,
    texts: &mut LongTexts,
) -> Option<(NewTurn, usize)> {
    let (chat, start) = (&request.chat, request.start);
    let api = chat.api();
    let text = |name| match chat.field(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let tools = match chat.marked_field("tools") {
        Some((tools, mark)) => Some((tools.len(), texts.tools(api, tools, mark)?)),
        None => None,
    };
    let (mut n_texts, mut n_own) = tools.as_ref().map_or((0, 0), |(n, (_, own))| (*n, *own));
    let own = |json: &str, mark: Option<ValueMark>| {
        let (text, n_bytes) = texts.own(json, mark);
        n_texts += json.len();
        n_own += n_bytes;
        text
    };
    // The log identifies a reply by the id that its upstream gave it.
    let previous = || {
        let id = text("previous_response_id")?;
        Some(upstream_reply_id(&id).to_owned())
    };
    let messages = match api {
        Api::Chat => as_they_stand(chat, start, own),
        Api::Messages | Api::Responses => converted(chat, start, own)?,
    };
    let n_others = chat.raw().len().saturating_sub(n_texts);
    let mut params = params(chat);
    for (name, value) in std::mem::take(&mut request.sampling) {
        params.insert(name.to_owned(), value.into());
    }
    let mut served = std::mem::take(&mut request.served);
    if served.model.is_empty() {
        served.model = text("model").unwrap_or_default();
    }
    let chain = messages.last().map_or(start, |last| last.chain);
    let turn = NewTurn {
        agent: request.agent.clone(),
        session: request.session.clone(),
        meta: TurnMeta {
            kind: request.kind,
            is_last: request.is_last,
            ..TurnMeta::whole(chain, request.started_ms)
        },
        messages,
        continues: (api == Api::Responses).then(previous).flatten(),
        tools: tools.map(|(_, (text, _))| text),
        params,
        reply: None,
        served,
        tokens: None,
    };
    Some((turn, n_own + n_others))
}

/// Returns the parameters that affect the reply, without the conversation and the tools. A number that fits in no `f64`
/// becomes null here, because no such parameter affects the reply.
fn params(chat: &ChatRequest) -> Map<String, Value> {
    let api = chat.api();
    let is_said = |name: &str| match (name, api) {
        ("messages", Api::Chat)
        | ("messages" | "system", Api::Messages)
        | ("input" | "instructions", Api::Responses) => true,
        (name, _) => name == "tools" || OWN_FIELDS.contains(&name) || SHARED_FIELDS.contains(&name),
    };
    let steering = chat.fields().filter(|(name, _)| !is_said(name));
    let param = |(name, json): (&str, &str)| {
        let value = json::value(json.as_bytes()).unwrap_or_default();
        (api.param(name).to_owned(), value)
    };
    steering.map(param).collect()
}

fn as_they_stand(
    chat: &ChatRequest,
    start: ChainHash,
    mut own: impl FnMut(&str, Option<ValueMark>) -> JsonText,
) -> Vec<NewMessage> {
    let chains = chat.chains(start).into_iter().skip(1);
    let message = |((item, mark), chain)| NewMessage {
        text: own(item, mark),
        chain,
    };
    chat.marked_items().zip(chains).map(message).collect()
}

fn converted(
    chat: &ChatRequest,
    start: ChainHash,
    mut own: impl FnMut(&str, Option<ValueMark>) -> JsonText,
) -> Option<Vec<NewMessage>> {
    let messages = chat.to_messages()?;
    let mut chains = Chain::new(start);
    let message = |message: &Message| {
        let chain = chains.push(Said::of_message(message));
        let text = serde_json::to_string(message.as_map()).ok()?;
        Some(NewMessage {
            text: own(&text, None),
            chain,
        })
    };
    messages.iter().map(message).collect()
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::{AgentId, work};
    use metaclaw_dialects::request::KnownValues;
    use proptest::{collection::vec, prelude::*, sample::select};
    use serde_json::json;

    use super::*;
    use crate::tests::asked;

    fn start() -> ChainHash {
        ChainHash::start(&AgentId::default_agent())
    }

    fn read(api: Api, raw: &str) -> Option<NewTurn> {
        let turn = begin_turn(&mut asked(api, raw), &mut LongTexts::new());
        turn.map(|(turn, _)| turn)
    }

    fn by_values(messages: &[NewMessage]) -> Vec<ChainHash> {
        let message = |message: &NewMessage| message.text.read().unwrap();
        let messages: Vec<Message> = messages.iter().map(message).collect();
        ChainHash::chain(&AgentId::default_agent(), &messages)
    }

    #[test]
    fn a_chat_completion_keeps_its_messages_as_they_stand() {
        let raw = r#"{"model":"m","n":1e999,"n":2,"tools":[{"type":"function"}],"session_id":"s","messages":7,
            "messages":[{"x":[1],"role":"user","content":"hi"},{"role":"tool","content":[{"text":"a"},{"text":"b"}]},
            {"role":"user","content":"half \ud83d","content":"\u0041"}]}"#;
        let request = read(Api::Chat, raw).unwrap();
        let texts = request.messages.iter().map(|message| message.text.as_str());
        let expected = [
            r#"{"x":[1],"role":"user","content":"hi"}"#,
            r#"{"role":"tool","content":[{"text":"a"},{"text":"b"}]}"#,
            r#"{"role":"user","content":"half \ufffd","content":"\u0041"}"#,
        ];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
        let chains = request.messages.iter().map(|message| message.chain);
        assert_eq!(chains.collect::<Vec<_>>(), by_values(&request.messages));
        assert_eq!(request.tools.unwrap().as_str(), r#"[{"type":"function"}]"#);
        assert_eq!(Value::Object(request.params), json!({"model": "m", "n": 2}));
        assert_eq!(
            (request.served.model.as_str(), request.continues),
            ("m", None)
        );
    }

    #[test]
    fn the_other_apis_are_put_into_chat_shape() {
        let raw = r#"{"model":"m","system":"S","stop_sequences":["x"],"tools":[{"name":"t","input_schema":{}}],
            "messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"},{"type":"text","text":"u"}]}]}"#;
        let request = read(Api::Messages, raw).unwrap();
        let roles = |request: &NewTurn| -> Vec<String> {
            let role = |text: &JsonText| {
                let message: Value = serde_json::from_str(text.as_str()).unwrap();
                message["role"].as_str().unwrap().to_owned()
            };
            request
                .messages
                .iter()
                .map(|message| role(&message.text))
                .collect()
        };
        assert_eq!(roles(&request), ["system", "tool", "user"]);
        assert_eq!(
            request.messages[0].chain,
            start(),
            "a system text is none of the conversation"
        );
        assert!(request.params.contains_key("stop") && request.tools.is_some());

        let raw = r#"{"input":"hi","instructions":"S","previous_response_id":"resp_\u0031"}"#;
        let request = read(Api::Responses, raw).unwrap();
        assert_eq!(roles(&request), ["system", "user"]);
        assert_eq!(request.continues.as_deref(), Some("resp_1"));
        assert_eq!(
            request.messages[1].chain,
            start().then(&Message::user("hi"))
        );
    }

    // Only a build with debug assertions counts.
    #[cfg(debug_assertions)]
    #[test]
    fn tools_that_the_turn_before_had_too_are_not_read_again() {
        let described = "Runs a command. ".repeat(100);
        let raw = json!({"messages": [{"role": "user", "content": "hi"}],
            "tools": [{"name": "t", "description": described, "input_schema": {}}]})
        .to_string();
        let (known, mut texts) = (KnownValues::default(), LongTexts::new());
        let mut turn = || {
            let mut request = asked(Api::Messages, &raw);
            let raw = raw.clone().into();
            request.chat = ChatRequest::parse_with(Api::Messages, raw, &known).unwrap();
            work::looked_at();
            let (turn, _) = begin_turn(&mut request, &mut texts).unwrap();
            (turn.tools.unwrap(), work::looked_at())
        };
        let ((first, n_first), (second, n_second)) = (turn(), turn());
        assert!(first.as_str().contains(r#""parameters":{}"#));
        assert_eq!(first.as_str(), second.as_str());
        assert!(n_first > 1_600 && n_second < 400, "{n_first}, {n_second}");
    }

    #[test]
    fn half_an_emoji_is_shown_and_what_no_value_holds_is_not_read() {
        let raw = r#"{"\ud83d":1,"messages":[{"role":"user","content":"\ud83d","\ud83d":1}]}"#;
        let request = read(Api::Chat, raw).unwrap();
        let message = &request.messages[0];
        assert_eq!(
            message.text.read::<Value>().unwrap(),
            json!({"role": "user", "content": "\u{fffd}", "\u{fffd}": 1})
        );
        assert_eq!(message.chain, start().then(&Message::user("\u{fffd}")));
        // For a chat completion, the log itself detects this in texts that it does not have yet.
        let raw = r#"{"system":1e999,"messages":[{"role":"user","content":"hi"}]}"#;
        assert!(read(Api::Messages, raw).is_none());
    }

    proptest! {
        #[test]
        fn what_is_read_where_it_stands_is_hashed_as_its_value_is(
            messages in vec((select(vec!["user", "assistant", "tool", "system", "x"]), "[ a-b\n\"é\\\\]{0,9}", 0..4u8), 1..6),
        ) {
            let message = |(role, text, shape): &(&str, String, u8)| match shape {
                0 => json!({"role": role, "content": text}),
                1 => json!({"content": [{"type": "text", "text": text}, text], "role": role}),
                2 => json!({"role": role, "content": null}),
                _ => json!({"role": role}),
            };
            let messages: Vec<Value> = messages.iter().map(message).collect();
            let raw = json!({ "messages": messages }).to_string();
            let request = read(Api::Chat, &raw).unwrap();
            let chains: Vec<_> = request.messages.iter().map(|message| message.chain).collect();
            prop_assert_eq!(chains, by_values(&request.messages));
        }
    }
}
