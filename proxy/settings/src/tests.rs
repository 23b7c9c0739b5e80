use metaclaw_chat::Mode;
use std::path::Path;

use super::*;
use crate::testing::cases;

mod read;

fn file(text: &str) -> Layer {
    Layer::text("/etc/it/config.yaml".into(), text).unwrap()
}

fn loaded(text: &str) -> Loaded {
    Loaded::new(vec![file(text)]).unwrap()
}

fn refusal(text: &str) -> String {
    Loaded::new(vec![file(text)]).unwrap_err().to_string()
}

#[test]
fn flags_come_before_the_environment_and_that_before_the_file() {
    let set = |origin, value: &str| {
        let mut layer = Layer::empty(origin);
        layer.set("proxy.port", &Value::from(value));
        layer
    };
    let all = [
        file("proxy: {port: 1}\nmode: rl\n"),
        set(Origin::Environment, "2"),
        set(Origin::Flags, "3"),
    ];
    for (n_layers, port) in [(1, 1), (2, 2), (3, 3)] {
        let loaded = Loaded::new(all[..n_layers].to_vec()).unwrap();
        assert_eq!(loaded.config.gateway.proxy.port, port);
        assert_eq!(loaded.config.learner.mode, Mode::Rl);
    }
    assert_eq!(loaded("").config, Config::default());
}

