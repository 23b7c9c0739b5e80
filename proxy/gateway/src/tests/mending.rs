//! Tests with providers that refuse a history without the data that they attached to it, and clients that lose this
//! data.

mod providers;

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use self::providers::{
    Answers, SIGNATURE, assistants, calls, claude, completion, deepseek, gemini, refused, streamed,
    strict,
};
use super::harness::{Harness, Seen, SetUp, Upstream, post, reply};
use crate::{Api, Failure, Provider};

/// Answers every request to a provider.
async fn serve(upstream: &mut Upstream, api: Api, answers: Answers) {
    loop {
        let mut exchange = upstream.next().await;
        let request: Value = serde_json::from_slice(&exchange.body).unwrap();
        let (status, body) = answers(&request);
        let (kind, body) = match (status, request["stream"].as_bool()) {
            (200, Some(true)) => ("text/event-stream", streamed(api, &body)),
            _ => ("application/json", body.to_string()),
        };
        let whole = reply(&format!("{status} X"), "", &body);
        exchange
            .send(&whole.replace("application/json", kind))
            .await;
    }
}

/// A gateway with two providers. The second is used if the first is overloaded.
struct Two {
    harness: Harness,
    second: Upstream,
    apis: [Api; 2],
    /// The behaviour of each. An unavailable one is overloaded.
    answers: [Answers; 2],
    n_turns: usize,
}

fn away(_: &Value) -> (u16, Value) {
    (503, json!({"error": {"message": "overloaded"}}))
}

impl Two {
    async fn start(providers: [(Api, Answers); 2], mends: bool) -> Self {
        let second = Upstream::start(&TaskTracker::new()).await;
        let mut set_up = SetUp::default();
        set_up.with_second(&second, &[Failure::Overloaded, Failure::Server]);
        for (name, (api, _)) in ["llm", "second"].into_iter().zip(providers) {
            let own = set_up.config.upstreams.entry(name.into()).or_default();
            own.speaks = Some(vec![api]);
            if api == Api::Messages {
                own.dialect = Provider::Anthropic;
            }
        }
        set_up.config.routing.mend_history = mends;
        Self {
            harness: Harness::with(set_up).await,
            second,
            apis: providers.map(|(api, _)| api),
            answers: providers.map(|(_, answers)| answers),
            n_turns: 0,
        }
    }

    async fn ask(&mut self, api: Api, request: &Value) -> Seen {
        self.ask_with("x-session-id: s1\r\n", api, request).await
    }

    async fn ask_with(&mut self, head: &str, api: Api, request: &Value) -> Seen {
        let request = post(api.path(), head, &request.to_string());
        let mut client = self.harness.sent(&request).await;
        let seen = tokio::select! {
            seen = client.read() => seen,
            () = serve(&mut self.harness.upstream, self.apis[0], self.answers[0]) => unreachable!(),
            () = serve(&mut self.second, self.apis[1], self.answers[1]) => unreachable!(),
        };
        if seen.status() == 200 {
            self.n_turns += 1;
            self.harness.log.wait(self.n_turns).await;
        }
        seen
    }

    /// Asks, and checks that the answer is no refusal.
    async fn is_answered(&mut self, api: Api, request: &Value, case: &str) {
        let seen = self.ask(api, request).await;
        assert_eq!(seen.status(), 200, "{case}: {}", seen.text());
    }

    /// Starts with one provider.
    async fn alone(api: Api, answers: Answers, mends: bool) -> Self {
        Self::start([(api, answers), (api, away)], mends).await
    }

    /// Plays a conversation with a tool call, with a client that keeps only what its API strictly defines of a reply.
    /// Returns the result of the second request, and its history.
    async fn talk(&mut self, api: Api, stream: bool, thinks: bool) -> (Seen, Value) {
        let mut request = question(api, stream, thinks);
        self.is_answered(api, &request, "the question").await;
        go_on(&mut request, &self.last_call(), api);
        (self.ask(api, &request).await, request)
    }

    fn last_call(&self) -> metaclaw_chat::ToolCall {
        let turns = self.harness.log.turns();
        let reply = turns.last().unwrap().reply.clone().unwrap();
        reply.tool_calls().remove(0)
    }
}

