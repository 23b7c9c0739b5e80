use super::*;
use crate::testing::TEMPLATE;
use serde_json::json;

fn render(source: &str, request: &RenderRequest<'_>) -> Result<String, RenderError> {
    let special = [("bos_token".to_owned(), "<s>".to_owned())].into();
    let none = ControlTokens::new([]).unwrap();
    let template = ChatTemplate::new(source, special).unwrap();
    template.render(request, &none).map(|(text, _)| text)
}

/// Renders these messages alone.
fn of_messages(source: &str, list: &Value) -> Result<String, RenderError> {
    let messages = list.as_array().unwrap();
    render(
        source,
        &RenderRequest {
            messages,
            ..RenderRequest::default()
        },
    )
}

/// The same with lessons, and with or without the beginning of a reply.
fn with_lessons(
    source: &str,
    list: &Value,
    append_system: Option<&str>,
    add_generation_prompt: bool,
) -> Result<String, RenderError> {
    let request = RenderRequest {
        messages: list.as_array().unwrap(),
        append_system,
        add_generation_prompt,
        ..RenderRequest::default()
    };
    render(source, &request)
}

#[test]
fn without_a_system_message_the_default_stands_and_lessons_follow_it() {
    let user = json!([{"role": "user", "content": "Hi"}]);
    let render = |lessons| with_lessons(TEMPLATE, &user, lessons, true).unwrap();
    let plain = render(None);
    let expected = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(plain, expected);
    let lessons = render(Some("Be short."));
    assert_eq!(lessons, plain.replace("Be kind.", "Be kind.\n\nBe short."));
}

#[test]
fn lessons_follow_the_clients_system_text() {
    let list = json!([{"role": "developer", "content": "Speak Dutch."}, {"role": "user", "content": "Hi"}]);
    let text = with_lessons(TEMPLATE, &list, Some("Be short."), false).unwrap();
    let begins = "<|im_start|>system\nSpeak Dutch.\n\nBe short.<|im_end|>";
    assert!(text.starts_with(begins), "{text}");
}

#[test]
fn a_template_without_a_default_gets_the_lessons_alone() {
    let source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    let template = ChatTemplate::new(source, BTreeMap::new()).unwrap();
    assert_eq!(template.default_system(), None);
    let user = json!([{"role": "user", "content": "Hi"}]);
    let text = with_lessons(source, &user, Some("S"), false).unwrap();
    assert_eq!(text, "[system]S[user]Hi");
}

#[test]
fn parts_are_joined_and_other_kinds_are_refused_by_name() {
    let source = "{{ bos_token }}{{ messages[0].content + '.' }}";
    let of = |content: Value| of_messages(source, &json!([{"role": "user", "content": content}]));
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(of(parts).unwrap(), "<s>ab.");
    assert_eq!(of(Value::Null).unwrap(), "<s>.");
    let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    insta::assert_snapshot!(of(image).unwrap_err(), @"messages[0].content is a part of type image_url, allowed: text, or a list of text parts (this model reads text only)");
}

