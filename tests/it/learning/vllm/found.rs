//! A vLLM that runs already: what it must never be asked to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};

use metaclaw_test_kit::until_within;
use metaclaw_tests::{
    external,
    trainer::{Start, Trainer},
    vllm::Vllm,
    wait::until,
};
use metaclaw_turns::{Tokens, TurnLog, TurnsConfig};
use serde_json::{Value, json};

use super::{
    EXACT, SEEN_WITHIN,
    api::{Api, Failed},
    ready,
};
use crate::learning::{answers, home_without_wishes};

/// Adapters that vLLM keeps in memory in these tests; more are read from their folders again.
const IN_MEMORY: usize = 4;
/// A block of vLLM's prefix cache on a CPU has 128 tokens: this prompt fills two.
const LONG: usize = 120;

fn start_at(url: &str, model: PathBuf, checkpoints: PathBuf) -> Start {
    let flags = ["--dtype=f32".to_owned(), format!("--inference-url={url}")];
    Start {
        model: Some(model),
        checkpoints: Some(checkpoints),
        flags: flags.to_vec(),
        ..Start::default()
    }
}

/// The adapters of a vLLM, and the folder of each.
async fn loaded(vllm: &Vllm) -> BTreeMap<String, PathBuf> {
    vllm.adapters().await.into_iter().collect()
}

/// What vLLM calls this adapter, and its folder.
async fn served(vllm: &Vllm, name: &str) -> (String, PathBuf) {
    let begin = format!("{name}~");
    let all = loaded(vllm).await;
    let found = all.iter().find(|(served, _)| served.starts_with(&begin));
    let (name, folder) = found.unwrap_or_else(|| panic!("no {name} in {all:?}"));
    (name.clone(), folder.clone())
}

/// Every reply's numbers are those of the adapter that it was asked of.
async fn assert_right(api: &Api, of: &BTreeMap<Option<String>, Vec<Tokens>>) {
    for (asked, all) in of {
        assert!(all.iter().all(|it| it.adapter == *asked), "{asked:?}");
    }
    let largest = api.rescored(of).await;
    eprintln!("largest differences in nats: {largest:?}");
    assert!(largest.values().all(|it| *it <= EXACT), "{largest:?}");
}

/// One reply of each, at once.
async fn at_once(api: &Api, models: &[&str]) -> BTreeMap<Option<String>, Vec<Tokens>> {
    let chats = models.iter().map(|model| api.chat(model, "Count.", 24));
    let replies = futures_util::future::join_all(chats).await;
    let mut of: BTreeMap<_, Vec<Tokens>> = BTreeMap::new();
    for (model, reply) in models.iter().zip(replies) {
        let name = Some((*model).to_owned()).filter(|name| name != "base");
        of.entry(name).or_default().push(reply.unwrap());
    }
    of
}

/// A folder is deleted when its adapter was unloaded and its last reply has ended, though vLLM has long put others in its place:
/// vLLM would end with a folder that it does not find.
async fn a_folder_outlives_its_last_reply(api: &Api, vllm: &Vllm, run: &str) -> PathBuf {
    let (name, folder) = served(vllm, "a").await;
    let long = api.begin("a", "Count to a hundred.", 160).await.unwrap();
    api.unload("a").await;
    assert!(!loaded(vllm).await.contains_key(&name));
    assert!(folder.join("adapter_model.safetensors").is_file());
    for n in 0..=IN_MEMORY {
        let other = format!("other-{n}");
        api.save(run, &other).await;
        assert_eq!(api.load(&other).await.0, 200);
        api.chat(&other, "Go.", 2).await.unwrap();
    }
    assert!(folder.is_dir(), "its reply has not ended");
    let long = api.sampled(&long.end().await.unwrap()).await;
    assert_eq!(long.ids.len(), 160);
    // Loaded, pushed out of memory and read again: the folder is there.
    let pushed_out = api.chat("b", "Go.", 24).await.unwrap();
    let again = api.chat("a", "Go.", 24).await.unwrap();
    let (again_as, again_in) = served(vllm, "a").await;
    assert!(again_as != name && again_in != folder, "{again_as}");
    let of = [("a", vec![long, again]), ("b", vec![pushed_out])];
    let of = of.map(|(name, all)| (Some(name.to_owned()), all));
    assert_right(api, &BTreeMap::from(of)).await;
    folder
}

/// New weights under an old name have a new name and a new folder at vLLM, whose prefix cache knows adapters by these.
async fn new_weights_have_a_new_name(api: &Api, vllm: &Vllm, run: &str) {
    let prompt = "tea ".repeat(LONG) + "and then?";
    let ask = async || {
        let mut all = Vec::new();
        for _ in 0..2 {
            all.push(api.chat("b", &prompt, 24).await.unwrap());
        }
        assert_right(api, &BTreeMap::from([(Some("b".to_owned()), all)])).await;
        served(vllm, "b").await
    };
    let first = ask().await;
    api.learn(run, 77).await;
    api.save(run, "b").await;
    let second = ask().await;
    assert!(first.0 != second.0 && first.1 != second.1, "{second:?}");
    let names = loaded(vllm).await;
    assert!(!names.contains_key(&first.0), "{names:?}");
}

