use metaclaw_trainer_terms::SamplingParams;
use serde_json::json;

use super::*;

fn check(more: &Value) -> Result<CompletionRequest, ApiError> {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    let into = body.as_object_mut().unwrap();
    into.extend(more.as_object().unwrap().clone());
    json::read::<ChatBody>(body.to_string().as_bytes())?.check()
}

#[test]
fn what_is_not_said_has_the_policys_defaults() {
    let request = check(&json!({"stream": null, "stop": null, "tools": []})).unwrap();
    let sampling = SamplingParams {
        temperature: 0.7,
        top_p: 1.0,
        top_k: 0,
        ..SamplingParams::default()
    };
    let draw = SamplerRequest {
        sampling,
        max_tokens: usize::MAX,
        ..SamplerRequest::default()
    };
    assert_eq!(request.draw, draw);
    assert_eq!(request.conversation.tools, None);
    assert!(request.conversation.variables.is_empty());
    assert!(!request.form.stream);
}

#[test]
fn every_way_to_draw_reaches_the_engine() {
    let request = check(&json!({
        "temperature": 1, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1,
        "presence_penalty": 0.5, "frequency_penalty": -0.5, "seed": 7, "stop": ["x"],
        "stop_token_ids": [5], "ignore_eos": true, "min_tokens": 2, "max_tokens": 9,
        "logprobs": true, "top_logprobs": 4, "n": 3,
    }));
    let request = request.unwrap();
    let sampling = SamplingParams {
        temperature: 1.0,
        top_p: 0.5,
        top_k: 3,
        min_p: 0.1,
        repetition_penalty: 1.1,
        presence_penalty: 0.5,
        frequency_penalty: -0.5,
        min_tokens: 2,
        top_logprobs: 4,
    };
    assert_eq!(
        request.draw,
        SamplerRequest {
            prompt_ids: vec![],
            adapter: None,
            n: 3,
            max_tokens: 9,
            sampling,
            seed: Some(7),
            stop: vec!["x".to_owned()],
            stop_token_ids: vec![5],
            ignore_eos: true,
        }
    );
    assert!(request.form.logprobs);
}

#[test]
fn the_newer_name_of_a_limit_wins() {
    let request = check(&json!({"max_tokens": 5, "max_completion_tokens": 7})).unwrap();
    assert_eq!(request.draw.max_tokens, 7);
}

#[test]
fn no_tools_are_shown_where_none_may_be_called() {
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let shown = |choice: &str| {
        let more = json!({"tools": tools, "tool_choice": choice});
        check(&more).unwrap().conversation.tools
    };
    assert_eq!(shown("none"), None);
    assert_eq!(shown("auto"), Some(tools.clone()));
}

#[test]
fn what_cannot_be_done_is_refused_by_field() {
    let bad = [
        json!({"n": 0}),
        json!({"n": 17}),
        json!({"temperature": "hot"}),
        json!({"top_k": -2}),
        json!({"max_tokens": 0}),
        json!({"max_completion_tokens": -1}),
        json!({"max_tokens": -1}),
        json!({"max_tokens": 1.5}),
        json!({"max_tokens": "many"}),
        json!({"n": -1}),
        json!({"n": 2.5}),
        json!({"min_tokens": -3}),
        json!({"seed": "x"}),
        json!({"stream": "yes"}),
        json!({"stream_options": []}),
        json!({"logprobs": true, "top_logprobs": -1}),
        json!({"stop": 7}),
        json!({"stop": vec!["x"; 17]}),
        json!({"top_logprobs": 3}),
        json!({"stop_token_ids": [-1]}),
        json!({"response_format": {"type": "json_object"}}),
        json!({"response_format": {"type": "json_schema", "json_schema": {}}}),
        json!({"tools": "all"}),
        json!({"tool_choice": "required"}),
        json!({"tool_choice": {"type": "function", "function": {"name": "look"}}}),
        json!({"stream_options": {"continuous_usage_stats": true}}),
        json!({"thinking": {"type": "sometimes"}}),
        json!({"reasoning": {"max_tokens": 100}}),
        json!({"messages": "hi"}),
    ];
    let messages = bad.map(|more| check(&more).unwrap_err().to_string());
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn what_another_server_may_do_has_a_code_that_says_so() {
    let code = |more: Value| {
        let refused = check(&more).unwrap_err().body().error;
        let code = refused.code.map(String::from);
        format!(
            "{more}: {} {}",
            refused.param.unwrap_or_default(),
            code.as_deref().unwrap_or("-")
        )
    };
    let codes = [
        json!({"n": 17}),
        json!({"n": 0}),
        json!({"stop": vec!["x"; 17]}),
        json!({"tool_choice": "required"}),
        json!({"response_format": {"type": "json_object"}}),
        json!({"parallel_tool_calls": false}),
        json!({"logit_bias": {"7": -100}}),
        json!({"modalities": ["text", "audio"]}),
        json!({"reasoning_effort": "boundless"}),
        json!({"thinking": {"type": "adaptive"}}),
        json!({"tomorrow": 1}),
        json!({"stream_options": {"tomorrow": 1}}),
        json!({"messages": [{"role": "critic", "content": "x"}]}),
        json!({"max_tokens": 0}),
        json!({"temperature": "hot"}),
    ];
    insta::assert_snapshot!(codes.map(code).join("\n"), @r#"
    {"n":17}: n unsupported_value
    {"n":0}: n -
    {"stop":["x","x","x","x","x","x","x","x","x","x","x","x","x","x","x","x","x"]}: stop unsupported_value
    {"tool_choice":"required"}: tool_choice unsupported_value
    {"response_format":{"type":"json_object"}}: response_format.type unsupported_value
    {"parallel_tool_calls":false}: parallel_tool_calls unsupported_parameter
    {"logit_bias":{"7":-100}}: logit_bias unsupported_parameter
    {"modalities":["text","audio"]}: modalities unsupported_parameter
    {"reasoning_effort":"boundless"}: reasoning_effort unsupported_value
    {"thinking":{"type":"adaptive"}}: thinking.type unsupported_value
    {"tomorrow":1}: tomorrow unknown_parameter
    {"stream_options":{"tomorrow":1}}: stream_options.tomorrow unknown_parameter
    {"messages":[{"role":"critic","content":"x"}]}: messages[0].role unsupported_value
    {"max_tokens":0}: max_tokens -
    {"temperature":"hot"}: temperature -
    "#);
}