#[test]
fn python_methods_tools_and_arguments_work() {
    let source = "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}\
        {% for m in messages %}{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}{{ k.upper() }}={{ v }}{% endfor %}{% endfor %}{{ m['content'].strip().split('|')[-1] }}{% endfor %}";
    let list = json!([
        {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
        {"role": "tool", "content": " a|b "},
    ]);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let request = RenderRequest {
        messages: list.as_array().unwrap(),
        tools: Some(&tools),
        ..RenderRequest::default()
    };
    let expected = r#"{"type": "function", "function": {"name": "f"}}X=1b"#;
    assert_eq!(render(source, &request).unwrap(), expected);
}

#[test]
fn a_refusal_comes_in_the_templates_own_words() {
    let source = "{{ raise_exception('roles must alternate') }}";
    let error = render(source, &RenderRequest::default()).unwrap_err();
    assert!(matches!(error, RenderError::Refused { .. }));
    assert!(error.to_string().ends_with("roles must alternate"));
    let error = render("{{ messages.no.such }}", &RenderRequest::default()).unwrap_err();
    assert!(matches!(error, RenderError::Failed(_)), "{error}");
    let error = ChatTemplate::new("{% if %}", BTreeMap::new()).unwrap_err();
    assert!(error.contains("line 1"), "{error}");
}

#[test]
fn blocks_are_trimmed_as_transformers_trims_them() {
    let source = "{% if true %}\n  a\n{% endif %}\n  {%- generation -%} b {%- endgeneration -%}\n";
    assert_eq!(render(source, &RenderRequest::default()).unwrap(), "  a\nb");
}

/// Constructs of Jinja and Python from templates of all families, and the results of `transformers` 5.23
/// (`render_jinja_template` with `bos_token="<s>"`, `enable_thinking=False`).
#[test]
fn constructs_of_templates_render_as_in_transformers() {
    let input: Value = serde_json::from_str(include_str!("testdata/constructs.json")).unwrap();
    let extra = json!({"enable_thinking": false});
    let request = RenderRequest {
        messages: input["messages"].as_array().unwrap(),
        tools: Some(&input["tools"]),
        add_generation_prompt: true,
        extra: extra.as_object(),
        ..RenderRequest::default()
    };
    let text = render(include_str!("testdata/constructs.jinja"), &request).unwrap();
    assert_eq!(text, include_str!("testdata/constructs.txt"));
}

/// A model's file may bring any template, and it runs while the model is loaded and for each request.
#[test]
fn a_template_that_would_run_or_print_for_ever_is_ended_in_words() {
    const STEPS: &str = "too many steps";
    const TEXT: &str = "more than 128 MiB";
    let twice = "{% set x %}{{ x }}{{ x }}{% endset %}".repeat(40);
    let loops = "{% for a in range(9999) %}".repeat(3);
    let ends = "{% endfor %}".repeat(3);
    for (source, expected) in [
        (format!("{loops}{ends}"), STEPS),
        (format!("{loops}{}{ends}", "some text ".repeat(99)), TEXT),
        (format!("{loops}{{{{ messages }}}}{ends}"), STEPS),
        (format!("{{% set x %}}{loops}{}{ends}{{% endset %}}", "some text ".repeat(999)), STEPS),
        (format!("{{% macro f() %}}{loops}{ends}{{% endmacro %}}{{{{ f() }}}}"), STEPS),
        ("{% macro f(n) %}{% for x in range(n) %}{{ f(n - 1) }}{% endfor %}{% endmacro %}{{ f(30) }}".to_owned(), STEPS),
        (format!("{{% set x = 'word' %}}{twice}{{{{ x }}}}"), TEXT),
        ("{% set x = 'a' * 99999 %}{{ x | replace('a', x) }}".to_owned(), TEXT),
        ("{% set x = 'a' * 99999 %}{{ x.replace('a', x) }}".to_owned(), TEXT),
        ("{{ 'a' * 99999999 }}{{ 'a' * 99999999 }}".to_owned(), TEXT),
        ("{{ 'a' * 9999999999 }}".to_owned(), "too large"),
        ("{% include 'chat' %}".to_owned(), "include"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned(), "recursion"),
    ] {
        let error = render(&source, &RenderRequest::default()).unwrap_err();
        assert!(matches!(error, RenderError::Failed(_)), "{source:.60}: {error}");
        let text = error.to_string();
        assert!(text.contains(expected), "{source:.60}: {text}");
    }
    let message = json!({"role": "user", "content": "word ".repeat(9)});
    let long = json!(vec![message; 1000]);
    let each =
        "{% for a in messages %}{% for b in messages %}{% endfor %}{{ a.content }}{% endfor %}";
    assert_eq!(of_messages(each, &long).unwrap().len(), 1000 * 45);
}

/// Templates, most of one expression, and what `transformers` renders them to; `trainer/text/golden/jinja.py` writes
/// them. Null stands for a failure. A third value is ours, where it differs.
#[test]
fn every_row_of_jinja_renders_as_in_python() {
    let table: Value = serde_json::from_str(include_str!("testdata/jinja.json")).unwrap();
    let input = table["input"].as_object().unwrap();
    let mut context: BTreeMap<&str, Jinja> = BTreeMap::new();
    for (name, value) in input {
        context.insert(name, Jinja::from(Serde(value)));
    }
    let mut wrong = Vec::new();
    for row in table["rows"].as_array().unwrap() {
        let source = row[0].as_str().unwrap();
        let ours = ChatTemplate::new(source, BTreeMap::new()).and_then(|template| {
            let template = template.environment.get_template(NAME).unwrap();
            let text = template.render(Jinja::from_pairs(context.clone()));
            text.map_err(|error| describe(&error))
        });
        let expected = row.get(2).unwrap_or(&row[1]);
        if ours.as_deref().ok() != expected.as_str() {
            wrong.push(format!("{source:?}: {ours:?} and not {expected}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Conversations, and what `transformers` renders them to by templates like Qwen3.5's and Gemma 4's; null stands for a
/// refusal. `trainer/text/golden/conversations.py` writes them. `METACLAW_TEST_CONVERSATIONS` names what it wrote of
/// another template.
#[test]
fn conversations_render_as_in_transformers() {
    let qwen = include_str!("../tokenizer/testdata/qwen35.jinja");
    let gemma = include_str!("../tokenizer/testdata/gemma4.jinja");
    let mut tables = vec![
        (qwen, include_str!("testdata/qwen35.json").to_owned()),
        (gemma, include_str!("testdata/gemma4.json").to_owned()),
    ];
    if let Some(file) = std::env::var_os("METACLAW_TEST_CONVERSATIONS") {
        tables = vec![("", std::fs::read_to_string(file).unwrap())];
    }
    for (own, text) in tables {
        let table: Value = serde_json::from_str(&text).unwrap();
        compare(table["template"].as_str().unwrap_or(own), &table["rows"]);
    }
}

fn compare(source: &str, rows: &Value) {
    let rows = rows.as_array().unwrap();
    let mut wrong = Vec::new();
    for row in rows {
        let request = RenderRequest {
            messages: row["messages"].as_array().unwrap(),
            tools: Some(&row["tools"]).filter(|tools| !tools.is_null()),
            add_generation_prompt: true,
            extra: row["variables"].as_object(),
            ..RenderRequest::default()
        };
        let ours = render(source, &request);
        if ours.as_deref().ok() != row["text"].as_str() {
            wrong.push(format!(
                "{}: {ours:?} and not {}",
                row["messages"], row["text"]
            ));
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "of {}", rows.len());
    println!("{} conversations", rows.len());
}

/// A template like Gemma 4's first one, which knows results of tools only beside their calls.
#[test]
fn results_of_tools_come_with_their_calls_where_a_template_reads_them_there() {
    let source = "{% for m in messages %}<{{ m.role }}{% for c in m.tool_calls or [] %}|{{ c.function.name }}{% endfor %}\
        {% for r in m.tool_responses or [] %}|{{ r.name }}={{ r.response }}{% endfor %}|{{ m.content }}>{% endfor %}";
    let call =
        |id: &str, name: &str| json!({"id": id, "function": {"name": name, "arguments": "{}"}});
    let result =
        |id: &str, content: &str| json!({"role": "tool", "tool_call_id": id, "content": content});
    let list = json!([
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": null, "tool_calls": [call("a", "f"), call("b", "g")]},
        result("b", "2"), result("no", "?"), result("c", "more"),
        {"role": "assistant", "content": null, "tool_calls": [call("a", "h")]},
        result("a", "3"),
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Really."},
        {"role": "tool", "content": "lone"},
    ]);
    let expected = "<user|Q><assistant|f|g|g=2|g=?|unknown=more|><assistant|h|h=3|Done.><assistant|Really.><tool|lone>";
    assert_eq!(of_messages(source, &list).unwrap(), expected);
    // Google's later ones read both.
    let both = source.replace("{% for m in messages %}", "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}")
        .replace("|{{ m.content }}", "{% for r in messages[loop.index:] if m.tool_calls and r.role == 'tool' and not m.tool_responses %}|{{ (m.tool_calls | first).function.name }}={{ r.content }}{% endfor %}|{{ m.content }}");
    let takes = |source: &str| {
        let template = ChatTemplate::new(source, BTreeMap::new());
        template.unwrap().takes_results_with_calls
    };
    assert_eq!(
        [takes(source), takes(&both), takes(ITEMS)],
        [true, false, false]
    );
}

/// The template resembles Gemma 3's, which has no system turn: the system prompt comes at the beginning of the first
/// user turn. The expected texts are those of `transformers` 5.19.
#[test]
fn a_template_without_a_system_turn_puts_its_text_before_the_first_users() {
    let source = include_str!("testdata/gemma.jinja");
    let of = |list: &Value, lessons, open| with_lessons(source, list, lessons, open);
    let dutch = json!([
        {"role": "system", "content": [{"type": "text", "text": "Speak Dutch."}]},
        {"role": "user", "content": " Hi \n"},
        {"role": "assistant", "content": "Hoi!"},
        {"role": "user", "content": "Bye"},
    ]);
    let text = of(&dutch, None, true).unwrap();
    let expected = "<s><start_of_turn>user\nSpeak Dutch.\n\nHi<end_of_turn>\n<start_of_turn>model\nHoi!<end_of_turn>\n\
        <start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n";
    assert_eq!(text, expected);
    let lessons = of(&dutch, Some("Be short."), true).unwrap();
    let expected = expected.replace("Dutch.\n\n", "Dutch.\n\nBe short.\n\n");
    assert_eq!(lessons, expected);
    let user = json!([{"role": "user", "content": "Hi"}]);
    let alone = of(&user, None, false).unwrap();
    assert_eq!(alone, "<s><start_of_turn>user\nHi<end_of_turn>\n");
    let lessons = of(&user, Some("Be short."), false).unwrap();
    assert_eq!(lessons, alone.replace("Hi", "Be short.\n\nHi"));
    // Lessons replace no default, because there is none.
    let template = ChatTemplate::new(source, BTreeMap::new()).unwrap();
    assert_eq!(template.default_system(), None);
    let twice = json!([{"role": "user", "content": "Hi"}, {"role": "user", "content": "there"}]);
    let refused = of(&twice, None, false).unwrap_err().to_string();
    let words = "user and assistant must take turns";
    assert!(refused.contains(words), "{refused}");
}

/// A template that resembles Qwen's coder models, over calls of an assistant's message.
const ITEMS: &str = "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set c = c.function if c.function is defined else c %}[{{ c.name }}\
    {% for k, v in c.arguments|items %} {{ k }}={{ v if v is string else v|tojson }}{% endfor %}]{% endfor %}{% endfor %}";

fn calls(source: &str, message: &Value) -> String {
    of_messages(source, &json!([message])).unwrap()
}

#[test]
fn whatever_the_history_holds_for_arguments_a_template_gets_an_object() {
    let object = json!({"zone": "CET"});
    let text = object.to_string();
    let twice = json!(text).to_string();
    for (arguments, expected) in [
        (object.clone(), "[f zone=CET]"),
        (json!(text), "[f zone=CET]"),
        (json!(twice), "[f zone=CET]"),
        (json!(json!(twice).to_string()), "[f zone=CET]"),
        (json!(""), "[f]"),
        (json!(" \n"), "[f]"),
        (json!("null"), "[f]"),
        (json!("\"\""), "[f]"),
        (Value::Null, "[f]"),
        (json!("{\"zone\": \"CE"), "[f INVALID_JSON={\"zone\": \"CE]"),
        (json!("CET"), "[f INVALID_JSON=CET]"),
        (json!("[1]"), "[f INVALID_JSON=[1]]"),
        (json!([1]), "[f INVALID_JSON=[1]]"),
        (json!("7"), "[f INVALID_JSON=7]"),
        (json!(true), "[f INVALID_JSON=true]"),
    ] {
        let function = json!({"name": "f", "arguments": arguments});
        let call = json!({"id": "c", "type": "function", "function": function});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        assert_eq!(calls(ITEMS, &message), expected, "{arguments}");
        let flat = json!({"role": "assistant", "tool_calls": [function]});
        assert_eq!(calls(ITEMS, &flat), expected, "{arguments}, flat");
    }
}

#[test]
fn calls_of_other_shapes_are_given_as_templates_know_them() {
    let one = |call: Value| {
        let message = json!({"role": "assistant", "content": "", "tool_calls": [call]});
        calls(ITEMS, &message)
    };
    assert_eq!(one(json!({"function": {"name": "f"}})), "[f]");
    let custom = json!({"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}});
    assert_eq!(one(custom), "[sh input=ls]");
    let older =
        "{% for k, v in messages[0].function_call.arguments|items %}{{ k }}={{ v }}{% endfor %}";
    let function = json!({"name": "f", "arguments": "{\"a\": 1}"});
    let message = json!({"role": "assistant", "content": null, "function_call": function});
    assert_eq!(calls(older, &message), "a=1");
    let counted = "{% if messages[0].tool_calls is defined %}{{ messages[0].tool_calls|length }}{% else %}none{% endif %}";
    for nothing in [Value::Null, json!([])] {
        let message = json!({"role": "assistant", "content": "x", "tool_calls": nothing});
        assert_eq!(calls(counted, &message), "none");
    }
}

/// A model may write `{"a":1}`, and the next prompt must contain exactly that.
#[test]
fn arguments_stay_as_they_were_written_where_a_template_takes_text() {
    const TAKES: &str = "{% for m in messages %}{% for call in m.tool_calls %}{{ call.function.name }}\
{% if call.function.arguments is string %}{{ call.function.arguments }}{% else %}{{ call.function.arguments | tojson }}{% endif %};\
{% endfor %}{% endfor %}";
    let call = |arguments: Value| json!({"function": {"name": "f", "arguments": arguments}});
    let text = json!("{\"a\":1,  \"b\": {}}");
    let calls = [
        text,
        json!({"a": 1}),
        json!("no object"),
        json!("[1]"),
        json!(""),
    ]
    .map(call);
    let expected = r#"f{"a":1,  "b": {}};f{"a": 1};f{"INVALID_JSON": "no object"};f{"INVALID_JSON": "[1]"};f{};"#;
    let list = json!([{"role": "assistant", "tool_calls": calls}]);
    assert_eq!(of_messages(TAKES, &list).unwrap(), expected);
}

#[test]
fn a_template_that_goes_over_arguments_by_name_gets_objects() {
    assert!(takes_text("{% if tool_call['arguments'] is  string %}"));
    assert!(!takes_text("{{ call.arguments | tojson }}"));
    for items in [" | items", ".items()", " | dictsort"] {
        let is_string = "{% if arguments is string %}{% endif %}";
        assert!(!takes_text(&format!(
            "{is_string}{{% for k, v in arguments{items} %}}"
        )));
    }
}

#[test]
fn a_late_system_message_is_the_users_where_the_template_takes_none() {
    let list = json!([
        {"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, {"role": "user", "content": "C"},
        {"role": "assistant", "content": "D"}, {"role": "system", "content": "E"}, {"role": "user", "content": "F"},
    ]);
    let plain = "{% for m in messages %}[{{ m.role }} {{ m.content }}]{% endfor %}";
    let refuses = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}[{{ m.role }} {{ m.content }}]{% endfor %}";
    let ignores = "{% for m in messages %}{% if m.role != 'system' or loop.first %}[{{ m.role }} {{ m.content }}]{% endif %}{% endfor %}";
    let ordered = "[system A\n\nB][user C][assistant D][user E\n\nF]";
    let kept = "[system A][system B][user C][assistant D][system E][user F]";
    for (source, expected) in [(plain, kept), (refuses, ordered), (ignores, ordered)] {
        let text = of_messages(source, &list).unwrap();
        assert_eq!(text, expected, "{source}");
    }
}
