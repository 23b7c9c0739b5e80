use super::*;
use metaclaw_settings::Layer;

fn config(text: &str) -> Config {
    let layer = Layer::text("config.yaml".into(), text).unwrap();
    metaclaw_settings::Loaded::new(vec![layer]).unwrap().config
}

fn text(config: &Config, policy: &Policy, judge: &JudgedWith, inert: &[InertUse]) -> String {
    let about = about(config, policy, judge, &LearnerConfig::default());
    let banner = Banner {
        proxy: config.gateway.proxy.address(),
        keyed: config.gateway.proxy.api_key.is_some(),
        about: &about,
        off: &RelayOnly::default(),
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
      learns    weights by context_distillation, whenever a batch is ready, and they serve once they pass the gate; wishes from what you say, and skills that you write or accept, from the next session on
      leaves    chat -> nowhere, judge -> nowhere (2 rules), training -> nowhere
      look      metaclaw ui  (the page in your browser)
      try       curl -N http://127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{"model":"default","stream":true,"max_tokens":200,"messages":[{"role":"user","content":"In one sentence: why do we need sleep?"}]}'
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
        others: Vec::new(),
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
      learns    no weights, because no policy model is configured (mode auto works as skills_only); wishes from what you say, and skills that you write or accept, from the next session on
      leaves    chat -> api.example, judge -> api.example (big-1), training -> nowhere
      no effect memory.enabled, memory.dir: no memory
      no effect wechat.enabled: nothing
      look      metaclaw ui  (the page in your browser)
      try       metaclaw config llm.api_key KEY  (yours at api.example: callers show one of ours, which goes nowhere; then start again)
    "#);
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
        "llm: {api_base: 'https://a.example/v1'}\nupstreams: {b: {url: 'https://b.example'}, c: {url: 'http://127.0.0.1:9'}, unasked: {url: 'https://d.example'}}\nrouting: {order: [llm, b, c]}\n",
    );
    let about = about(
        &config,
        &Policy::None,
        &JudgedWith::Rules(1),
        &LearnerConfig::default(),
    );
    insta::assert_snapshot!(about.leaves, @"chat -> a.example, and b.example (upstream b), then this machine only (127.0.0.1:9) (upstream c) where that cannot answer, judge -> nowhere (1 rules), training -> nowhere");
}

