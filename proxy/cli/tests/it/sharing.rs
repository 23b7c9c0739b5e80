//! Two homes that share their skills: two processes, and a folder or a bucket between them.

use std::{fs, path::Path, process::Stdio, time::Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::harness::{TestHome, until};

/// A home that reaches no model, and looks at the share each second.
fn home(share: &str, person: &str) -> Result<TestHome> {
    TestHome::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: 'http://127.0.0.1:9/v1', model_id: m, api_key: sk-0123456789abcd}}\nskills: {{share: {{{share}, name: {person}, interval: 1 s}}}}\n"
    ))
}

fn write(home: &TestHome, name: &str, content: &str) -> Result<()> {
    let folder = home.path().join("skills/main").join(name);
    fs::create_dir_all(&folder)?;
    let text =
        format!("---\nname: {name}\ndescription: Use when asked of {name}.\n---\n\n{content}\n");
    fs::write(folder.join("SKILL.md"), text)?;
    Ok(())
}

/// Returns the skills that wait in a home.
async fn waiting(home: &TestHome) -> Result<Vec<Value>> {
    let listed = home.json(&["skills", "review", "--json"]).await?;
    let listed = listed["waiting"].as_array().or(listed.as_array());
    Ok(listed.cloned().unwrap_or_default())
}

fn is_in_force(home: &TestHome, name: &str) -> bool {
    let file = Path::new("skills/main").join(name).join("SKILL.md");
    home.path().join(file).exists()
}

#[tokio::test]
async fn what_is_in_force_in_one_home_waits_for_review_in_the_other_and_the_seconds_are_printed() {
    let share = tempfile::tempdir().unwrap();
    let place = format!("folder: '{}'", share.path().display());
    let [anna, ben, carla] = ["Anna", "Ben", "Carla"].map(|person| home(&place, person).unwrap());
    let running = [anna.start().await.unwrap(), ben.start().await.unwrap()];
    // Anna writes a skill; Ben reviews and accepts it.
    let at = Instant::now();
    write(&anna, "weather", "1. Ask for the city.").unwrap();
    until(async || Ok(waiting(&ben).await?.len() == 1))
        .await
        .unwrap();
    println!(
        "a skill of Anna's waits at Ben's after {:.1} s",
        at.elapsed().as_secs_f64()
    );
    assert!(!is_in_force(&ben, "weather"));
    let shown = ben.ask(&["skills", "review"]).await.unwrap();
    assert!(shown.contains("Anna"), "{shown}");
    let n = waiting(&ben).await.unwrap()[0]["n"].to_string();
    ben.ask(&["skills", "accept", &n]).await.unwrap();
    assert!(is_in_force(&ben, "weather"));
    // A home that comes later gets it from Anna alone.
    let later = carla.start().await.unwrap();
    until(async || Ok(waiting(&carla).await?.len() == 1))
        .await
        .unwrap();
    assert!(!is_in_force(&carla, "weather"));
    for (home, proxy) in [&anna, &ben, &carla]
        .into_iter()
        .zip(running.into_iter().chain([later]))
    {
        home.ask(&["stop"]).await.unwrap();
        assert!(proxy.ended().await.unwrap().success());
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
    async fn start() -> Result<Self> {
        let python = std::env::var_os("METACLAW_TEST_MOTO")
            .context("`cargo xtask test --all` sets METACLAW_TEST_MOTO")?;
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/sharing/moto_server.py");
        let mut server = Command::new(python)
            .arg(program)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let out = server.stdout.take().context("its output")?;
        let line = BufReader::new(out).lines().next_line().await?;
        let told: Value = serde_json::from_str(&line.context("moto serves")?)?;
        let text = |name: &str| told[name].as_str().map(str::to_owned).context("a text");
        Ok(Self {
            endpoint: text("endpoint")?,
            id: text("id")?,
            secret: text("secret")?,
            _server: server,
        })
    }

    fn home(&self, prefix: &str, person: &str, secret: &str) -> Result<TestHome> {
        let place = format!(
            "bucket: 's3://team-skills{prefix}', endpoint: '{}'",
            self.endpoint
        );
        Ok(home(&place, person)?
            .with_variable("AWS_ACCESS_KEY_ID", Path::new(&self.id))
            .with_variable("AWS_SECRET_ACCESS_KEY", Path::new(secret)))
    }
}

/// Returns what is wrong with the share.
async fn problems(home: &TestHome) -> Result<String> {
    let status = home.json(&["status", "--json"]).await?;
    Ok(status["share"]["problems"].to_string())
}

/// moto checks signatures and the user's rights.
#[tokio::test]
#[ignore = "needs moto, cargo xtask test --all runs it"]
async fn two_homes_share_through_a_bucket_and_wrong_credentials_are_said() {
    let moto = MotoServer::start().await.unwrap();
    let anna = moto.home("/skills", "Anna", &moto.secret).unwrap();
    let ben = moto.home("/skills/", "Ben", &moto.secret).unwrap();
    let running = [anna.start().await.unwrap(), ben.start().await.unwrap()];
    assert!(
        running[0]
            .banner
            .contains("skills -> s3://team-skills/skills at http://127.0.0.1")
    );
    let at = Instant::now();
    write(&anna, "weather", "1. Ask for the city.").unwrap();
    write(&anna, "sql ü", "1. Ask for the table.").unwrap();
    until(async || Ok(waiting(&ben).await?.len() == 1))
        .await
        .unwrap();
    println!(
        "a skill of Anna's waits at Ben's after {:.1} s",
        at.elapsed().as_secs_f64()
    );
    // Its key is written and read; such a name of another person's skill is refused.
    let is_read = async || {
        Ok(problems(&ben)
            .await?
            .contains("the name \\\"sql ü\\\" is not"))
    };
    until(is_read).await.unwrap();
    assert_eq!(problems(&anna).await.unwrap(), "[]");
    // What Anna removes no longer waits.
    fs::remove_dir_all(anna.path().join("skills/main/weather")).unwrap();
    until(async || Ok(waiting(&ben).await?.is_empty()))
        .await
        .unwrap();

    for (prefix, secret, why) in [
        ("/skills", "wrong", "answered 403 SignatureDoesNotMatch"),
        ("/other", moto.secret.as_str(), "answered 403 AccessDenied"),
    ] {
        let carla = moto.home(prefix, "Carla", secret).unwrap();
        let proxy = carla.start().await.unwrap();
        write(&carla, "mine", "1. Mine.").unwrap();
        until(async || Ok(problems(&carla).await?.contains(why)))
            .await
            .unwrap();
        carla.ask(&["stop"]).await.unwrap();
        assert!(proxy.ended().await.unwrap().success());
        let log = fs::read_to_string(carla.path().join("stderr.log")).unwrap();
        assert!(log.contains(why), "{log}");
        assert!(!log.contains(&moto.secret), "{log}");
    }
    for (home, proxy) in [&anna, &ben].into_iter().zip(running) {
        home.ask(&["stop"]).await.unwrap();
        assert!(proxy.ended().await.unwrap().success());
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
        let told = home(share, "Anna")
            .unwrap()
            .refusal(&["start"])
            .await
            .unwrap();
        assert!(told.contains(why), "{told}");
    }
}
