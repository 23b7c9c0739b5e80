//! Two homes that share their skills: two processes, and a folder or a bucket between them.

use std::{fs, path::Path, process::Stdio, time::Instant};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::harness::{Home, until};

/// A home that reaches no model, and looks at the share each second.
fn home(share: &str, person: &str) -> Home {
    Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: 'http://127.0.0.1:9/v1', model_id: m, api_key: sk-0123456789abcd}}\nskills: {{share: {{{share}, name: {person}, interval: 1 s}}}}\n"
    ))
}

fn write(home: &Home, name: &str, content: &str) {
    let folder = home.path().join("skills/main").join(name);
    fs::create_dir_all(&folder).unwrap();
    let text =
        format!("---\nname: {name}\ndescription: Use when asked of {name}.\n---\n\n{content}\n");
    fs::write(folder.join("SKILL.md"), text).unwrap();
}

async fn waiting(home: &Home) -> Vec<Value> {
    let listed = home.json(&["skills", "review", "--json"]).await;
    let listed = listed["waiting"].as_array().or(listed.as_array());
    listed.cloned().unwrap_or_default()
}

fn is_in_force(home: &Home, name: &str) -> bool {
    let file = Path::new("skills/main").join(name).join("SKILL.md");
    home.path().join(file).exists()
}

#[tokio::test]
async fn what_is_in_force_in_one_home_waits_for_review_in_the_other_and_the_seconds_are_printed() {
    let share = tempfile::tempdir().unwrap();
    let place = format!("folder: '{}'", share.path().display());
    let [anna, ben, carla] = ["Anna", "Ben", "Carla"].map(|person| home(&place, person));
    let running = [anna.start().await, ben.start().await];
    // Anna writes a skill; Ben reviews and accepts it.
    let at = Instant::now();
    write(&anna, "weather", "1. Ask for the city.");
    until("a skill", async || waiting(&ben).await, |it| it.len() == 1).await;
    println!(
        "a skill of Anna's waits at Ben's after {:.1} s",
        at.elapsed().as_secs_f64()
    );
    assert!(!is_in_force(&ben, "weather"));
    let shown = ben.ask(&["skills", "review"]).await;
    assert!(shown.contains("Anna"), "{shown}");
    let n = waiting(&ben).await[0]["n"].to_string();
    ben.ask(&["skills", "accept", &n]).await;
    assert!(is_in_force(&ben, "weather"));
    // A home that comes later gets it from Anna alone.
    let later = carla.start().await;
    until(
        "a skill",
        async || waiting(&carla).await,
        |it| it.len() == 1,
    )
    .await;
    assert!(!is_in_force(&carla, "weather"));
    for (home, proxy) in [&anna, &ben, &carla]
        .into_iter()
        .zip(running.into_iter().chain([later]))
    {
        home.stop(proxy).await;
    }
}

/// S3 as moto serves it, with a bucket, and a user who may only use the prefix `skills/`.
struct MotoServer {
    endpoint: String,
    id: String,
    secret: String,
    _server: Child,
}

impl MotoServer {
    async fn start() -> Self {
        let python = std::env::var_os("METACLAW_TEST_MOTO")
            .expect("`cargo xtask test --all` sets METACLAW_TEST_MOTO");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/sharing/moto_server.py");
        let mut server = Command::new(python)
            .arg(program)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let out = server.stdout.take().expect("its output");
        let line = BufReader::new(out).lines().next_line().await.unwrap();
        let told: Value = serde_json::from_str(&line.expect("moto serves")).unwrap();
        let text = |name: &str| told[name].as_str().map(str::to_owned).expect("a text");
        Self {
            endpoint: text("endpoint"),
            id: text("id"),
            secret: text("secret"),
            _server: server,
        }
    }

    fn home(&self, prefix: &str, person: &str, secret: &str) -> Home {
        let place = format!(
            "bucket: 's3://team-skills{prefix}', endpoint: '{}'",
            self.endpoint
        );
        home(&place, person)
            .with_variable("AWS_ACCESS_KEY_ID", &self.id)
            .with_variable("AWS_SECRET_ACCESS_KEY", secret)
    }
}

async fn problems(home: &Home) -> String {
    let status = home.json(&["status", "--json"]).await;
    status["share"]["problems"].to_string()
}

/// moto checks signatures and the user's rights.
#[tokio::test]
#[ignore = "needs moto, cargo xtask test --all runs it"]
async fn two_homes_share_through_a_bucket_and_wrong_credentials_are_said() {
    let moto = MotoServer::start().await;
    let anna = moto.home("/skills", "Anna", &moto.secret);
    let ben = moto.home("/skills/", "Ben", &moto.secret);
    let running = [anna.start().await, ben.start().await];
    assert!(
        running[0]
            .banner
            .contains("leaves    s3://team-skills/skills at http://127.0.0.1")
    );
    let at = Instant::now();
    write(&anna, "weather", "1. Ask for the city.");
    write(&anna, "sql ü", "1. Ask for the table.");
    until("a skill", async || waiting(&ben).await, |it| it.len() == 1).await;
    println!(
        "a skill of Anna's waits at Ben's after {:.1} s",
        at.elapsed().as_secs_f64()
    );
    // Its key is written and read; such a name of another person's skill is refused.
    let refused = "the name \\\"sql ü\\\" is not";
    until(
        refused,
        async || problems(&ben).await,
        |it| it.contains(refused),
    )
    .await;
    assert_eq!(problems(&anna).await, "[]");
    // What Anna removes no longer waits.
    fs::remove_dir_all(anna.path().join("skills/main/weather")).unwrap();
    until("no skill", async || waiting(&ben).await, Vec::is_empty).await;

    for (prefix, secret, why) in [
        ("/skills", "wrong", "answered 403 SignatureDoesNotMatch"),
        ("/other", moto.secret.as_str(), "answered 403 AccessDenied"),
    ] {
        let carla = moto.home(prefix, "Carla", secret);
        let proxy = carla.start().await;
        write(&carla, "mine", "1. Mine.");
        until(why, async || problems(&carla).await, |it| it.contains(why)).await;
        carla.stop(proxy).await;
        let log = carla.read("stderr.log");
        assert!(log.contains(why), "{log}");
        assert!(!log.contains(&moto.secret), "{log}");
    }
    for (home, proxy) in [&anna, &ben].into_iter().zip(running) {
        home.stop(proxy).await;
    }
}

#[tokio::test]
async fn a_folder_and_a_bucket_at_once_are_refused_and_so_is_a_place_of_another_form() {
    for (share, why) in [
        ("folder: /tmp, bucket: 's3://team'", "are both set"),
        ("bucket: 's3://team'", "set skills.share.region"),
        (
            "bucket: 'team/x', region: eu-west-1",
            "is no place in a bucket",
        ),
        (
            "bucket: 's3://team', endpoint: 'minio:9000'",
            "is no endpoint",
        ),
    ] {
        let told = home(share, "Anna").refusal(&["start"]).await;
        assert!(told.contains(why), "{told}");
    }
}