#[test]
fn an_upstream_of_ones_own_name_serves() {
    let config = config("upstreams: {b: {url: 'https://b.example/v1'}}\nrouting: {order: [b]}\n");
    let about = about(
        &config,
        &Policy::None,
        &JudgedWith::Rules(0),
        &LearnerConfig::default(),
    );
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

/// What leaves, with a training server elsewhere (or none), after it was allowed to train there.
fn egress_of(text: &str, trainer: Option<&str>, judge: &JudgedWith) -> String {
    let allowed = format!("{text}privacy: {{cloud_training_ok: true}}\n");
    let policy = match trainer {
        None => Policy::None,
        Some("local") => Policy::Local {
            model: "/models/demo.gguf".into(),
        },
        Some(url) => Policy::Remote {
            url: url.to_owned(),
            key: None,
        },
    };
    about(&config(&allowed), &policy, judge, &LearnerConfig::default()).leaves
}

#[test]
fn what_leaves_is_true_of_every_combination() {
    const LLM: &str = "llm: {api_base: 'https://cloud.example/v1'}\n";
    const TRAINER: Option<&str> = Some("https://train.example");
    let nobody = JudgedWith::Nobody;
    let judge = JudgedWith::Model {
        model: "big".to_owned(),
        url: "https://judge.example/v1".to_owned(),
        others: Vec::new(),
    };
    let chat = |text: &str, trainer| {
        let told = egress_of(text, trainer, &nobody);
        let (chat, rest) = told.split_once(", judge -> ").unwrap_or_default();
        let training = rest.split_once(", training -> ").unwrap_or_default().1;
        format!("{}; {training}", chat.trim_start_matches("chat -> "))
    };
    insta::assert_snapshot!(egress_of(LLM, TRAINER, &judge), @"chat -> train.example, and cloud.example where the policy model cannot answer, judge -> judge.example (big), training -> train.example");
    for (text, trainer, told) in [
        // A trainer of one's own, here, and its fall-back.
        (
            LLM.to_owned(),
            Some("local"),
            "cloud.example where the policy model cannot answer; nowhere",
        ),
        (String::new(), Some("local"), "nowhere; nowhere"),
        (
            LLM.to_owned(),
            Some("http://127.0.0.1:8000"),
            "this machine only (127.0.0.1:8000), and cloud.example where the policy model cannot answer; this machine only (127.0.0.1:8000)",
        ),
        (String::new(), TRAINER, "train.example; train.example"),
        (String::new(), None, "nowhere; nowhere"),
        // One agent has another mode.
        (
            format!("{LLM}agents: {{work: {{mode: skills_only}}}}\n"),
            TRAINER,
            "train.example, and cloud.example where the policy model cannot answer (agent work: cloud.example); train.example (not of agent work)",
        ),
        (
            format!("mode: skills_only\n{LLM}agents: {{work: {{mode: rl}}}}\n"),
            TRAINER,
            "cloud.example (agent work: train.example, and cloud.example where the policy model cannot answer); train.example (agent work)",
        ),
        // One has another upstream: it stands for all but the policy model.
        (
            format!(
                "{LLM}upstreams: {{own: {{url: 'https://own.example'}}}}\nagents: {{work: {{upstream: own}}}}\n"
            ),
            None,
            "cloud.example (agent work: own.example (upstream own)); nowhere",
        ),
        (
            format!(
                "{LLM}upstreams: {{own: {{url: 'https://own.example'}}}}\nagents: {{work: {{upstream: own}}}}\n"
            ),
            TRAINER,
            "train.example, and cloud.example where the policy model cannot answer (agent work: train.example, and own.example (upstream own) where the policy model cannot answer); train.example",
        ),
        (
            format!("{LLM}agents: {{work: {{upstream: [llm], mode: skills_only}}}}\n"),
            None,
            "cloud.example; nowhere",
        ),
        // An upstream that nobody is sent to is not named.
        (
            format!("{LLM}upstreams: {{own: {{url: 'https://own.example'}}}}\n"),
            None,
            "cloud.example; nowhere",
        ),
        (
            format!(
                "{LLM}upstreams: {{own: {{url: 'https://own.example'}}}}\nrouting: {{order: [own, llm]}}\n"
            ),
            None,
            "own.example (upstream own), and cloud.example where that cannot answer; nowhere",
        ),
    ] {
        assert_eq!(chat(&text, trainer), told, "{text}");
    }
}

#[test]
fn nothing_leaves_to_train_on_before_it_is_allowed_or_where_nothing_is_kept() {
    let policy = Policy::Remote {
        url: "https://train.example".to_owned(),
        key: None,
    };
    let about = |text: &str| {
        about(
            &config(text),
            &policy,
            &JudgedWith::Rules(1),
            &LearnerConfig::default(),
        )
    };
    let asked = about("privacy: {cloud_training_ok: false}\n");
    insta::assert_snapshot!(asked.leaves, @"chat -> train.example, judge -> nowhere (1 rules), training -> nowhere (privacy.cloud_training_ok is not true)");
    assert!(
        asked
            .learns
            .starts_with("no weights (privacy.cloud_training_ok is not true)")
    );
    let allowed = config("privacy: {cloud_training_ok: true}\n");
    let nothing = of_nothing_new(
        about("privacy: {cloud_training_ok: true}\n"),
        &allowed,
        &policy,
    );
    insta::assert_snapshot!(nothing.leaves, @"chat -> train.example, judge -> nowhere (turns are not kept), training -> nowhere");
}

#[test]
fn auto_trains_while_its_owner_is_away_and_calendars_are_named_by_host() {
    let policy = Policy::Local {
        model: "/models/demo.gguf".into(),
    };
    let config = config("mode: auto\n");
    let about = about(
        &config,
        &policy,
        &JudgedWith::Rules(0),
        &LearnerConfig::default(),
    );
    assert!(
        about.learns.starts_with(
            "weights by context_distillation, while you are away, and they serve once they pass the gate"
        ),
        "{}",
        about.learns
    );
    let calendars = [
        "https://calendar.example/secret/basic.ics",
        "webcal://calendar.example/other",
    ];
    let leaves = with_calendars(about, &calendars).leaves;
    assert!(
        leaves.ends_with("training -> nowhere, calendar <- calendar.example"),
        "{leaves}"
    );
}

#[test]
fn with_the_gate_off_it_is_said_that_nothing_is_tested() {
    let policy = Policy::Local {
        model: "/models/demo.gguf".into(),
    };
    let mut training = LearnerConfig::default();
    let learns = |mode: &str, training: &LearnerConfig| {
        let config = config(&format!("mode: {mode}\n"));
        about(&config, &policy, &JudgedWith::Unused, training).learns
    };
    let tested = "and they serve once they pass the gate";
    for (mode, when) in [
        ("rl", "whenever a batch is ready"),
        ("auto", "while you are away"),
    ] {
        let told = learns(mode, &training);
        assert!(told.contains(when) && told.contains(tested), "{told}");
    }
    training.gate.enabled = false;
    for mode in ["rl", "auto"] {
        let told = learns(mode, &training);
        assert!(
            told.contains("NOTHING TESTS THEM before they serve (gate.enabled is false)"),
            "{told}"
        );
    }
    assert!(learns("auto", &training).contains("only when asked"));
}

#[test]
fn where_no_wish_is_heard_none_is_promised() {
    let about = about(
        &config("mode: skills_only\n"),
        &Policy::None,
        &JudgedWith::Unused,
        &LearnerConfig::default(),
    );
    assert!(
        about.learns.contains("wishes from what you say"),
        "{}",
        about.learns
    );
    let learns = without_wishes(about).learns;
    assert!(
        !learns.contains("wishes") && learns.contains("skills that you write"),
        "{learns}"
    );
}

/// A service that trains Qwen3-8B; `more` are further settings.
fn with_service(consent: &str, more: &str) -> String {
    let config = config(&format!(
        "mode: rl\nrl: {{backend: tinker, model: Qwen/Qwen3-8B, tinker_api_key: tml-0123456789, tinker_base_url: 'https://tinker.example'}}\n{consent}{more}"
    ));
    let policy = Policy::from_config(&config, std::path::Path::new("/no/cache")).unwrap();
    text(&config, &policy, &JudgedWith::Base, &[])
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
      learns    weights by context_distillation, whenever a batch is ready, and they serve once they pass the gate; wishes from what you say, and skills that you write or accept, from the next session on
      leaves    chat -> tinker.example, and api.example where the policy model cannot answer, judge -> tinker.example (the base model), training -> tinker.example (conversations as token ids, wishes, and the adapters made of them)
      look      metaclaw ui  (the page in your browser)
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
      learns    no weights (privacy.cloud_training_ok is not true); wishes from what you say, and skills that you write or accept, from the next session on
      leaves    chat -> api.example, judge -> nowhere (privacy.cloud_training_ok is not true), training -> nowhere (privacy.cloud_training_ok is not true)
      look      metaclaw ui  (the page in your browser)
      try       curl -N http://127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' -d '{"model":"default","stream":true,"max_tokens":200,"messages":[{"role":"user","content":"In one sentence: why do we need sleep?"}]}'
    "#);
    for consent in [REFUSED, ""] {
        let shown = with_service(consent, UPSTREAM);
        assert_eq!(shown, with_service(REFUSED, UPSTREAM), "unasked is refused");
        let leaves = shown.lines().find(|line| line.starts_with("  leaves "));
        assert!(!leaves.unwrap().contains("tinker.example"), "{shown}");
    }
}

#[test]
fn where_nobody_answers_without_the_service_the_banner_says_what_to_do() {
    insta::assert_snapshot!(with_service(REFUSED, ""), @"
    MetaClaw 0.1.0 listens
      base URL  http://127.0.0.1:30000/v1
      settings  config.yaml (mode rl)
      serves    nothing yet: set llm.api_base, or allow the training server (metaclaw config privacy.cloud_training_ok true); Qwen/Qwen3-8B at tinker.example is sent nothing and does not answer (privacy.cloud_training_ok is not true)
      learns    no weights (privacy.cloud_training_ok is not true); wishes from what you say, and skills that you write or accept, from the next session on
      leaves    chat -> nowhere, judge -> nowhere (privacy.cloud_training_ok is not true), training -> nowhere (privacy.cloud_training_ok is not true)
      look      metaclaw ui  (the page in your browser)
      try       metaclaw setup  (asks for your provider; then start again)
    ");
}
