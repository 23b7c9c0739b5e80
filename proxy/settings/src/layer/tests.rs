use super::*;
use crate::testing::lines;

fn read(text: &str) -> Layer {
    Layer::text(PathBuf::from("/etc/it/config.yaml"), text).unwrap()
}

#[test]
fn unknown_keys_are_collected_with_their_neighbours() {
    let layer = read(
        "rl:\n  batchsize: 8\n  lora_rank: 16\nwhatever: {a: 1}\nllmm: {api_key: k}\nupstream: {}\n",
    );
    insta::assert_snapshot!(lines(&layer.unknown), @r#"
    unknown key llmm in /etc/it/config.yaml: did you mean llm?
    unknown key rl.batchsize in /etc/it/config.yaml: did you mean rl.batch_size?
    unknown key upstream in /etc/it/config.yaml: did you mean upstreams?
    unknown key whatever in /etc/it/config.yaml: it has no effect
    "#);
    assert_eq!(layer.values().keys().collect::<Vec<_>>(), ["rl.lora_rank"]);
}

#[test]
fn bad_values_name_key_file_value_and_what_is_allowed() {
    let layer = read(
        "mode: fast\nproxy: {port: 70000}\nturns: {cache: 5 MB}\nrl: 7\njudge: {votes: 0}\n\
         llm: {api_base: localhost}\nscheduler: {sleep_start: 25:00, idle_minutes: 30m}\n",
    );
    insta::assert_snapshot!(lines(&layer.problems), @r#"
    judge.votes in /etc/it/config.yaml: "0" is not allowed: a whole number from 1 to 15
    llm.api_base in /etc/it/config.yaml: "localhost" is not allowed: an address that begins with http:// or https://
    mode in /etc/it/config.yaml: "fast" is not allowed: auto, rl, skills_only
    proxy.port in /etc/it/config.yaml: "70000" is not allowed: a whole number from 0 to 65535
    rl in /etc/it/config.yaml: keys with values stand below this one
    scheduler.idle_minutes in /etc/it/config.yaml: "30m" is not allowed: minutes: a whole number from 0 to 100000 without a unit, as in 30
    scheduler.sleep_start in /etc/it/config.yaml: "25:00" is not allowed: a time of day, as in "23:00"
    turns.cache in /etc/it/config.yaml: "5 MB" is not allowed: a size: a number and one of B, KiB, MiB, GiB, as in "16 MiB"
    "#);
}

#[test]
fn a_list_that_leaves_nobody_to_ask_is_refused_where_it_stands() {
    let layer = read(
        "upstreams: {mine: {url: 'http://h', speaks: [], keys: []}}\nrouting: {order: [], fail_over: []}\n\
         agents: {work: {upstream: []}}\nproxy: {keys: {phone: {key: k, agents: []}}}\n\
         compat: {side_patterns: []}\n",
    );
    insta::assert_snapshot!(lines(&layer.problems), @r#"
    agents.work.upstream in /etc/it/config.yaml: "[]" is not allowed: a list of one or more texts
    proxy.keys.phone.agents in /etc/it/config.yaml: "[]" is not allowed: a list of one or more texts
    routing.order in /etc/it/config.yaml: "[]" is not allowed: a list of one or more texts
    upstreams.mine.speaks in /etc/it/config.yaml: "[]" is not allowed: a list of one or more of chat, responses, messages
    "#);
    let layer = read("upstreams: {mine: {url: 'http://h', speaks: [chat, mail]}}\n");
    insta::assert_snapshot!(layer.problems[0], @r#"upstreams.mine.speaks in /etc/it/config.yaml: "[chat, mail]" is not allowed: a list of one or more of chat, responses, messages"#);
}

#[test]
fn what_is_not_built_is_refused_or_named() {
    let layer = read("memory: {use_embeddings: true}\nskills: {retrieval_mode: template}\n");
    insta::assert_snapshot!(lines(&layer.inert), @r"
    memory.use_embeddings: not built: memories are found by words
    skills.retrieval_mode: sample requests and keywords have taken the place of templates
    ");
    let of_python = read("skills: {retrieval_mode: embedding}\n");
    assert!(of_python.problems.is_empty(), "such a file starts");
    insta::assert_snapshot!(of_python.inert[0], @"skills.retrieval_mode: embeddings are not built: sample requests and keywords are used");
    let refused = read("skills: {retrieval_mode: hybrid}\n");
    insta::assert_snapshot!(refused.problems[0], @r#"skills.retrieval_mode in /etc/it/config.yaml: "hybrid" is not allowed: embeddings are not built: use bm25"#);
}

#[test]
fn older_names_give_way_to_the_key_itself() {
    let layer = read(
        "mode: madmax\nrl: {prm_url: 'https://old.example', prm_model: old}\njudge: {model: new}\n",
    );
    let model = read("llm: {model: big-1}\n");
    assert_eq!(model.values()["llm.model_id"], "big-1");
    assert_eq!(layer.values()["mode"], "auto");
    assert_eq!(layer.values()["judge.url"], "https://old.example");
    assert_eq!(layer.values()["judge.model"], "new");
}

#[test]
fn the_environment_is_read_by_the_same_table() {
    const RULES: &str = "[{on: reply, max_words: 40, score: 1}]";
    let variables = [
        ("METACLAW__RL__BATCH_SIZE", "8"),
        ("METACLAW__LLM__API_KEY", "12345"),
        ("METACLAW__JUDGE__RULES", RULES),
        ("METACLAW__RL__BATCHSIZE", "8"),
        ("METACLAW_HOME", "/somewhere"),
        ("PATH", "/bin"),
    ];
    let owned = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let layer = Layer::environment(owned.into_iter());
    assert!(layer.problems.is_empty(), "{:?}", layer.problems);
    assert_eq!(layer.values()["rl.batch_size"].as_u64(), Some(8));
    assert_eq!(layer.values()["llm.api_key"], "12345");
    assert!(matches!(layer.values()["judge.rules"], Value::Array(..)));
    insta::assert_snapshot!(layer.unknown[0], @"unknown key rl.batchsize in the environment: did you mean rl.batch_size?");
}

#[test]
fn a_path_stands_beside_the_file_that_names_it() {
    let layer = read("skills: {dir: mine}\ntrainer: {model: demo}\nrl: {model: /abs/model}\n");
    assert_eq!(layer.values()["skills.dir"], "/etc/it/mine");
    assert_eq!(layer.values()["trainer.model"], "demo");
    assert_eq!(layer.values()["rl.model"], "/abs/model");
}

#[test]
fn nothing_said_is_nothing_set() {
    let layer = read("rl:\n  remote_url: ''\n  resume_from_ckpt: ''\nllm:\n  api_key:\nproxy:\n");
    assert!(layer.values().is_empty(), "{:?}", layer.values());
    assert!(layer.problems.is_empty(), "{:?}", layer.problems);
}

#[test]
fn a_secret_is_masked_even_where_it_is_wrong() {
    let layer = read("llm: {api_key: {deep: sk-0123456789abcdef}}\n");
    let told = layer.problems[0].to_string();
    assert!(!told.contains("0123456789"), "{told}");
}

#[test]
fn a_key_is_the_text_that_was_written() {
    let layer = read(
        "llm: {api_key: 0123}\nproxy:\n  api_key: 1.10\n  keys: {a: {key: 0x10, agents: [7]}, b: {key: 'yes'}}\n\
         upstreams: {u: {keys: [1e5, 123456789012345678901234567890, True]}}\nrl: {batch_size: 0x10}\n",
    );
    assert!(layer.problems.is_empty(), "{:?}", layer.problems);
    for (path, text) in [
        ("llm.api_key", "0123"),
        ("proxy.api_key", "1.10"),
        ("proxy.keys.a.key", "0x10"),
        ("proxy.keys.b.key", "yes"),
    ] {
        assert_eq!(layer.values()[path], text);
    }
    let keys = ["1e5", "123456789012345678901234567890", "True"];
    assert_eq!(layer.values()["upstreams.u.keys"], serde_json::json!(keys));
    assert_eq!(layer.values()["rl.batch_size"].as_u64(), Some(16));
}

#[test]
fn a_key_that_can_never_match_is_refused() {
    let layer = read(
        "llm: {api_key: a b c d e f g}\nproxy: {keys: {a: {key: '', agents: [b]}}}\nupstreams: {u: {keys: [schlüssel]}}\n",
    );
    insta::assert_snapshot!(lines(&layer.problems), @r#"
    llm.api_key in /etc/it/config.yaml: "… f g" is not allowed: ASCII text without spaces, or ${NAME} for a variable of the environment
    proxy.keys.a.key in /etc/it/config.yaml: "…" is not allowed: ASCII text without spaces, or ${NAME} for a variable of the environment, not empty: leave it out for none
    upstreams.u.keys in /etc/it/config.yaml: "[…]" is not allowed: a list of ASCII texts without spaces, or of ${NAME} for variables of the environment
    "#);
    // The file is as version 0.3.3 wrote it, without a key, and causes a warning.
    let layer = read("proxy: {api_key: ''}\n");
    assert!(layer.problems.is_empty() && layer.values().is_empty());
    assert_eq!(layer.inert[0].key, "proxy.api_key");
    // An empty variable is none, as Docker sets each of a list.
    let blanks = [
        ("PROXY__API_KEY", " "),
        ("PROXY__PORT", ""),
        ("MODE", ""),
        ("LLM__PROVIDER", "\t"),
    ];
    let owned = blanks.map(|(name, blank)| (format!("{ENV_PREFIX}{name}"), blank.to_owned()));
    let layer = Layer::environment(owned.into_iter());
    assert!(layer.problems.is_empty() && layer.values().is_empty());
}

#[test]
fn a_file_that_is_no_yaml_says_where() {
    let error = |text: &str| {
        Layer::text("config.yaml".into(), text)
            .unwrap_err()
            .to_string()
    };
    insta::assert_snapshot!(error("rl:\n  a: [1\nb: 2\n"), @r#"config.yaml is not YAML: line 3 column 2: illegal placement of ':' indicator"#);
    insta::assert_snapshot!(error("mode: rl\nmode: auto\n"), @r#"config.yaml is not YAML: line 2 column 1: duplicate mapping key: mode"#);
}

#[test]
fn what_is_off_and_not_built_is_not_worth_a_word() {
    let layer = read("memory: {use_embeddings: false}\nwechat: {enabled: true}\n");
    let [inert] = &layer.inert[..] else { panic!() };
    assert_eq!(inert.key, "wechat.enabled");
}

#[test]
fn a_model_of_one_word_is_a_name_unless_it_lies_beside_the_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("here"), "").unwrap();
    let beside = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    for (given, model) in [
        ("Qwen3-8B", "Qwen3-8B".to_owned()),
        ("here", beside("here")),
        ("small.gguf", beside("small.gguf")),
    ] {
        let text = format!("rl: {{model: {given}}}\n");
        let layer = Layer::text(dir.path().join("config.yaml"), &text).unwrap();
        assert_eq!(layer.values()["rl.model"], model);
    }
}
