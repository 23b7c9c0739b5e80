use std::{fs, path::Path};

use serde_json::json;

use super::*;
use crate::{
    Credential,
    tests::house::{House, OPENCLAW},
};

fn found(text: &str, variables: &[(&str, &str)]) -> Result<Found, DetectError> {
    let mut house = House::openclaw(text);
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    house.surroundings.variables = variables.iter().map(pair).collect();
    detect(&house.surroundings).map(Option::unwrap)
}

fn key(key: &str, from: &str) -> Credential {
    let (key, from) = (key.into(), from.to_owned());
    Credential::Key { key, from }
}

/// A file as a person writes it: comments, single quotes, names without quotes, a trailing comma.
const BY_HAND: &str = r#"// mine
{
  models: {
    mode: 'merge',
    providers: {
      work: {
        baseUrl: "${WORK_HOST}/v1/", // the company's
        apiKey: "${WORK_KEY}",
        api: 'openai-completions',
        models: [{ id: 'big/model', name: 'Big', contextWindow: 64000, maxTokens: 0x1000, input: ['text', 'image'], }],
      },
    },
  },
  agents: { defaults: { model: { primary: 'work/big/model', fallbacks: ['a/b'] } } },
}
"#;

#[test]
fn a_file_by_hand_is_read() {
    let variables = [("WORK_HOST", "https://llm.example"), ("WORK_KEY", "sk-1")];
    let it = found(BY_HAND, &variables).unwrap();
    assert_eq!((&*it.provider, &*it.model), ("work", "big/model"));
    assert_eq!(it.base_url, "https://llm.example/v1");
    assert_eq!(it.api, Api::OpenaiCompletions);
    assert_eq!(it.credential, key("sk-1", "WORK_KEY in the environment"));
    assert_eq!(it.model_entry["maxTokens"], 4096);
    assert!(it.notes.is_empty());
}

#[test]
fn a_key_that_openclaw_alone_can_follow_is_passed_on() {
    let it = found(BY_HAND, &[("WORK_HOST", "https://llm.example")]).unwrap();
    assert_eq!(it.credential, Credential::Reference(json!("${WORK_KEY}")));
    let secret = json!({"source": "exec", "provider": "vault", "id": "llm"});
    let text = json!({
        "models": {"providers": {"x": {"baseUrl": "http://h", "apiKey": secret}}},
        "agents": {"defaults": {"model": "x/m"}}});
    let it = found(&text.to_string(), &[]).unwrap();
    assert_eq!(it.credential, Credential::Reference(secret));
    assert_eq!(it.api, Api::OpenaiResponses, "OpenClaw's own default");
}

#[test]
fn keys_are_read_from_where_openclaw_reads_them() {
    let text = r#"{env: {vars: {INSIDE: "sk-inside"}}, agents: {defaults: {model: "x/m"}},
        models: {providers: {x: {baseUrl: "http://h", apiKey: KEY}}}}"#;
    let of = |given: &str| {
        found(&text.replace("KEY", given), &[("OUT", "sk-out")])
            .unwrap()
            .credential
    };
    assert_eq!(of("'sk-plain'"), key("sk-plain", "OpenClaw's file"));
    assert_eq!(
        of("'${INSIDE}'"),
        key("sk-inside", "INSIDE in OpenClaw's file")
    );
    assert_eq!(of("'$OUT'"), key("sk-out", "OUT in the environment"));
    assert_eq!(of("'OUT'"), key("sk-out", "OUT in the environment"));
    let reference = "{source: 'env', provider: 'default', id: 'OUT'}";
    assert_eq!(of(reference), key("sk-out", "OUT in the environment"));
    assert_eq!(of("'$${OUT}'"), key("${OUT}", "OpenClaw's file"));

    let house = House::openclaw(&text.replace("KEY", "'${FILED}'"));
    house.put(
        ".openclaw/.env",
        "# keys\nexport FILED=\"sk-filed\" # mine\n",
    );
    assert_eq!(
        house.found().credential,
        key("sk-filed", "FILED in OpenClaw's .env")
    );
}

