//! Every format: what is set is read, what is beside it stays, and taken back all is as it was.

use proptest::{prelude::*, sample::select};
use serde_json::json;

use super::*;
use crate::keys::{self, KeyToSet, Reverted, ValueToSet};

fn path(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn is(names: &[&str], value: &str) -> KeyToSet {
    let value = ValueToSet::Is(json!(value));
    KeyToSet {
        path: path(names),
        value,
    }
}

fn set(format: Format, text: &str, at: &[&str], value: impl Into<Value>) -> String {
    format.set(text, &path(at), &value.into()).unwrap()
}

fn removed(format: Format, text: &str, at: &[&str]) -> String {
    format.remove(text, &path(at)).unwrap()
}

const JSONC: &str = r#"{
  // mine
  "model": "anthropic/claude", /* the good one */
  "provider": {
    "anthropic": { "options": {}, },
  },
}
"#;

#[test]
fn json_with_comments() {
    let text = set(Format::Json, JSONC, &["model"], json!("metaclaw/m"));
    let text = set(
        Format::Json,
        &text,
        &["provider", "metaclaw"],
        json!({"npm": "x"}),
    );
    insta::assert_snapshot!(text, @r#"
    {
      // mine
      "model": "metaclaw/m", /* the good one */
      "provider": {
        "anthropic": { "options": {}, },
        "metaclaw": {
          "npm": "x",
        },
      },
    }
    "#);
    let text = removed(Format::Json, &text, &["provider", "metaclaw"]);
    assert_eq!(
        set(Format::Json, &text, &["model"], json!("anthropic/claude")),
        JSONC
    );
}

#[test]
fn an_object_in_one_line_stays_in_one_line() {
    for (text, expected) in [
        (r#"{"env": {"A": "1"}}"#, r#"{"env": {"A": "1", "B": "2"}}"#),
        (
            r#"{ "env": { "A": "{}", } }"#,
            r#"{ "env": { "A": "{}", "B": "2" } }"#,
        ),
    ] {
        let set = set(Format::Json, text, &["env", "B"], json!("2"));
        assert_eq!(set, expected);
        assert!(!removed(Format::Json, &set, &["env", "B"]).contains('\n'));
    }
    for text in ["{/* u */}/* u */", r#"{"A": 1, /* u */}"#] {
        let set = set(Format::Json, text, &["B"], json!("2"));
        assert_eq!(Format::Json.values(&set).unwrap()["B"], "2", "{set}");
    }
}

const TOML: &str = r#"# mine
model = "gpt-5.5" # the good one
approval_policy = "never"

[model_providers.work] # theirs
base_url = "https://work.example/v1"

[mcp_servers]
"#;

#[test]
fn toml() {
    let provider = json!({"name": "MetaClaw", "http_headers": {"X-Agent-Id": "codex"}});
    let text = set(Format::Toml, TOML, &["model"], json!("m"));
    let text = set(Format::Toml, &text, &["model_provider"], json!("metaclaw"));
    let text = set(
        Format::Toml,
        &text,
        &["model_providers", "metaclaw"],
        provider,
    );
    insta::assert_snapshot!(text, @r#"
    # mine
    model = "m" # the good one
    approval_policy = "never"
    model_provider = "metaclaw"

    [model_providers.work] # theirs
    base_url = "https://work.example/v1"

    [model_providers.metaclaw]
    name = "MetaClaw"
    http_headers = { X-Agent-Id = "codex" }

    [mcp_servers]
    "#);
    let text = removed(Format::Toml, &text, &["model_providers", "metaclaw"]);
    let text = removed(Format::Toml, &text, &["model_provider"]);
    assert_eq!(set(Format::Toml, &text, &["model"], json!("gpt-5.5")), TOML);
}

const YAML: &str = "\
# mine
model:   # the good one
  default: \"claude\"
  provider: anthropic # theirs

  # below
fallback_providers:
- provider: openrouter
  model: x
agent: {max_turns: 90, tools: [a, b]}
empty:
";

#[test]
fn yaml() {
    let text = set(Format::Yaml, YAML, &["model", "default"], json!("m: #1"));
    let text = set(
        Format::Yaml,
        &text,
        &["model", "default_headers", "X-Agent-Id"],
        json!("hermes"),
    );
    let text = set(Format::Yaml, &text, &["agent", "more"], json!(1));
    let text = set(Format::Yaml, &text, &["empty", "no", "more"], json!(true));
    let text = set(Format::Yaml, &text, &["new"], json!([1]));
    let next = json!({"provider": "anthropic", "model": "claude"});
    let text = Format::Yaml
        .insert(&text, &path(&["fallback_providers"]), &next)
        .unwrap();
    let text = Format::Yaml
        .insert(&text, &path(&["agent", "tools"]), &json!("c"))
        .unwrap();
    insta::assert_snapshot!(text, @r#"
    # mine
    model:   # the good one
      default: "m: #1"
      provider: anthropic # theirs
      default_headers: {"X-Agent-Id":"hermes"}

      # below
    fallback_providers:
    - {"provider":"anthropic","model":"claude"}
    - provider: openrouter
      model: x
    agent: {max_turns: 90, tools: ["c", a, b], more: 1}
    empty: {"no":{"more":true}}
    new: [1]
    "#);
    let text = Format::Yaml
        .remove_item(&text, &path(&["fallback_providers"]), 0)
        .unwrap();
    let text = Format::Yaml
        .remove_item(&text, &path(&["agent", "tools"]), 0)
        .unwrap();
    let text = removed(Format::Yaml, &text, &["new"]);
    let text = removed(Format::Yaml, &text, &["agent", "more"]);
    let text = removed(Format::Yaml, &text, &["model", "default_headers"]);
    let text = set(Format::Yaml, &text, &["model", "default"], json!("claude"));
    let text = set(Format::Yaml, &text, &["empty"], Value::Null);
    assert_eq!(text.replace("empty: null", "empty:"), YAML);
}

#[test]
fn a_list_at_the_top_of_a_yaml_file() {
    let item = json!({"model_id": "metaclaw"});
    for (before, after) in [
        ("", "[{\"model_id\":\"metaclaw\"}]\n"),
        (
            "# none yet\n",
            "# none yet\n[{\"model_id\":\"metaclaw\"}]\n",
        ),
        (
            "- model_id: a\n  x: 1\n- b\n",
            "- {\"model_id\":\"metaclaw\"}\n- model_id: a\n  x: 1\n- b\n",
        ),
    ] {
        let text = Format::Yaml.insert(before, &[], &item).unwrap();
        assert_eq!(text, after);
    }
}

#[test]
fn env() {
    let text =
        "# mine\nexport LLM_MODEL='a b' # c\nEMPTY=   # nothing\n  LLM_BASE_URL = x\nNOT A LINE\n";
    let values = json!({"LLM_MODEL": "a b", "EMPTY": "", "LLM_BASE_URL": "x"});
    assert_eq!(Format::Env.values(text).unwrap(), values);
    let after = set(Format::Env, text, &["LLM_MODEL"], json!("m \"1\""));
    let after = set(Format::Env, &after, &["LLM_API_KEY"], json!("sk-1"));
    let wanted = "# mine\nexport LLM_MODEL=\"m \\\"1\\\"\"\nEMPTY=   # nothing\n  LLM_BASE_URL = x\nNOT A LINE\nLLM_API_KEY=sk-1\n";
    assert_eq!(after, wanted);
    assert_eq!(Format::Env.values(&after).unwrap()["LLM_MODEL"], "m \"1\"");
    assert_eq!(
        Format::Env.values("A=1\nA=2\n").unwrap_err().to_string(),
        "A stands twice"
    );
}

#[test]
fn line_ends_and_a_byte_order_mark_stay() {
    let text = "\u{feff}model: a\r\nother: b\r\n";
    let after = set(Format::Yaml, text, &["model"], json!("m"));
    assert_eq!(after, "\u{feff}model: \"m\"\r\nother: b\r\n");
    let text = "model = 'a'\r\n\r\n[t]\r\nx = 1\r\n";
    let after = set(Format::Toml, text, &["t", "y"], json!(2));
    assert_eq!(after, "model = 'a'\r\n\r\n[t]\r\nx = 1\r\ny = 2\r\n");
}

#[test]
fn what_is_beyond_an_editor_is_refused() {
    let refusal = |format: Format, text: &str, at: &[&str]| {
        format
            .set(text, &path(at), &json!("v"))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refusal(Format::Json, "{a: 1}", &["a", "b"]),
        "a.b is not an object"
    );
    assert!(refusal(Format::Json, "{a: ", &["b"]).contains("not JSON5"));
    assert!(refusal(Format::Toml, "a = \n", &["b"]).starts_with("it is not TOML: "));
    assert!(refusal(Format::Yaml, "a: [\n", &["b"]).starts_with("it is not YAML: "));
    assert_eq!(
        refusal(Format::Yaml, "a: 1\n---\nb: 2\n", &["b"])
            .lines()
            .count(),
        1
    );
    assert_eq!(
        refusal(Format::Yaml, "a: &x {b: 1}\nc: *x\n", &["c", "d"]),
        "c is not an object"
    );
}

/// Wishes of each kind, below names that the files may have.
fn keys_to_set(format: Format) -> Vec<KeyToSet> {
    let table = json!({"base_url": "http://127.0.0.1:1/v1", "headers": {"X-Agent-Id": "a"}});
    let own = KeyToSet {
        path: path(&["providers", "metaclaw"]),
        value: ValueToSet::Own(table),
    };
    let first = KeyToSet {
        path: path(&["list"]),
        value: ValueToSet::First(json!({"provider": "x"})),
    };
    match format {
        Format::Env => vec![is(&["model"], "m"), is(&["NEW"], "http://h/v1")],
        Format::Line => vec![is(&[], "metaclaw")],
        Format::Toml => vec![is(&["model"], "metaclaw/m"), own],
        Format::Json | Format::Yaml => vec![
            is(&["model"], "metaclaw/m"),
            own,
            is(&["deep", "er", "key"], "v"),
            first,
        ],
    }
}

/// Wired and taken back by the keys alone, and by the lines where somebody added one meanwhile.
fn assert_taken_back(format: Format, text: &str, is_usual: bool) -> Result<(), TestCaseError> {
    let Ok(values) = format.values(text) else {
        return Ok(());
    };
    let keys_to_set = keys_to_set(format);
    let applied = keys::apply(format, text, &keys_to_set);
    prop_assert!(applied.is_ok() || !is_usual, "{text:?} {applied:?}");
    // A refusal is no damage: nothing is written then.
    let Ok((after, done)) = applied else {
        return Ok(());
    };
    prop_assert!(keys::stands(format, &after, &keys_to_set), "{after}");
    let Reverted { text: back, left } = keys::undo(format, &after, &done).unwrap();
    prop_assert!(left.is_empty(), "{left:?}");
    prop_assert!(
        tree::is_same(&format.values(&back).unwrap(), &values),
        "{text:?} {after:?} {back:?}"
    );
    let exact = crate::rebase::without_ours(text, &after, &after);
    prop_assert_eq!(exact.as_deref(), Some(text));
    // A line that somebody adds at the end, where the format has a place for it.
    let comment = match format {
        Format::Json => "\n// theirs\n",
        Format::Toml | Format::Yaml | Format::Env => "\n# theirs\n",
        Format::Line => return Ok(()),
    };
    let meanwhile = format!("{after}{comment}");
    let undone = keys::undo(format, &meanwhile, &done).unwrap();
    prop_assert!(
        tree::is_same(&format.values(&undone.text).unwrap(), &values),
        "{}",
        undone.text
    );
    if after.ends_with('\n') && text.ends_with('\n') {
        let exact = crate::rebase::without_ours(text, &after, &meanwhile);
        prop_assert_eq!(exact, Some(format!("{text}{comment}")));
    }
    Ok(())
}

fn one_of(pieces: &'static str) -> impl Strategy<Value = &'static str> + Clone {
    select(pieces.split('¦').collect::<Vec<_>>())
}

/// Returns the text, without the characters that end it unless `is_ended`.
fn ended(text: &str, is_ended: bool, end: impl Fn(char) -> bool) -> String {
    let text = if is_ended {
        text
    } else {
        text.trim_end_matches(end)
    };
    text.to_owned()
}

fn toml_files() -> impl Strategy<Value = String> {
    let line = "# c\n|\n|[a-z]{3} = (1|'x'|\"y\"|true|\\[1, 2\\]|\\{a = 1\\}|2026-01-01)( # ü)?\n";
    let table = one_of(
        "[providers]\n¦[providers.work] # t\nurl = 'u'\n¦[other]\nmodel = 'no'\n¦[[list]]\na = 1\n¦",
    );
    let model = one_of("¦model = 'm' # mine\n¦'model' = \"m\"\r\n");
    let lines = proptest::collection::vec(line, 0..4);
    let parts = (lines.clone(), model, table, lines, any::<bool>());
    parts.prop_map(|(head, model, table, tail, is_ended)| {
        let text = format!("{}{model}{table}{}", head.concat(), tail.concat());
        ended(&text, is_ended, char::is_whitespace)
    })
}

fn yaml_files() -> impl Strategy<Value = String> {
    let more = [
        "# c\n",
        "\n",
        "other: 'x'   # ü\n",
        "text: |\n  a\n  b\n\n",
        "folded: >-\n  a\n",
        "items:\n  - a\n  - b: 1\n    c: 2\n",
        "flow: {a: 1, b: [1, 2,],\n  c: x}\n",
        "\"quoted\": \"v\"\n",
        "nothing:\n",
        "anchored: &a {x: 1}\nused: *a\n",
    ];
    let more = proptest::sample::subsequence(more.to_vec(), 0..3).prop_shuffle();
    let model = one_of("¦model: m\n¦model: 'm' # mine\n¦model:\n¦model:\n  m\n");
    let providers = one_of(
        "¦providers: {}\n¦providers:\n¦providers: # p\n    work: # w\n        url: u # u\n\
         ¦providers: {work: {url: u}}\n¦providers:\n  work:\n    text: |\n      a\n\n# behind\n",
    );
    let list = one_of(
        "¦list: []\n¦list:\n- a\n- provider: b\n  x: 1\n¦list:\n  # first\n  - {provider: b}\n\
         ¦list: [a, {b: 1}]\n¦list:\n",
    );
    let deep = one_of("¦deep:\n  er:\n    x: 1\n¦deep: {er: {}}\n¦deep:\n  other: 1 # o\n");
    let kinds = any::<(bool, bool, bool)>();
    (more, model, providers, list, deep, kinds).prop_map(
        |(more, model, providers, list, deep, (first, is_ended, crlf))| {
            let more = more.concat();
            let text = if first {
                format!("{more}{model}{providers}{list}{deep}")
            } else {
                format!("---\n{deep}{list}{providers}{model}{more}")
            };
            let end = if crlf { "\r\n" } else { "\n" };
            ended(&text, is_ended, char::is_whitespace).replace('\n', end)
        },
    )
}

fn json_files() -> impl Strategy<Value = String> {
    let space = one_of("¦ ¦\n¦\n\t¦ // c\n¦/* ü */");
    let model = one_of("¦\"model\": 'm',¦model:null,");
    let providers = one_of("¦providers: {},¦'providers':{a:{b:1,},},¦providers: null,");
    let list = one_of("¦list: [],¦list: [\n1, // one\n{a: 2}\n],");
    let deep = one_of("¦deep: {er: {x: 1}},¦deep: {},");
    let parts = (
        space.clone(),
        model,
        providers,
        list,
        deep,
        space,
        any::<bool>(),
    );
    parts.prop_map(|(space, model, providers, list, deep, last, has_comma)| {
        let inner = [model, providers, list, deep].map(|part| format!("{space}{part}"));
        let inner = ended(&inner.concat(), has_comma, |c| c == ',');
        format!("{space}{{{inner}{last}}}{last}")
    })
}

proptest! {
    #[test]
    fn toml_is_put_back(text in toml_files()) {
        assert_taken_back(Format::Toml, &text, true)?;
    }

    #[test]
    fn yaml_is_put_back(text in yaml_files()) {
        assert_taken_back(Format::Yaml, &text, true)?;
    }

    #[test]
    fn json_is_put_back(text in json_files()) {
        assert_taken_back(Format::Json, &text, true)?;
    }

    #[test]
    fn env_is_put_back(text in "((export )?[A-Z]{2}=(x|'a b'|\"q\\\\\"\"|)( # c)?\n|model = m\n|# c\n|\n){0,5}") {
        assert_taken_back(Format::Env, &text, true)?;
    }

    #[test]
    fn any_text_is_refused_or_put_back(text in "\\PC{0,40}|[-a-z:{}\\[\\], #'\"\n=]{0,40}") {
        for format in [Format::Json, Format::Toml, Format::Yaml, Format::Env, Format::Line] {
            assert_taken_back(format, &text, false)?;
        }
    }
}

/// The editors know the files that agents have: a refusal there would leave an agent without us.
#[test]
fn no_usual_file_is_refused() {
    for (format, text) in [
        (Format::Json, JSONC),
        (Format::Toml, TOML),
        (Format::Yaml, YAML),
        (Format::Json, "{}"),
        (Format::Json, ""),
        (Format::Yaml, ""),
        (Format::Toml, ""),
        (Format::Env, ""),
        (Format::Line, ""),
    ] {
        let applied = keys::apply(format, text, &keys_to_set(format));
        assert!(applied.is_ok(), "{format:?} {text}: {applied:?}");
    }
}
