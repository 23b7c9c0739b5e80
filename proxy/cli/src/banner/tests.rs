use metaclaw_settings::Layer;

use super::*;

fn loaded(text: &str) -> Loaded {
    let layer = Layer::text("config.yaml".into(), text).unwrap();
    Loaded::new(vec![layer]).unwrap()
}

fn about(text: &str, policy: &Policy) -> RunSummary {
    let config = loaded(text).config;
    super::about(&config, &config, policy).unwrap()
}

fn shown(loaded: &Loaded, policy: &Policy) -> String {
    let banner = Banner {
        loaded,
        policy,
        about: &super::about(&loaded.config, &loaded.config, policy).unwrap(),
        sources: "config.yaml",
        off: &RelayOnly::default(),
        proxy: loaded.config.gateway.proxy.address(),
        agent: None,
    };
    banner.text()
}

fn local() -> Policy {
    Policy::Local {
        model: "/models/demo.gguf".into(),
    }
}

#[test]
fn a_laptop_keeps_everything() {
    let rule = "{on: reply, max_words: 40, score: 1}";
    let loaded = loaded(&format!("mode: rl\njudge: {{rules: [{rule}, {rule}]}}\n"));
    let shown = shown(&loaded, &local());
    insta::assert_snapshot!(shown, @r#"
    MetaClaw 0.1.0 listens
      base URL  http://127.0.0.1:30000/v1
      settings  config.yaml (mode rl)
      serves    demo.gguf on the local trainer
      learns    wishes from what you say, and skills that you write or accept, from the next session on; facts that you tell, except to agents with a memory of their own (main, claude-code, hermes); weights by context_distillation, whenever a batch is ready, and they serve once they pass the gate
      leaves    nothing: all models are on this machine
      page      metaclaw ui  (opens it in your browser)
      try       curl -N http://127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{"model":"default","stream":true,"max_tokens":200,"messages":[{"role":"user","content":"In one sentence: why do we need sleep?"}]}'
    "#);
}

#[test]
fn auto_without_a_model_says_that_no_weights_learn() {
    let mut loaded = loaded(
        "llm: {api_base: 'https://user:secret@api.example/v1', model_id: big-1}\nproxy: {api_key: sk-1}\njudge: {url: 'https://judge.example/v1', model: big, key: kj}\n",
    );
    let unused = |key: &str, reason| InertUse {
        key: key.to_owned(),
        reason,
    };
    loaded.inert = vec![
        unused("memory.enabled", "no memory"),
        unused("wechat.enabled", "nothing"),
        unused("memory.dir", "no memory"),
    ];
    insta::assert_snapshot!(shown(&loaded, &Policy::None), @r"
    MetaClaw 0.1.0 listens
      base URL  http://127.0.0.1:30000/v1
      settings  config.yaml (mode auto)
      serves    big-1 at api.example
      learns    wishes from what you say, and skills that you write or accept, from the next session on; facts that you tell, except to agents with a memory of their own (main, claude-code, hermes); no weights (trainer.model names no model to train)
      leaves    api.example: chats
                judge.example: what you type, to detect wishes and facts (big)
      no effect memory.enabled, memory.dir: no memory
      no effect wechat.enabled: nothing
      page      metaclaw ui  (opens it in your browser)
      try       metaclaw config llm.api_key KEY  (yours at api.example: callers show one of ours, which goes nowhere; then start again)
    ");
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
    let about = about(
        "llm: {api_base: 'https://a.example/v1'}\nupstreams: {b: {url: 'https://b.example'}, c: {url: 'http://127.0.0.1:9'}, unasked: {url: 'https://d.example'}}\nrouting: {order: [llm, b, c]}\njudge: {rules: [{on: reply, max_words: 40, score: 1}]}\n",
        &Policy::None,
    );
    insta::assert_snapshot!(about.leaves, @r"
    a.example: chats
    b.example: chats that a.example cannot answer
    ");
}

#[test]
fn agents_with_providers_of_their_own_are_named_with_what_learning_sends_elsewhere() {
    let about = about(
        "llm: {api_base: 'https://llm.example/v1', model_id: m, api_key: k}
upstreams: {claude-code: {url: 'https://claude.example'}, codex: {url: 'http://127.0.0.1:9'}, unasked: {url: 'https://d.example'}}
agents: {claude-code: {upstream: claude-code}, codex: {upstream: codex}}
memory: {enabled: true}
",
        &Policy::None,
    );
    insta::assert_snapshot!(about.serves, @"m at llm.example, claude-code at claude.example, codex at 127.0.0.1:9");
    insta::assert_snapshot!(about.leaves, @r"
    llm.example: chats; turns of every agent to judge (m); failed turns of every agent, to write skills from (m); what you type to any agent, to detect wishes and facts (m)
    claude.example: chats of agent claude-code
    ");
    assert!(about.judges_complaints);
    let places = ["llm", "claude-code", "codex"].map(|name| about.places[name].as_str());
    assert_eq!(places, ["llm.example", "claude.example", "this machine"]);
}

#[test]
fn an_upstream_of_ones_own_name_serves() {
    let text = "upstreams: {b: {url: 'https://b.example/v1'}}\nrouting: {order: [b]}\n";
    let about = about(text, &Policy::None);
    assert_eq!(about.serves, "b at b.example");
}

#[test]
fn what_is_to_be_tried_works() {
    let tried = |text: &str| {
        let shown = shown(&loaded(text), &Policy::None);
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

/// What leaves, with a training server elsewhere (or none), after it was allowed to train there.
fn egress_of(text: &str, trainer: Option<&str>) -> String {
    let allowed = format!("{text}privacy: {{cloud_training_ok: true}}\n");
    let policy = match trainer {
        None => Policy::None,
        Some("local") => local(),
        Some(url) => Policy::Remote {
            url: url.to_owned(),
            key: None,
        },
    };
    about(&allowed, &policy).leaves
}

#[test]
fn what_leaves_is_true_of_every_combination() {
    const LLM: &str = "llm: {api_base: 'https://cloud.example/v1'}\n";
    const TRAINER: Option<&str> = Some("https://train.example");
    let judge = "judge: {url: 'https://judge.example/v1', model: big, key: kj}\n";
    insta::assert_snapshot!(egress_of(&format!("{LLM}{judge}"), TRAINER), @r"
    train.example: chats; turns to train on
    cloud.example: chats that the policy model cannot answer
    judge.example: turns to judge (big); what you type, to detect wishes and facts (big)
    ");
    let own = "upstreams: {own: {url: 'https://own.example'}}\n";
    let work = |keys: &str| format!("{LLM}{own}agents: {{work: {{{keys}}}}}\n");
    for (text, trainer, told) in [
        // A trainer of one's own, here, and its fall-back.
        (
            LLM.to_owned(),
            Some("local"),
            "cloud.example: chats that the policy model cannot answer",
        ),
        (
            String::new(),
            Some("local"),
            "nothing: all models are on this machine",
        ),
        (
            LLM.to_owned(),
            Some("http://127.0.0.1:8000"),
            "cloud.example: chats that the policy model cannot answer",
        ),
        (
            String::new(),
            TRAINER,
            "train.example: chats; turns to train on",
        ),
        (String::new(), None, "nothing: there is no model to ask yet"),
        // One agent has another mode.
        (
            work("mode: skills_only"),
            TRAINER,
            "train.example: chats; turns (but not of agent work) to train on\ncloud.example: chats that the policy model cannot answer; chats of agent work",
        ),
        (
            format!("mode: skills_only\n{}", work("mode: rl")),
            TRAINER,
            "cloud.example: chats; chats of agent work that the policy model cannot answer\ntrain.example: chats of agent work; turns of agent work to train on",
        ),
        // One has another upstream: it stands for all but the policy model.
        (
            work("upstream: own"),
            None,
            "cloud.example: chats\nown.example: chats of agent work",
        ),
        (
            work("upstream: own"),
            TRAINER,
            "train.example: chats; chats of agent work; turns to train on\ncloud.example: chats that the policy model cannot answer\nown.example: chats of agent work that the policy model cannot answer",
        ),
        // An upstream that nobody is sent to is not named.
        (
            work("upstream: [llm], mode: skills_only"),
            None,
            "cloud.example: chats",
        ),
        (
            format!("{LLM}{own}routing: {{order: [own, llm]}}\n"),
            None,
            "own.example: chats\ncloud.example: chats that own.example cannot answer",
        ),
    ] {
        let is = egress_of(&format!("{text}judge: {{kind: off}}\n"), trainer);
        assert_eq!(is, told, "{text}");
    }
}

#[test]
fn nothing_leaves_to_train_on_before_it_is_allowed_or_where_nothing_is_kept() {
    let policy = Policy::Remote {
        url: "https://train.example".to_owned(),
        key: None,
    };
    let rule = "judge: {rules: [{on: reply, max_words: 40, score: 1}]}\n";
    let about = |text: &str| about(&format!("{rule}{text}"), &policy);
    let asked = about("privacy: {cloud_training_ok: false}\n");
    insta::assert_snapshot!(asked.leaves, @"train.example: chats; what you type, to detect wishes and facts");
    assert!(
        asked
            .learns
            .ends_with("; no weights (privacy.cloud_training_ok is not true)")
    );
    let nothing = about("privacy: {cloud_training_ok: true}\nturns: {enabled: false}\n");
    insta::assert_snapshot!(nothing.leaves, @"train.example: chats");
}

#[test]
fn auto_trains_while_its_owner_is_away_and_calendars_are_named_by_host() {
    let about = about(
        "mode: auto\nscheduler: {ics: ['https://calendar.example/secret/basic.ics', 'webcal://calendar.example/other', mine.ics]}\n",
        &local(),
    );
    assert!(
        about.learns.contains(
            "; weights by context_distillation, while you are away, and they serve once they pass the gate"
        ),
        "{}",
        about.learns
    );
    let leaves = about.leaves;
    assert_eq!(
        leaves,
        "calendar.example: requests for your calendar, without any text"
    );
}

#[test]
fn with_the_gate_off_it_is_said_that_nothing_is_tested() {
    let learns = |mode: &str, is_gated: bool| {
        let text = format!("mode: {mode}\ngate: {{enabled: {is_gated}}}\n");
        about(&text, &local()).learns
    };
    let tested = "and they serve once they pass the gate";
    for (mode, when) in [
        ("rl", "whenever a batch is ready"),
        ("auto", "while you are away"),
    ] {
        let told = learns(mode, true);
        assert!(told.contains(when) && told.contains(tested), "{told}");
    }
    for mode in ["rl", "auto"] {
        let told = learns(mode, false);
        assert!(
            told.contains("NOTHING TESTS THEM before they serve (gate.enabled is false)"),
            "{told}"
        );
    }
    assert!(learns("auto", false).contains("only when asked"));
}

#[test]
fn who_judges_what_weights_learn_from_is_said() {
    for (text, said) in [
        (
            "",
            Some("the model judges its own replies, because no other judge is named"),
        ),
        ("judge: {kind: base}\n", None),
        ("judge: {kind: rules}\n", Some("BUT NOTHING IS JUDGED")),
        (UPSTREAM, None),
    ] {
        let learns = about(text, &local()).learns;
        let notes = ["judges its own replies, because", "NOTHING IS JUDGED"];
        let is_noted = notes.iter().any(|note| learns.contains(note));
        assert_eq!(is_noted, said.is_some(), "{text}: {learns}");
        assert!(
            learns.contains(said.unwrap_or_default()),
            "{text}: {learns}"
        );
    }
    let leaves = about("", &local()).leaves;
    assert_eq!(leaves, "nothing: all models are on this machine");
}

#[test]
fn where_no_wish_is_heard_none_is_promised() {
    let learns = |text: &str| about(&format!("mode: skills_only\n{text}"), &Policy::None).learns;
    let hears = learns("");
    assert!(hears.contains("wishes from what you say"), "{hears}");
    let learns = learns("wishes: {enabled: false}\n");
    assert!(
        !learns.contains("wishes") && learns.contains("skills that you write"),
        "{learns}"
    );
}

/// A service that trains Qwen3-8B; `more` are further settings.
fn with_service(consent: &str, more: &str) -> String {
    let loaded = loaded(&format!(
        "mode: rl\nrl: {{backend: tinker, model: Qwen/Qwen3-8B, tinker_api_key: tml-0123456789, tinker_base_url: 'https://tinker.example'}}\njudge: {{kind: base}}\n{consent}{more}"
    ));
    let policy = Policy::from_config(&loaded.config, std::path::Path::new("/no/cache")).unwrap();
    shown(&loaded, &policy)
}

const ALLOWED: &str = "privacy: {cloud_training_ok: true}\n";
const REFUSED: &str = "privacy: {cloud_training_ok: false}\n";
const UPSTREAM: &str = "llm: {api_base: 'https://api.example/v1', model_id: big-1, api_key: k}\n";

#[test]
fn a_service_that_may_be_sent_texts_serves_and_is_named_wherever_they_go() {
    insta::assert_snapshot!(with_service(ALLOWED, UPSTREAM), @r#"
    MetaClaw 0.1.0 listens
      base URL  http://127.0.0.1:30000/v1
      settings  config.yaml (mode rl)
      serves    Qwen/Qwen3-8B at tinker.example (a server with Tinker's API)
      learns    wishes from what you say, and skills that you write or accept, from the next session on; facts that you tell, except to agents with a memory of their own (main, claude-code, hermes); weights by context_distillation, whenever a batch is ready, and they serve once they pass the gate
      leaves    tinker.example: chats; turns to judge; turns to train on
                api.example: chats that the policy model cannot answer; failed turns, to write skills from (big-1); what you type, to detect wishes and facts (big-1)
      page      metaclaw ui  (opens it in your browser)
      try       curl -N http://127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{"model":"default","stream":true,"max_tokens":200,"messages":[{"role":"user","content":"In one sentence: why do we need sleep?"}]}'
    "#);
}

#[test]
fn a_service_that_may_be_sent_nothing_serves_nothing_and_others_answer() {
    insta::assert_snapshot!(with_service(REFUSED, UPSTREAM), @r#"
    MetaClaw 0.1.0 listens
      base URL  http://127.0.0.1:30000/v1
      settings  config.yaml (mode rl)
      serves    big-1 at api.example; Qwen/Qwen3-8B at tinker.example is sent nothing and does not answer (privacy.cloud_training_ok is not true)
      learns    wishes from what you say, and skills that you write or accept, from the next session on; facts that you tell, except to agents with a memory of their own (main, claude-code, hermes); no weights (privacy.cloud_training_ok is not true)
      leaves    api.example: chats; failed turns, to write skills from (big-1); what you type, to detect wishes and facts (big-1)
      page      metaclaw ui  (opens it in your browser)
      try       curl -N http://127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{"model":"default","stream":true,"max_tokens":200,"messages":[{"role":"user","content":"In one sentence: why do we need sleep?"}]}'
    "#);
    for consent in [REFUSED, ""] {
        let shown = with_service(consent, UPSTREAM);
        assert_eq!(shown, with_service(REFUSED, UPSTREAM), "unasked is refused");
        let (_, leaves) = shown.split_once("  leaves ").unwrap();
        assert!(!leaves.contains("tinker.example"), "{shown}");
    }
}

#[test]
fn where_nobody_answers_without_the_service_the_banner_says_what_to_do() {
    insta::assert_snapshot!(with_service(REFUSED, ""), @"
    MetaClaw 0.1.0 listens
      base URL  http://127.0.0.1:30000/v1
      settings  config.yaml (mode rl)
      serves    nothing yet: `metaclaw setup` asks for a provider, or allow the training server (metaclaw config privacy.cloud_training_ok true); Qwen/Qwen3-8B at tinker.example is sent nothing and does not answer (privacy.cloud_training_ok is not true)
      learns    wishes from what you say, and skills that you write or accept, from the next session on; facts that you tell, except to agents with a memory of their own (main, claude-code, hermes); no weights (privacy.cloud_training_ok is not true)
      leaves    nothing: there is no model to ask yet
      page      metaclaw ui  (opens it in your browser)
      try       metaclaw setup  (asks for your provider; then start again)
    ");
}