/// Adds what the model and the owner say.
fn say(request: &mut Value, reply: &str, user: &str) {
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": reply}));
    messages.push(json!({"role": "user", "content": user}));
}

fn question(api: Api, stream: bool, thinks: bool) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let mut request = json!({"model": "claude-sonnet-4-5", "max_tokens": 4096, "stream": stream, "messages": [{"role": "user", "content": "The weather in Bern?"}]});
    request["tools"] = match api {
        Api::Messages => json!([{"name": "weather", "input_schema": schema}]),
        _ => json!([{"type": "function", "function": {"name": "weather", "parameters": schema}}]),
    };
    if thinks {
        match api {
            Api::Messages => {
                request["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
            }
            _ => request["reasoning_effort"] = "low".into(),
        }
    }
    request
}

/// Adds the call and its result, and nothing else of the reply.
fn go_on(request: &mut Value, call: &metaclaw_chat::ToolCall, api: Api) {
    let messages = request["messages"].as_array_mut().unwrap();
    if api == Api::Messages {
        let input: Value = serde_json::from_str(&call.arguments).unwrap();
        messages.push(json!({"role": "assistant", "content": [{"type": "tool_use", "id": call.id, "name": call.name, "input": input}]}));
        messages.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}));
    } else {
        let function = json!({"name": call.name, "arguments": call.arguments});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [{"id": call.id, "type": "function", "function": function}]}));
        messages.push(json!({"role": "tool", "tool_call_id": call.id, "content": "rain"}));
    }
}

const PROVIDERS: [(&str, Api, Answers, bool); 3] = [
    ("gemini", Api::Chat, gemini, false),
    ("deepseek", Api::Chat, deepseek, false),
    ("claude", Api::Messages, claude, true),
];

#[tokio::test]
async fn a_session_whose_client_loses_what_its_provider_wants_goes_on() {
    for (name, spoken, answers, thinks) in PROVIDERS {
        for api in [Api::Chat, Api::Messages] {
            for stream in [false, true] {
                let told = format!("{name} {} stream {stream}", api.name());
                let mut two = Two::alone(spoken, answers, true).await;
                let (seen, _) = two.talk(api, stream, thinks).await;
                assert_eq!(seen.status(), 200, "{told}: {}", seen.text());
                assert!(seen.text().contains("It rains."), "{told}: {}", seen.text());
            }
        }
    }
}

#[tokio::test]
async fn the_same_session_is_dead_where_histories_pass_as_they_come() {
    for (name, spoken, answers, thinks) in PROVIDERS {
        let mut two = Two::alone(spoken, answers, false).await;
        let (seen, _) = two.talk(spoken, false, thinks).await;
        assert_eq!(seen.status(), 400, "{name}: {}", seen.text());
    }
}

#[tokio::test]
async fn a_fail_over_and_the_way_back_end_no_session() {
    let strict_one: (&str, Api, Answers, bool) = ("strict", Api::Chat, strict, false);
    let providers = PROVIDERS.into_iter().chain([strict_one]);
    for (name, spoken, answers, thinks) in providers.clone() {
        for (other, other_spoken, other_answers, _) in providers.clone() {
            if other == name {
                continue;
            }
            for api in [Api::Chat, Api::Messages] {
                let case = format!("{name}, then {other}, then {name}, for {}", api.name());
                let both = [(spoken, answers), (other_spoken, other_answers)];
                let mut two = Two::start(both, true).await;
                let (seen, mut request) = two.talk(api, false, thinks).await;
                assert_eq!(seen.status(), 200, "{case}: {}", seen.text());
                // The first one is unavailable for a turn with a call, and for the answer to its result.
                say(&mut request, "It rains.", "And in Basel?");
                for (first, served) in [(away as Answers, "second"), (answers, "llm")] {
                    two.answers[0] = first;
                    two.is_answered(api, &request, &case).await;
                    let last = two.harness.log.turns().pop().unwrap();
                    assert_eq!(last.served.upstream, served, "{case}");
                    if served == "second" {
                        go_on(&mut request, &two.last_call(), api);
                    }
                }
            }
        }
    }
}