/// An adapter that vLLM alone refuses does not serve: its agent is answered by the base, and the status says why.
async fn what_vllm_refuses_is_told_as_lost(api: &Api, trainer: &Trainer) {
    let run = api.run(32).await;
    api.learn(&run, 5).await;
    api.save(&run, "wide").await;
    let (status, said) = api.load("wide").await;
    assert_eq!(said["error"]["code"], "adapter_refused", "{said}");
    assert!(status == 400 && said.to_string().contains("32"), "{said}");
    let home = home_without_wishes().with_env("METACLAW__RL__REMOTE_URL", &trainer.url);
    let log = TurnLog::open(&home.path().join("turns"), &TurnsConfig::default()).unwrap();
    let agent = "_default".parse().unwrap();
    let wide = Some("wide".to_owned());
    log.set_serving(&agent, wide).await.unwrap();
    log.close().await;
    let proxy = home.start().await.unwrap();
    let status = async || home.ask(&["status", "--json"]).await.unwrap();
    let is_lost = |status: &Value| status["lost"][0]["adapter"] == "wide";
    let status = until_within(SEEN_WITHIN, "a lost adapter", status, is_lost).await;
    let why = status["lost"][0]["why"].to_string();
    assert!(why.contains("max_lora_rank"), "{why}");
    assert_eq!(answers(&proxy).await, None, "the base answers");
    proxy.stop().await.unwrap();
}

/// The same model, but for a number of its configuration.
fn other_model(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let link = to.join(entry.file_name());
        std::os::unix::fs::symlink(entry.path(), link).unwrap();
    }
    let config = fs::read(from.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config["rms_norm_eps"] = json!(0.05);
    fs::remove_file(to.join("config.json")).unwrap();
    fs::write(to.join("config.json"), config.to_string()).unwrap();
}

/// A vLLM that computes something else than the engine is not asked.
async fn another_model_is_refused(vllm: &Vllm, folder: &Path) {
    let model = folder.join("other");
    other_model(&external::converted(), &model);
    let trainer = Trainer::start(&start_at(&vllm.url, model, folder.join("second"))).await;
    let api = Api::of(&trainer);
    let said = async || api.inference().await;
    let is_refused = |said: &Value| said["state"] == "refused";
    let said = until_within(SEEN_WITHIN, "a refusal", said, is_refused).await;
    let why = said["why"].to_string();
    assert!(why.contains("does not serve the model"), "{why}");
    let failed = api.chat("base", "Go.", 2).await.unwrap_err();
    let Failed::Status(503, said) = &failed else {
        panic!("{failed:?}")
    };
    assert_eq!(said["error"]["code"], "inference_refused", "{said}");
    trainer.stop().await;
}

#[tokio::test]
#[ignore = "needs the binaries, the model and vLLM, cargo xtask test --all runs it"]
async fn a_vllm_that_runs_already_serves_each_adapter_as_it_is() {
    let Some(python) = external::vllm() else {
        println!("skipped: METACLAW_TEST_VLLM is not set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}");
    let start = start_at(&url, external::model(), folder.join("trainer"));
    // It may be there before the server that it asks.
    let trainer = Trainer::start(&start).await;
    let api = Api::of(&trainer);
    assert_eq!(api.inference().await["state"], "away");
    let failed = api.chat("base", "Go.", 2).await.unwrap_err();
    assert!(matches!(failed, Failed::Status(503, _)), "{failed:?}");
    let vllm = Vllm::start_on(port, &python, &external::converted(), folder);
    vllm.is_up().await;
    ready(&trainer, || vllm.said()).await;
    let said = api.inference().await;
    assert_eq!(
        (&said["url"], &said["command"]),
        (&json!(url), &Value::Null)
    );

    let run = api.run(16).await;
    for (seed, name) in [(1, "a"), (2, "b")] {
        api.learn(&run, seed).await;
        api.save(&run, name).await;
        assert_eq!(api.load(name).await.0, 200);
    }
    let of = at_once(&api, &["base", "a", "b", "base", "a", "b"]).await;
    assert_right(&api, &of).await;
    let gone = a_folder_outlives_its_last_reply(&api, &vllm, &run).await;
    new_weights_have_a_new_name(&api, &vllm, &run).await;
    what_vllm_refuses_is_told_as_lost(&api, &trainer).await;
    another_model_is_refused(&vllm, folder).await;
    let is_gone = async || !gone.exists();
    until(SEEN_WITHIN, is_gone).await.unwrap();
    // What is left is what it has loaded.
    let there: BTreeSet<PathBuf> = loaded(&vllm).await.into_values().collect();
    assert!(there.iter().all(|folder| folder.is_dir()), "{there:?}");
    api.chat("b", "Go.", 2).await.unwrap();

    vllm.stop().await;
    let is_away = async || api.inference().await["state"] == "away";
    until(SEEN_WITHIN, is_away).await.unwrap();
    trainer.stop().await;
}
