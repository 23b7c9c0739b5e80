use metaclaw_engine::device::cuda;

use super::*;

fn resolve(flags: &[&str], env: &[(&str, &str)]) -> Result<Resolved, ArgsError> {
    let flags = ["metaclaw-trainer", "--model", "m"].iter().chain(flags);
    let args = Args::try_parse_from(flags).unwrap();
    args.resolve(|name| {
        let found = env.iter().find(|(key, _)| *key == name)?;
        Some(found.1.to_owned())
    })
}

#[test]
fn a_flag_wins_over_the_environment() {
    let env = [
        ("METACLAW_PORT", "7"),
        ("METACLAW_API_KEY", "env"),
        ("HOME", "/h"),
    ];
    let from_env = resolve(&[], &env).unwrap();
    assert_eq!(from_env.address.port(), 7);
    assert_eq!(from_env.key, Some(ApiKey::new("env")));
    let folder = PathBuf::from("/h/.cache/metaclaw/checkpoints");
    assert_eq!(from_env.checkpoint_dir, folder);
    let from_flags = resolve(&["--port", "0", "--api-key", "flag"], &env).unwrap();
    assert_eq!(from_flags.address.port(), 0);
    assert_eq!(from_flags.key, Some(ApiKey::new("flag")));
    let threads = |flags: &[&str]| {
        let env = [("HOME", "/h"), ("OMP_NUM_THREADS", "3")];
        resolve(flags, &env).unwrap().n_threads
    };
    assert_eq!((threads(&[]), threads(&["--threads", "5"])), (3, 5));
}

#[test]
fn devices_are_what_is_asked_for_and_serving_follows_training() {
    let devices = |flags: &[&str], env: &[(&str, &str)]| {
        let all = [&[("HOME", "/h")], env].concat();
        let found = resolve(flags, &all).unwrap();
        [found.training, found.serving].map(|it| it.to_string())
    };
    let flags = ["--training-devices", "cpu,cpu"];
    assert_eq!(devices(&flags, &[]), ["cpu,cpu", "cpu,cpu"]);
    let env = [("METACLAW_INFERENCE_DEVICES", "cpu")];
    assert_eq!(devices(&flags, &env), ["cpu,cpu", "cpu"]);
    let vllm = [
        ("METACLAW_INFERENCE_BACKEND", "vllm"),
        ("METACLAW_INFERENCE_DEVICES", "1"),
    ];
    // GPU 1 is vLLM's.
    assert_eq!(devices(&flags, &vllm), ["cpu,cpu", "cpu,cpu"]);
}

#[test]
fn vllm_is_found_or_started() {
    let home = ("HOME", "/h");
    let inference = |flags: &[&str], env: &[(&str, &str)]| {
        let env = [&[home], env].concat();
        resolve(flags, &env).unwrap().inference
    };
    assert_eq!(inference(&[], &[]), None);
    let url = ("METACLAW_INFERENCE_URL", "http://127.0.0.1:9");
    let found = InferenceServer::Found {
        url: url.1.to_owned(),
        key: Some(ApiKey::new("k")),
        max_rank: None,
    };
    let key = ("METACLAW_INFERENCE_KEY", "k");
    assert_eq!(inference(&[], &[url, key]), Some(found));
    let more = "--inference-args=--enforce-eager --seed 1";
    let started = InferenceServer::Started {
        python: "/v/python".into(),
        arguments: ["--enforce-eager", "--seed", "1"].map(str::to_owned).into(),
        max_rank: 64,
        devices: None,
    };
    let flags = [
        more,
        "--inference-max-rank=33",
        "--inference-python=/v/python",
    ];
    let backend = ("METACLAW_INFERENCE_BACKEND", "vllm");
    assert_eq!(inference(&flags, &[backend]), Some(started));
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let home = ("HOME", "/h");
    let errors = [
        resolve(&["--host", "0.0.0.0"], &[home]),
        resolve(&["--host", "0.0.0.0"], &[home, ("METACLAW_API_KEY", "")]),
        resolve(&[], &[home, ("METACLAW_TRAINING_DEVICES", "0,99")]),
        resolve(&["--inference-devices", "gpu"], &[home]),
        resolve(&["--inference-backend", "sglang"], &[home]),
        resolve(&["--inference-url", "https://box:8001"], &[home]),
        resolve(
            &["--inference-url", "http://box:8001"],
            &[home, ("METACLAW_INFERENCE_BACKEND", "hf")],
        ),
        resolve(
            &["--inference-backend", "vllm", "--inference-max-rank", "513"],
            &[home],
        ),
        resolve(&[], &[home, ("METACLAW_PORT", "high")]),
        resolve(&[], &[]),
    ]
    .map(|result| result.unwrap_err().to_string());
    let shown = errors.join("\n");
    // The messages name this machine's devices.
    let seen = cuda().to_string();
    insta::assert_snapshot!(shown.replace(&seen, "[what libtorch and the machine have]"));
    let flags = ["--inference-backend", "hf", "--training-devices", "cpu"];
    assert!(resolve(&flags, &[home]).is_ok());
}

/// The page about other programs names flags of the fork's server that this one takes.
#[test]
fn every_flag_that_people_from_the_fork_are_told_is_understood() {
    let page = include_str!("../../../../docs/using/coming-from-elsewhere.md");
    let spans = page.split('`').skip(1).step_by(2);
    let lines: Vec<&str> = spans
        .filter(|it| it.starts_with("metaclaw-trainer --"))
        .collect();
    assert!(lines.len() >= 5, "{lines:?}");
    for line in lines {
        let parsed = Args::try_parse_from(line.split_whitespace());
        assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
    }
}