/// Behaves like a server whose models number their calls from the start in each reply, and which requires the thinking
/// of that reply.
fn numbered(request: &Value) -> (u16, Value) {
    for (n, message) in assistants(request)
        .filter(|message| message.get("tool_calls").is_some())
        .enumerate()
    {
        if message["tool_calls"][0]["extra_content"] != json!({"n": n}) {
            return refused("Function call is missing a thought_signature in functionCall parts.");
        }
    }
    let n = calls(request).len();
    let call = json!({"id": "functions.weather:0", "extra_content": {"n": n}});
    completion(request, &json!({}), &call)
}

#[tokio::test]
async fn calls_of_one_id_are_told_apart_by_their_place() {
    let mut two = Two::alone(Api::Chat, numbered, true).await;
    let (seen, mut request) = two.talk(Api::Chat, false, false).await;
    assert_eq!(seen.status(), 200, "{}", seen.text());
    for n in ["first", "second", "third"] {
        say(&mut request, "It rains.", "And now?");
        two.is_answered(Api::Chat, &request, n).await;
        go_on(&mut request, &two.last_call(), Api::Chat);
        two.is_answered(Api::Chat, &request, n).await;
    }
}

#[tokio::test]
async fn a_history_that_lacks_nothing_passes_byte_for_byte() {
    fn never_mind(request: &Value) -> (u16, Value) {
        completion(request, &json!({}), &json!({}))
    }
    let mut two = Two::alone(Api::Chat, never_mind, true).await;
    let mut request = question(Api::Chat, false, false);
    two.ask(Api::Chat, &request).await;
    go_on(&mut request, &two.last_call(), Api::Chat);
    let body = request.to_string().replace("\"model\"", " \"model\"");
    let head = "x-session-id: s1\r\n";
    let (_client, exchange) = two.harness.ask(&post(Api::Chat.path(), head, &body)).await;
    assert_eq!(exchange.body(), body);
}

/// Behaves like DeepSeek with Anthropic's API: its thinking is not signed and comes unrequested.
fn deepseek_in_messages(request: &Value) -> (u16, Value) {
    let begins_with_thinking = |message: &Value| message["content"][0]["type"] == "thinking";
    if !assistants(request).all(begins_with_thinking) {
        return refused(
            "The `content[].thinking` in the thinking mode must be passed back to the API.",
        );
    }
    let (status, mut reply) =
        claude(&json!({"messages": [request["messages"].as_array().unwrap().last()]}));
    if reply["content"][0]["type"] == "thinking" {
        reply["content"][0]["signature"] = "".into();
    }
    (status, reply)
}

#[tokio::test]
async fn thinking_that_its_server_does_not_sign_is_put_back_too() {
    for (mends, status) in [(true, 200), (false, 400)] {
        let mut two = Two::alone(Api::Messages, deepseek_in_messages, mends).await;
        let (seen, mut request) = two.talk(Api::Messages, true, false).await;
        assert_eq!(seen.status(), status, "{}", seen.text());
        if mends {
            say(&mut request, "It rains.", "And in Basel?");
            two.is_answered(Api::Messages, &request, "the next").await;
        }
    }
}

/// Makes a conversation without calls, with unsigned thinking of one upstream.
fn unsigned(api: Api) -> Value {
    let mut request = question(api, false, false);
    let reply = if api == Api::Messages {
        let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": ""});
        json!({"role": "assistant", "content": [thought, {"type": "text", "text": "Where?"}]})
    } else {
        json!({"role": "assistant", "content": "Where?", "reasoning_content": "Hm."})
    };
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(reply);
    messages.push(json!({"role": "user", "content": "In Bern."}));
    request
}

#[tokio::test]
async fn thinking_without_a_call_ends_no_session() {
    let servers: [(Api, Answers); 2] = [(Api::Messages, claude), (Api::Chat, strict)];
    for (api, answers) in servers {
        let request = unsigned(api);
        let mut two = Two::alone(api, answers, false).await;
        assert_eq!(two.ask(api, &request).await.status(), 400);
        let mut two = Two::alone(api, answers, true).await;
        two.is_answered(api, &request, "mended").await;
        // The next request of this session is mended before it could be refused.
        let head = "x-session-id: s1\r\n";
        let request = post(api.path(), head, &request.to_string());
        let (_client, exchange) = two.harness.ask(&request).await;
        assert!(!exchange.body().contains("Hm."), "{}", exchange.body());
    }
}

