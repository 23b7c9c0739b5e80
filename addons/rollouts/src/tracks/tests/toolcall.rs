//! The track `toolcall`.

use serde_json::{Value, json};

use super::{
    super::Track,
    scripted::{Scripted, needs_sandbox, run},
};

fn tools() -> Value {
    json!([{
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a day.",
            "parameters": {
                "type": "object",
                "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
                "required": ["city"],
                "additionalProperties": false,
            },
        },
    }])
}

fn weather(arguments: Value) -> Scripted {
    Scripted::Call("weather", arguments)
}

fn score_of(expected: f64, given: f64) {
    assert!((given - expected).abs() < 1e-9, "{given} is not {expected}");
}

#[tokio::test]
async fn calls_are_checked_by_schema_answered_by_the_task_and_scored() {
    let task = json!({
        "prompt": "How warm is it in Bern?",
        "tools": tools(),
        "replies": [
            { "name": "weather", "arguments": { "city": "Bern" }, "reply": { "degrees": 7 } },
            { "name": "weather", "reply": "unknown city" },
        ],
        "expect": { "calls": [{ "name": "weather", "arguments": { "city": "Bern", "days": { "one_of": [0, null] } } }], "answer": 7 },
    });
    let answer = || Scripted::Text("It is 7 degrees.".to_owned());
    let right = run(
        Track::Toolcall,
        &task,
        vec![weather(json!({ "city": "Bern" })), answer()],
    )
    .await;
    score_of(1.0, right.score());
    assert_eq!(right.shown(1), "{\"degrees\":7}");
    assert_eq!(right.requests[0]["tools"], tools());
    let wrong_city = vec![weather(json!({ "city": "Rome" })), answer()];
    let wrong_city = run(Track::Toolcall, &task, wrong_city).await;
    score_of(0.0, wrong_city.score());
    assert_eq!(wrong_city.shown(1), "unknown city");
    let invalid = vec![
        weather(json!({ "town": "Bern" })),
        weather(json!({ "city": "Bern" })),
        answer(),
    ];
    let invalid = run(Track::Toolcall, &task, invalid).await;
    score_of(0.0, invalid.score());
    assert_eq!(
        invalid.shown(1),
        "{\"error\":\"arguments.city is missing\"}"
    );
    let guessed = run(Track::Toolcall, &task, vec![answer()]).await;
    score_of(0.0, guessed.score());
}

#[tokio::test]
async fn invalid_calls_cost_step_rewards_where_the_task_says_so() {
    let task = json!({
        "prompt": "x",
        "tools": tools(),
        "expect": { "calls": [{ "name": "weather", "arguments": { "city": "Bern" } }], "extra": true },
        "invalid_call_reward": -0.5,
    });
    let script = vec![
        weather(json!({})),
        weather(json!({ "city": "Bern" })),
        Scripted::done(),
    ];
    let done = run(Track::Toolcall, &task, script).await;
    assert_eq!(
        done.reward.unwrap(),
        json!({ "score": 1.0, "steps": [-0.5, 0.0, 0.0] })
    );
}

#[tokio::test]
async fn a_python_tool_runs_in_the_sandbox_within_its_limits() {
    needs_sandbox!();
    let python = |code: &str| Scripted::Call("python", json!({ "code": code }));
    let task = json!({
        "prompt": "What is 2 to the power of 70?",
        "python": true,
        "expect": { "answer": 1_180_591_620_717_411_303_424_u128 as f64 },
        "command_timeout_s": 2,
        "max_output": 100,
        "sandbox": { "memory_mb": 200 },
    });
    let script = vec![
        python("import os; print(os.getuid(), os.listdir('/work'))"),
        python("x = bytearray(1 << 30)"),
        python("while True: pass"),
        python("print('a' * 1000)"),
        python("open('/etc/x', 'w')"),
        python("print(2 ** 70)"),
        Scripted::Text("It is 1180591620717411303424.".to_owned()),
    ];
    let done = run(Track::Toolcall, &task, script).await;
    score_of(1.0, done.score());
    assert_eq!(done.requests[0]["tools"][0]["function"]["name"], "python");
    assert_eq!(done.shown(1), "1000 []");
    assert!(done.shown(2).contains("MemoryError"), "{}", done.shown(2));
    assert!(
        done.shown(3).starts_with("[killed after 2 s"),
        "{}",
        done.shown(3)
    );
    assert!(
        done.shown(4).contains("[901 bytes left out]"),
        "{}",
        done.shown(4)
    );
    assert!(
        done.shown(5).contains("Read-only file system"),
        "{}",
        done.shown(5)
    );
    assert_eq!(done.shown(6), "1180591620717411303424");
}

#[tokio::test]
async fn a_task_that_cannot_be_used_is_refused_before_the_model_is_asked() {
    let weather_call = json!({ "calls": [{ "name": "weather" }] });
    for (task, expected) in [
        (
            json!({ "prompt": "x", "tools": tools() }),
            "missing field `expect`",
        ),
        (
            json!({ "prompt": "x", "tools": tools(), "expect": {} }),
            "expect needs calls, an answer, or both",
        ),
        (
            json!({ "prompt": "x", "expect": weather_call }),
            "there is no tool \"weather\" in tools",
        ),
        (
            json!({ "prompt": "x", "tools": "no.json", "expect": { "answer": 1 } }),
            "no.json: No such file",
        ),
        (
            json!({ "prompt": "x", "tools": [{ "type": "web" }], "expect": { "answer": 1 } }),
            "tools[0].type \"web\"",
        ),
        (
            json!({ "prompt": "x", "tools": tools(), "expect": { "answer": 1 }, "replies": [{ "name": "y", "reply": 1 }] }),
            "replies: there is no tool \"y\"",
        ),
        (
            json!({ "prompt": "x", "expect": { "answer": 1 }, "invalid_call_reward": 1 }),
            "invalid_call_reward 1",
        ),
    ] {
        let done = run(Track::Toolcall, &task, vec![Scripted::done()]).await;
        let words = done.result.unwrap_err().to_string();
        assert!(words.contains(expected), "{words}");
        assert_eq!(done.requests.len(), 0);
    }
}

#[tokio::test]
async fn a_server_that_asks_for_an_endless_wait_is_not_waited_for() {
    let task = json!({ "prompt": "x", "expect": { "answer": 1 } });
    let done = run(Track::Toolcall, &task, vec![Scripted::Busy("1e19")]).await;
    let words = done.result.unwrap_err().to_string();
    assert!(words.ends_with("503 Service Unavailable: busy"), "{words}");
    assert_eq!(done.requests.len(), 1);
}

#[tokio::test]
async fn earlier_exchanges_stand_between_the_system_prompt_and_the_task() {
    let task = json!({
        "system": "Call one tool.",
        "earlier": [{ "user": "Rain in Rome?", "assistant": "<tool_call>{}</tool_call>" }],
        "prompt": "How warm is it in Bern?",
        "tools": tools(),
        "max_turns": 1,
        "expect": { "calls": [{ "name": "weather", "arguments": { "city": "Bern" } }] },
    });
    let replies = vec![weather(json!({ "city": "Bern" }))];
    let ended = run(Track::Toolcall, &task, replies).await;
    score_of(1.0, ended.score());
    let expected = json!([
        { "role": "system", "content": "Call one tool." },
        { "role": "user", "content": "Rain in Rome?" },
        { "role": "assistant", "content": "<tool_call>{}</tool_call>" },
        { "role": "user", "content": "How warm is it in Bern?" },
    ]);
    assert_eq!(ended.requests[0]["messages"], expected);
}
