use super::*;
use crate::config::Layer;

fn config(text: &str) -> Config {
    let layer = Layer::text("config.yaml".into(), text).unwrap();
    crate::config::Loaded::new(vec![layer]).unwrap().config
}

fn text(config: &Config, policy: &Policy, judge: &JudgedWith, inert: &[InertUse]) -> String {
    let about = About::new(config, policy, judge, "redo+opd+binary_rl");
    let banner = Banner {
        proxy: config.proxy.address(),
        keyed: config.proxy.api_key.is_some(),
        about: &about,
        inert,
        config: "config.yaml",
        agent: None,
        first: First::of(config, policy),
    };
    banner.text()
}

#[test]
fn a_laptop_keeps_everything() {
    let policy = Policy::Local {
        model: "/models/demo.gguf".into(),
    };
    let shown = text(&config("mode: rl\n"), &policy, &JudgedWith::Rules(2), &[]);
    insta::assert_snapshot!(shown, @r#"
    MetaClaw 0.1.0 listens
      base URL  http://127.0.0.1:30000/v1
      settings  config.yaml (mode rl)
      serves    demo.gguf on the local trainer
      learns    weights by redo+opd+binary_rl, whenever a batch is ready; wishes from what you say, from the next session on; skills as you write them
      leaves    chat -> nowhere, judge -> nowhere (2 rules), training -> nowhere
      try       curl -N http://127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{"model":"default","stream":true,"messages":[{"role":"user","content":"What is the capital of France?"}]}'
    "#);
}

#[test]
fn auto_without_a_model_says_that_no_weights_learn() {
    let config = config(
        "llm: {api_base: 'https://user:secret@api.example/v1', model_id: big-1}\nproxy: {api_key: sk-1}\n",
    );
    let judge = JudgedWith::Model {
        model: "big-1".to_owned(),
        url: "https://api.example/v1".to_owned(),
    };
    let unused = |key: &str, reason| InertUse {
        key: key.to_owned(),
        reason,
    };
    let inert = [
        unused("memory.enabled", "no memory"),
        unused("wechat.enabled", "nothing"),
        unused("memory.dir", "no memory"),
    ];
    insta::assert_snapshot!(text(&config, &Policy::None, &judge, &inert), @r#"
    MetaClaw 0.1.0 listens
      base URL  http://127.0.0.1:30000/v1
      settings  config.yaml (mode auto)
      serves    big-1 at api.example
      learns    no weights, because no policy model is configured (mode auto works as skills_only); wishes from what you say, from the next session on; skills as you write them
      leaves    chat -> api.example, judge -> api.example (big-1), training -> nowhere
      no effect memory.enabled, memory.dir: no memory
      no effect wechat.enabled: nothing
      try       metaclaw config llm.api_key KEY  (yours at api.example: callers show one of ours, which goes nowhere; then start again)
    "#);
}

#[test]
fn this_machine_is_nowhere() {
    for (url, said) in [
        (
            "http://127.0.0.1:8000",
            "nowhere (127.0.0.1:8000 is this machine)",
        ),
        (
            "http://[::1]:8000/v1",
            "nowhere ([::1]:8000 is this machine)",
        ),
        ("http://localhost/v1", "nowhere (localhost is this machine)"),
        ("https://a:b@api.example:8443/v1", "api.example:8443"),
        ("https://127.example/v1", "127.example"),
    ] {
        assert_eq!(elsewhere(url), said);
    }
}

#[test]
fn many_keys_of_one_section_are_told_as_one() {
    let keys = [
        "memory.a",
        "wechat.enabled",
        "memory.b",
        "memory.c",
        "memory.d",
        "rl.x",
    ];
    assert_eq!(
        together(&keys),
        ["memory.* (4 keys)", "wechat.enabled", "rl.x"]
    );
}

#[test]
fn every_upstream_is_named_that_a_chat_may_go_to() {
    let config = config(
        "llm: {api_base: 'https://a.example/v1'}\nupstreams: {b: {url: 'https://b.example'}, c: {url: 'http://127.0.0.1:9'}}\n",
    );
    let about = About::new(&config, &Policy::None, &JudgedWith::Rules(1), "redo");
    insta::assert_snapshot!(about.leaves, @"chat -> a.example, b.example (upstream b), nowhere (127.0.0.1:9 is this machine) (upstream c), judge -> nowhere (1 rules), training -> nowhere");
}

#[test]
fn an_upstream_of_ones_own_name_serves() {
    let config = config("upstreams: {b: {url: 'https://b.example/v1'}}\nrouting: {order: [b]}\n");
    let about = About::new(&config, &Policy::None, &JudgedWith::Rules(0), "redo");
    assert_eq!(about.serves, "b at b.example");
}

#[test]
fn what_is_to_be_tried_works() {
    let tried = |text: &str| {
        let config = config(text);
        let shown = super::tests::text(&config, &Policy::None, &JudgedWith::Unused, &[]);
        shown.lines().last().unwrap_or_default().to_owned()
    };
    let named = tried("llm: {api_base: 'https://a.example/v1', api_key: k}\n");
    assert!(
        named.contains("\"model\":\"MODEL\"") && named.ends_with("(MODEL: one that a.example has)"),
        "{named}"
    );
    assert!(
        tried("llm: {api_base: 'https://a.example/v1', model_id: m, api_key: k}\n")
            .contains("\"model\":\"default\"")
    );
    let passed_on = tried("llm: {api_base: 'https://a.example/v1', model_id: m}\n");
    assert!(
        passed_on.contains("Bearer $API_KEY") && passed_on.ends_with("API_KEY: yours there)"),
        "{passed_on}"
    );
    let keyed = tried("llm: {api_base: 'https://a.example/v1'}\nproxy: {api_key: sk-1}\n");
    assert!(keyed.contains("metaclaw config llm.api_key KEY"), "{keyed}");
    assert!(
        tried("llm: {api_base: 'http://127.0.0.1:9/v1', model_id: m}\n").contains("\"default\"")
    );
    assert!(tried("mode: auto\n").starts_with("  try       metaclaw setup"));
}