#[tokio::test]
async fn what_one_model_of_a_server_wants_is_not_given_to_another() {
    fn by_model(request: &Value) -> (u16, Value) {
        if request["model"] == "strict" {
            strict(request)
        } else {
            gemini(request)
        }
    }
    let mut two = Two::alone(Api::Chat, by_model, true).await;
    let mut request = question(Api::Chat, false, false);
    let arguments = json!({"city": "Bern"}).to_string();
    let call = json!({"id": "c9", "type": "function", "function": {"name": "weather", "arguments": arguments}});
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": "c9", "content": "rain"}));
    for model in ["gemini", "strict", "gemini"] {
        request["model"] = model.into();
        two.is_answered(Api::Chat, &request, model).await;
    }
}

/// Behaves like OpenAI, which reads only its own reasoning.
fn openai(request: &Value) -> (u16, Value) {
    let input = request["input"].as_array().unwrap();
    let mut reasoning = input.iter().filter(|item| item["type"] == "reasoning");
    if reasoning.any(|item| item["encrypted_content"] != SIGNATURE) {
        return refused("The encrypted content for item rs_1 could not be verified.");
    }
    let said = json!({"type": "output_text", "text": "It rains.", "annotations": []});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]});
    (
        200,
        json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [message]}),
    )
}

#[tokio::test]
async fn reasoning_that_another_encrypted_ends_no_session() {
    let reasoning =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "dGhlaXJz"});
    let user = |text: &str| json!({"type": "message", "role": "user", "content": text});
    let said = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Where?"}]});
    let request = json!({"model": "m", "max_output_tokens": 99, "store": false, "input": [user("The weather?"), reasoning, said, user("In Bern.")]});
    for (mends, status) in [(true, 200), (false, 400)] {
        let mut two = Two::alone(Api::Responses, openai, mends).await;
        let seen = two.ask(Api::Responses, &request).await;
        assert_eq!(seen.status(), status, "{}", seen.text());
    }
}

#[tokio::test]
async fn a_refusal_that_nothing_can_mend_is_told_at_once() {
    fn never_mind(_: &Value) -> (u16, Value) {
        refused("answered below")
    }
    let mut two = Two::alone(Api::Messages, never_mind, true).await;
    let mut request = question(Api::Messages, false, false);
    say(&mut request, "Where?", "In Bern.");
    let path = Api::Messages.path();
    let request = post(path, "x-session-id: s1\r\n", &request.to_string());
    let mut client = two.harness.sent(&request).await;
    let (_, body) = refused("messages.1.content.0: Invalid `signature` in `thinking` block");
    let refusal = reply("400 X", "", &body.to_string());
    two.harness.upstream.answer(&refusal).await;
    tokio::select! {
        seen = client.read() => assert_eq!(seen.status(), 400),
        exchange = two.harness.upstream.next() => panic!("asked again: {}", exchange.body()),
    }
}

/// Otherwise the log's flushes would delay the request, and the log cannot have anything of the session.
#[tokio::test]
async fn the_log_is_not_read_for_a_session_that_begins_with_another_ones_calls() {
    let n_read = |two: &Two| two.harness.log.n_replies_read.load(Ordering::Relaxed);
    let mut two = Two::alone(Api::Chat, gemini, true).await;
    let mut request = question(Api::Chat, false, false);
    let call =
        json!({"id": "c1", "function": {"name": "weather", "arguments": "{}"}, "type": "function"});
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": "c1", "content": "rain"}));
    for _ in 0..2 {
        two.ask_with("", Api::Chat, &request).await;
    }
    assert_eq!(n_read(&two), 0, "no name, no turns");
    two.ask(Api::Chat, &request).await;
    assert_eq!(n_read(&two), 1, "what has a name may have turns");
}