#[test]
fn a_provider_of_the_catalog_needs_no_entry() {
    let text = r#"{"agents": {"defaults": {"model": "anthropic/claude-opus-5"}}}"#;
    let it = found(text, &[("ANTHROPIC_API_KEY", "sk-ant")]).unwrap();
    assert_eq!(it.base_url, "https://api.anthropic.com");
    assert_eq!(it.api, Api::AnthropicMessages);
    assert_eq!(
        it.credential,
        key("sk-ant", "ANTHROPIC_API_KEY in the environment")
    );
    assert_eq!(found(text, &[]).unwrap().credential, Credential::Login);
    // A stored login takes precedence over the variable, both in OpenClaw and here.
    let text = r#"{auth: {profiles: {"anthropic:default": {provider: "anthropic", mode: "api_key"}}},
        agents: {defaults: {models: {"anthropic/claude-opus-5": {alias: "opus"}}, model: {primary: "opus"}}}}"#;
    let it = found(text, &[("ANTHROPIC_API_KEY", "sk-ant")]).unwrap();
    assert_eq!(
        (&*it.model, &it.credential),
        ("claude-opus-5", &Credential::Login)
    );
}

#[test]
fn parts_of_other_files_are_read() {
    let text = "{models: {$include: './parts/models.json5'}, agents: {$include: ['a.json', 'b.json'], defaults: {model: {primary: 'x/last'}}}}";
    let house = House::openclaw(text);
    let write = |name: &str, text: &str| house.put(&format!(".openclaw/{name}"), text);
    write("parts/models.json5", "{providers: {$include: './x.json'}}");
    write(
        "parts/x.json",
        r#"{"x": {"baseUrl": "http://h/v1", "apiKey": "sk-x", "api": "anthropic-messages"}}"#,
    );
    write(
        "a.json",
        r#"{"defaults": {"model": {"primary": "x/first", "fallbacks": ["a"]}}}"#,
    );
    write("b.json", r#"{"defaults": {"model": {"fallbacks": ["b"]}}}"#);
    let it = house.found();
    assert_eq!((&*it.model, it.api), ("last", Api::AnthropicMessages));
    assert_eq!(it.credential, key("sk-x", "OpenClaw's file"));

    write("a.json", "{$include: './b.json'}");
    write("b.json", "{$include: './a.json'}");
    let error = detect(&house.surroundings).unwrap_err().to_string();
    assert!(error.ends_with("included more than 10 deep"), "{error}");
    write("a.json", "{$include: '/etc/hostname'}");
    let error = detect(&house.surroundings).unwrap_err().to_string();
    assert!(
        error.contains("outside") || error.contains("No such file"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_relayed_is_said() {
    let refusal = |text: &str| found(text, &[]).unwrap_err().to_string();
    let of_model = |model: &str| format!("{{agents: {{defaults: {{model: {model}}}}}}}");
    for none in [
        "{}",
        "",
        "{agents: 3}",
        &of_model("{fallbacks: ['a/b']}"),
        &of_model("'opus'"),
    ] {
        assert!(refusal(none).contains("names no model"), "{none}");
    }
    let google = "{models: {providers: {google: {baseUrl: 'http://g', api: 'google-generative-ai'}}}, agents: {defaults: {model: 'google/g'}}}";
    assert!(
        refusal(google)
            .ends_with("google has the API google-generative-ai, which MetaClaw does not relay")
    );
    assert!(refusal(&of_model("'who/m'")).contains("models.providers.who.baseUrl"));
    for ours in ["'metaclaw/m'", "{primary: 'openai/metaclaw-m'}"] {
        assert!(refusal(&of_model(ours)).contains("did not write"), "{ours}");
    }
    assert!(refusal("{agents: ").contains("it is not JSON5"));
    let agents =
        "{agents: {defaults: {model: 'xai/m'}, entries: {ops: {model: {primary: 'a/b'}}, b: {}}}}";
    assert_eq!(
        found(agents, &[]).unwrap().notes,
        ["agent ops has a model of its own, which is left as it is"]
    );
}

#[test]
fn the_file_is_looked_for_where_openclaw_does() {
    let mut house = House::openclaw(BY_HAND);
    let (default, state) = (house.path(OPENCLAW), house.path("state"));
    let surroundings = &mut house.surroundings;
    assert_eq!(config_file(surroundings).as_deref(), Some(&*default));
    let mut set = |name: &str, value: &Path| {
        surroundings
            .variables
            .push((name.to_owned(), value.display().to_string()));
        config_file(surroundings)
    };
    fs::create_dir(&state).unwrap();
    assert_eq!(
        set("OPENCLAW_STATE_DIR", &state).as_deref(),
        Some(&*default),
        "nothing there yet"
    );
    fs::write(state.join("clawdbot.json"), "{}").unwrap();
    assert_eq!(set("X", &state), Some(state.join("clawdbot.json")));
    assert_eq!(
        set("OPENCLAW_CONFIG_PATH", &state.join("no.json")),
        None,
        "named, and not there"
    );
    let empty = Surroundings {
        variables: Vec::new(),
        home: state,
    };
    assert_eq!(detect(&empty).unwrap(), None);
}
