//! Programs that run at environments.

use futures_util::future;
use metaclaw_chat::RolloutId;
use metaclaw_test_kit::{Reply, Server};
use reqwest::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;

use super::kit::{RunFolder, ScriptedHost, ScriptedProxy, http, ran, setup, tasks};
use crate::{
    pool::serve::EnvironmentServer,
    run::{ServeSetup, serve},
};

/// Serves the folder's file, with or without a key.
async fn environment(folder: &RunFolder, key: Option<&str>) -> EnvironmentServer {
    serve(&ServeSetup {
        file: &folder.file(),
        address: "127.0.0.1:0".parse().unwrap(),
        key: key.map(Into::into),
        metaclaw: "/nowhere".into(),
        folder: folder.path("serve"),
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn episodes_run_at_other_places_and_those_of_a_dead_one_run_again_elsewhere() {
    let served = RunFolder::new("command: ['true']\nat_once: 2\n");
    let good = environment(&served, Some("k")).await;
    let good_url = format!("http://{}", good.address().unwrap());
    // It says that it is well, and hangs up when it is asked to run.
    let bad = Server::new(|request| match request.path() {
        "/healthz" => Reply::json(json!({"at_once": 2})),
        _ => Reply::status(500, "broken"),
    });
    let bad_url = bad.url();
    let mut serving = JoinSet::new();
    serving.spawn(async move { good.serve(std::future::pending()).await.unwrap() });
    let yaml = format!(
        "environments: ['{good_url}', '{bad_url}', 'http://127.0.0.1:9']\ngroup_size: 4\ntasks_per_step: 1\nresample: 0\nsteps: 1\n"
    );
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(&yaml));
    let (file, host) = (folder.file(), ScriptedHost::default());
    let mut setup = setup(&file, &host, &proxy, &folder);
    setup.environment_key = Some("k".into());
    let summary = ran(&setup, &tasks(1, 0)).await.unwrap();
    assert_eq!(summary.funnel.scored, 4);
    assert!(
        (1..=2).contains(&summary.funnel.failed),
        "{:?}",
        summary.funnel
    );
    setup.environment_key = Some("wrong".into());
    setup.name = Some("other".to_owned());
    let error = ran(&setup, &tasks(1, 0)).await.unwrap_err();
    assert!(error.contains("no environment is left"), "{error}");
}

#[tokio::test]
async fn an_environment_that_others_can_reach_needs_a_key() {
    let served = RunFolder::new("command: ['true']\n");
    let error = serve(&ServeSetup {
        file: &served.file(),
        address: "0.0.0.0:0".parse().unwrap(),
        key: None,
        metaclaw: "/nowhere".into(),
        folder: served.path("serve"),
    })
    .await
    .unwrap_err();
    assert!(
        error.to_string().contains("METACLAW_ENVIRONMENT_KEY"),
        "{error}"
    );
}

async fn run_at(url: &str) -> StatusCode {
    let job = json!({
        "rollout": RolloutId::new(0, rand::random()), "task": {},
        "base_url": "", "anthropic_base_url": "", "api_key": "",
    });
    let reply = http().post(url).json(&job).send().await;
    reply.unwrap().status()
}

#[tokio::test]
async fn an_episode_waits_a_moment_for_a_slot() {
    let served = RunFolder::new("shell: true\ncommand: 'sleep 0.3'\nat_once: 1\n");
    let server = environment(&served, None).await;
    let url = format!("http://{}/run", server.address().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move { server.serve(std::future::pending()).await.unwrap() });
    let statuses = future::join(run_at(&url), run_at(&url)).await;
    assert_eq!(statuses, (StatusCode::OK, StatusCode::OK));
}