#[test]
fn nobody_listens_to_the_world_without_a_key() {
    insta::assert_snapshot!(refusal("proxy: {host: 192.168.1.5}\n"), @r#"proxy.host in /etc/it/config.yaml: "192.168.1.5" is not allowed: without a key, 127.0.0.1 or ::1; to be reached from elsewhere, set proxy.api_key (in the environment: METACLAW__PROXY__API_KEY), or make a key with `metaclaw keys add`"#);
    let address = |loaded: &Loaded| loaded.config.gateway.proxy.address().to_string();
    let with_key = loaded("proxy: {host: 192.168.1.5, api_key: sk-1}\n");
    assert_eq!(address(&with_key), "192.168.1.5:30000");
    let single = loaded("proxy: {host: 192.168.1.5, keys: {phone: {key: k, agents: [main]}}}\n");
    assert!(single.config.gateway.proxy.requires_key());
    let migrated = loaded("proxy: {host: 0.0.0.0, port: 30000}\n");
    assert_eq!(address(&migrated), "127.0.0.1:30000");
    insta::assert_snapshot!(migrated.notices.join("\n"), @"proxy.host 0.0.0.0 without a key: MetaClaw listens on 127.0.0.1 only, and nobody outside this machine or container can reach it. Set proxy.api_key (in the environment: METACLAW__PROXY__API_KEY)");
}

#[test]
fn a_policy_model_is_found_or_missed_in_words() {
    let cache = tempfile::tempdir().unwrap();
    let demo = cache.path().join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let policy = |text: &str| match Policy::from_config(&loaded(text).config, cache.path()) {
        Ok(Policy::Local { model }) if model == demo => "the demo model".to_owned(),
        Ok(policy) => format!("{policy:?}"),
        Err(error) => error.to_string(),
    };
    assert!(
        policy("trainer: {model: demo}\n").starts_with("trainer.model: the demo model is not at ")
    );
    std::fs::create_dir_all(demo.parent().unwrap()).unwrap();
    std::fs::write(&demo, "").unwrap();
    for (text, said) in cases(
        r#"
        {mode: auto} => None
        {mode: skills_only, trainer: {model: /no/such}, llm: {api_base: 'https://a.example/v1'}} => None
        {trainer: {model: /no/such.gguf}} => trainer.model: no file or folder /no/such.gguf: give a folder in Hugging Face form, a GGUF file, or (trainer.model) the name of a model at the Hugging Face hub, as in Qwen/Qwen3-4B, which is fetched. If it is on the machine of a training server, set rl.model and rl.remote_url, the server's address
        {mode: rl, rl: {model: /mnt/models/Qwen3-4B}} => rl.model: no file or folder /mnt/models/Qwen3-4B: give a folder in Hugging Face form, a GGUF file, or (trainer.model) the name of a model at the Hugging Face hub, as in Qwen/Qwen3-4B, which is fetched. If it is on the machine of a training server, set rl.model and rl.remote_url, the server's address
        {mode: rl} => mode rl needs a policy model: set trainer.model (a folder in Hugging Face form, a GGUF file, or demo), or mode: skills_only
        {agents: {work: {mode: rl}}} => mode rl needs a policy model: set trainer.model (a folder in Hugging Face form, a GGUF file, or demo), or mode: skills_only
        {rl: {backend: remote}} => rl.backend remote needs rl.remote_url, as in http://127.0.0.1:8000
        {trainer: {model: Qwen/Qwen3-4B}} => Local { model: "Qwen/Qwen3-4B" }
        {trainer: {model: demo}} => the demo model
        {mode: skills_only, trainer: {model: demo}} => the demo model
        {mode: skills_only, trainer: {model: demo}, agents: {work: {mode: rl}}} => the demo model
        {rl: {remote_url: 'http://127.0.0.1:8000/', model: /mnt/models/Qwen3-4B}} => Remote { url: "http://127.0.0.1:8000", key: None }
        {rl: {remote_url: 'http://127.0.0.1:8000/'}} => Remote { url: "http://127.0.0.1:8000", key: None }
        "#,
    ) {
        assert_eq!(policy(text), said, "{text}");
    }
    // The Python original's name at a hub does not stop a start that works without it.
    for text in [
        "rl: {model: Qwen/Qwen3-4B}\n",
        "mode: skills_only\nrl: {model: Qwen/Qwen3-4B}\n",
        "mode: rl\nrl: {model: Qwen/Qwen3-4B}\nllm: {api_base: 'https://a.example/v1'}\n",
    ] {
        assert_eq!(policy(text), "None", "{text}");
        let told = without_effect(&loaded(text).config).unwrap();
        assert!(told.reason.contains("set trainer.model to this name"));
    }
}

#[test]
fn the_trainer_is_told_what_the_file_says_of_it() {
    let flags = |text: &str| loaded(text).config.trainer.flags();
    assert_eq!(flags(""), ["--keep=5", "--max-queue=256"]);
    let all = "trainer: {keep: 2, max_queue: 8, dtype: f32, memory: 3 GiB, quantization: int8, devices: '0,1'}\n";
    let told = "--keep=2 --max-queue=8 --dtype=f32 --memory=3221225472 --quantization=int8 --training-devices=0,1 --inference-devices=0,1";
    assert_eq!(flags(all).join(" "), told);
}

#[test]
fn what_is_shown_is_in_force_and_masked() {
    let loaded = loaded(
        "llm: {api_key: sk-0123456789abcd}\nrl: {batch_size: 8}\nupstreams: {a: {url: 'http://h', keys: [sk-0123456789wxyz]}}\n",
    );
    let keys = loaded.get("upstreams.a.keys").unwrap().value;
    assert_eq!(keys, serde_json::json!(["sk-…wxyz"]));
    assert_eq!(loaded.get("llm.api_key").unwrap().value, "sk-…abcd");
    let batch = loaded.get("rl.batch_size").unwrap();
    assert_eq!(batch.value, 8);
    assert_eq!(batch.origin.as_deref(), Some("/etc/it/config.yaml"));
    let votes = loaded.get("rl.prm_m").unwrap();
    assert_eq!((&*votes.key, votes.origin), ("judge.votes", None));
    assert_eq!(votes.value, 3);
    let unknown = loaded.get("judge.vote").unwrap_err();
    assert!(unknown.contains("judge.votes"));
    let shown = serde_json::to_string(&loaded.effective()).unwrap();
    assert!(!shown.contains("0123456789"));
}

#[test]
fn calendars_are_resolved_as_paths_are_and_shown_as_keys_are() {
    let address = "https://calendar.example/secret/basic.ics";
    let text = format!("scheduler: {{ics: [my hours.ics, '{address}']}}\n");
    let loaded = loaded(&text);
    let read = loaded.config.scheduler.ics.iter();
    let read: Vec<&str> = read.map(metaclaw_chat::Secret::expose).collect();
    assert_eq!(read, ["/etc/it/my hours.ics", address]);
    let shown = loaded.get("scheduler.ics").unwrap().value.to_string();
    assert_eq!(shown, r#"["….ics","….ics"]"#);
}

#[test]
fn the_example_file_is_the_defaults() {
    let example = loaded(&example::example());
    assert_eq!((example.unknown.len(), example.inert.len()), (0, 0));
    assert_eq!(example.config, Config::default());
}

#[test]
fn the_laptop_example_says_what_it_means() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/laptop/config.yaml");
    let loaded = Loaded::new(vec![Layer::file(path, true).unwrap()]).unwrap();
    assert_eq!((loaded.unknown.len(), loaded.inert.len()), (0, 0));
    assert_eq!(loaded.config.learner.mode, Mode::Rl);
    let learner = loaded.config.learner;
    assert_eq!((learner.rl.lora_rank, learner.rl.batch_size), (16, 4));
    // The default learning settings are those that the bench measures.
    assert_eq!(learner.rl.method, metaclaw_learner::Methods::default());
    let (rate, warmup) = (learner.rl.learning_rate, learner.rl.warmup_steps);
    assert_eq!((rate, warmup), (None, 0));
    assert!(learner.gate.enabled);
    metaclaw_reward::Rules::compile(&learner.judge.rules).unwrap();
}

#[test]
fn a_file_with_keys_that_others_may_read_is_remarked() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    let notices = |text: &str, mode: u32| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        load(Sources::in_folder(folder.path(), &[]))
            .unwrap()
            .notices
    };
    let with_key = "llm: {api_key: sk-0123456789abcd}\n";
    assert!(notices(with_key, 0o644)[0].contains("others may read "));
    assert!(notices(with_key, 0o600).is_empty());
    assert!(notices("mode: rl\n", 0o644).is_empty());
}

#[test]
fn a_file_that_never_ends_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    let error = Layer::file(file, false).unwrap_err().to_string();
    assert!(error.contains("it is no regular file"), "{error}");
}

#[test]
fn what_a_section_refuses_is_named_by_its_place() {
    let told = [
        "proxy: {keys: {phone: {key: k}}}\n",
        "proxy: {keys: {a: {key: k, agents: [b]}, phone: {key: k, agents: [b, ../x]}}}\n",
        "agents: {'a b': {upstream: [llm]}}\n",
        "judge: {rules: [{on: next, score: 1}, {on: replly, score: 1}]}\n",
        "judge: {rules: [{on: reply, max_words: 4}]}\n",
        "judge: {rules: [{on: reply, max_words: 4, score: 2}]}\n",
        "judge: {rules: {on: reply}}\n",
        "rl: {method: grpo+binary_rl}\n",
    ]
    .map(refusal);
    insta::assert_snapshot!(told.join("\n"), @r#"
    proxy.keys.phone in /etc/it/config.yaml: missing field `agents`
    proxy.keys.phone.agents.1 in /etc/it/config.yaml: agent name "../x" is not allowed: 1 to 64 of a-z A-Z 0-9 _ - ., beginning with a letter, a digit or _
    agents.a b in /etc/it/config.yaml: agent name "a b" is not allowed: 1 to 64 of a-z A-Z 0-9 _ - ., beginning with a letter, a digit or _
    judge.rules.1.on in /etc/it/config.yaml: "replly" is not allowed: reply, next
    judge.rules.0 in /etc/it/config.yaml: missing field `score`
    judge.rules.0.score in /etc/it/config.yaml: score 2 is not allowed: -1, 0 or 1
    judge.rules in /etc/it/config.yaml: invalid type: map, expected a sequence
    rl.method in /etc/it/config.yaml: rl.method binary_rl and grpo both say what a verdict does: give one of binary_rl, hybrid, grpo, metaclaw
    "#);
}

/// Loads a file with variables of the environment, and a token that `metaclaw auth` keeps.
fn with_variables(text: &str, variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let folder = tempfile::tempdir().unwrap();
    let sources = Sources::in_folder(folder.path(), variables);
    std::fs::write(&sources.file, text).unwrap();
    let profile = r#"{"profiles": [{"profile_id": "kimi:default", "provider": "kimi", "method": "api_key", "api_key": "${KEPT}"}]}"#;
    std::fs::write(&sources.profiles, profile).unwrap();
    let place = format!("{}/", folder.path().display());
    load(sources).map_err(|error| error.to_string().replace(&place, ""))
}

#[test]
fn a_variable_that_a_secret_or_an_address_names_is_put_in() {
    let (url, list) = ("http://u.example/v1", "http://c.example/a.ics");
    let addresses = [("HOST", "h.example"), ("URL", url), ("LIST", list)];
    let rest = [("MY_KEY", "sk-1"), ("KEPT", "sk-5"), ("DIR", "/srv")];
    let set = [addresses, rest].concat();
    let whole = "llm: {api_key: '${MY_KEY}', api_base: 'http://${HOST}/v1'}\n\
                 judge: {url: '${URL}', key: '${OTHER:-sk-2}'}\n\
                 upstreams: {mine: {url: 'http://h', keys: ['${MY_KEY}', sk-3], proxy: 'http://u:${MY_KEY}@p:1'}}\n\
                 proxy: {api_key: '${MY_KEY}', keys: {phone: {key: 'x-${MY_KEY}', agents: [main]}}}\n\
                 skills: {dir: '${DIR}/sk', share: {key: '$${MY_KEY}'}}\nopd: {teacher_api_key: '${NONE:-}'}\n\
                 scheduler: {ics: ['${LIST}']}\n";
    let loaded = with_variables(whole, &set).unwrap();
    for (key, value) in cases(
        r#"
        llm.api_key => sk-1
        llm.api_base => http://h.example/v1
        judge.url => http://u.example/v1
        judge.key => sk-2
        upstreams.mine.keys => ["sk-1","sk-3"]
        upstreams.mine.proxy => http://u:sk-1@p:1
        proxy.api_key => sk-1
        proxy.keys.phone.key => x-sk-1
        skills.share.key => ${MY_KEY}
        skills.dir => /srv/sk
        opd.teacher_api_key => none
        scheduler.ics => ["http://c.example/a.ics"]
        "#,
    ) {
        let set = loaded.set_at(key).map(|(_, value)| one_line(value));
        assert_eq!(set.as_deref().unwrap_or("none"), value, "{key}");
    }
    let api_key = |text: &str, variables: &[(&str, &str)]| {
        let config = with_variables(text, variables).unwrap().config;
        assert_eq!(config.gateway.proxy.api_key, None, "empty is none");
        config.llm.api_key.map(|key| key.expose().to_owned())
    };
    let of_environment = [
        ("METACLAW__LLM__API_KEY", "${MY_KEY}"),
        ("METACLAW__PROXY__API_KEY", ""),
        ("MY_KEY", "sk-4"),
    ];
    assert_eq!(api_key("", &of_environment).as_deref(), Some("sk-4"));
    let kept = api_key("llm: {provider: kimi}", &set);
    assert_eq!(kept.as_deref(), Some("sk-5"));
}

#[test]
fn a_secret_of_another_form_or_without_its_variable_stops_the_start() {
    for (text, said) in cases(
        r#"
        llm: {api_key: '${UNSET}'} => llm.api_key in config.yaml: "…" is not allowed: the variable UNSET, which ${UNSET} stands for, is not set in the environment: set it, or set METACLAW__LLM__API_KEY, or keep the key with `metaclaw auth`
        judge: {key: '${UNSET}'} => set it, or set METACLAW__JUDGE__KEY
        upstreams: {mine: {url: 'http://h', keys: [a, '${UNSET}']}} => METACLAW__UPSTREAMS__MINE__KEYS
        llm: {api_base: '${UNSET}'} => "${UNSET}" is not allowed: the variable UNSET
        llm: {api_base: '${HOST}'} => an address that begins with http:// or https://
        llm: {provider: kimi} => llm.api_key in auth-profiles.json: "…" is not allowed: the variable KEPT
        llm: {api_key: '${BLANKS}'} => ASCII text without spaces
        llm: {api_key: 'a-${env:MY_KEY}'} => has to name a variable
        llm: {api_key: '${env:MY_KEY}'} => ${NAME} for a variable
        llm: {api_key: $MY_KEY} => ${NAME} for a variable
        llm: {api_key: os.environ/MY_KEY} => ${NAME} for a variable
        llm: {api_key: 'os.environ.get("MY_KEY")'} => ${NAME} for a variable
        llm: {api_key: '$MY_KEY}'} => ${NAME} for a variable
        llm: {api_key: '${MY_KEY'} => ${ is never closed: write ${NAME}: set it, or set METACLAW__LLM__API_KEY
        llm: {api_key: '${NESTED}'} => what NESTED stands for names another ${..}
        llm: {api_key: !env MY_KEY} => llm.api_key has the YAML tag !env, which means nothing here: write ${NAME}
        llm: !include llm.yaml => llm has the YAML tag !include
        upstreams: {mine: {url: 'http://h', keys: [a, !ENV '${MY_KEY}']}} => upstreams.mine.keys has the YAML tag !ENV
        llm: !secret {api_key: k} => llm has the YAML tag !secret
        skills: {dir: '${UNSET}/sk'} => skills.dir in config.yaml: "${UNSET}/sk" is not allowed: the variable UNSET
        skills: {dir: '~/${HOST'} => ${ is never closed
        llm: {api_key: '{env:MY_KEY}'} => ${NAME} for a variable
        llm: {api_key: {env: MY_KEY}} => ${NAME} for a variable
        llm: {api_key: 'env:MY_KEY'} => ${NAME} for a variable
        llm: {api_key: '%MY_KEY%'} => ${NAME} for a variable
        evolver: {key: process.env.MY_KEY} => evolver.key in config.yaml
        upstreams: {mine: {url: 'http://h', keys: ['$MY_KEY']}} => ${NAME} for variables
        proxy: {api_key: $MY_KEY} => ${NAME} for a variable
        "#,
    ) {
        let some = [("MY_KEY", "sk-1"), ("HOST", "h")];
        let odd = [("BLANKS", "a b"), ("NESTED", "${MY_KEY}")];
        let variables = [some, odd].concat();
        let error = with_variables(text, &variables).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn an_unknown_provider_is_refused_with_the_nearest_name() {
    for (text, said) in cases(
        r#"
        llm: {provider: opnai} => llm.provider in config.yaml: "opnai" is not allowed: did you mean openai? One of openai, anthropic,
        llm: {provider: OpenAI} => did you mean openai?
        llm: {provider: opnai, api_base: 'http://h/v1', api_key: k} => did you mean openai?
        llm: {provider: deepsek} => did you mean deepseek?
        llm: {provider: bedrok} => did you mean bedrock?
        llm: {provider: somebody} => "somebody" is not allowed: openai, anthropic,
        llm: {provider: somebody} => for another server, set llm.api_base to its address
        judge: {provider: antropic, key: k} => judge.provider in config.yaml: "antropic" is not allowed: did you mean anthropic?
        evolver: {provider: olama} => did you mean ollama?
        judge: {provider: somebody} => set judge.url to its address
        rl: {prm_provider: opnai} => judge.provider in config.yaml
        llm: {provider: openai-codex} => allowed
        llm: {provider: custom} => allowed
        llm: {provider: bedrock} => allowed
        llm: {provider: mine, api_base: 'http://h/v1'} => allowed
        judge: {provider: mine, url: 'http://h/v1'} => allowed
        "#,
    ) {
        let layer = Layer::text("config.yaml".into(), text).unwrap();
        let error = Loaded::new(vec![layer]).err();
        let told = error.map_or_else(|| "allowed".to_owned(), |error| error.to_string());
        assert!(told.contains(said), "{text}: {told}");
    }
    let mut environment = Layer::empty(Origin::Environment);
    environment.set("llm.provider", &"opnai".into());
    let told = Loaded::new(vec![environment]).unwrap_err().to_string();
    assert!(
        told.starts_with("llm.provider in the environment: \"opnai\""),
        "{told}"
    );
}
