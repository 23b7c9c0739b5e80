//! Tests with shell scripts that behave like a trainer, correctly or not.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, Mutex},
};

use super::*;
use crate::installed::InstalledPrograms;

/// Prints the ready line, then lives until its stdin closes.
const GOOD: &str =
    r#"echo "$$" >> lives; echo '{"ready":true,"address":"127.0.0.1:7","pid":1}'; cat > /dev/null"#;

fn spec(dir: &Path, script: &str) -> TrainerSpec {
    let program = dir.join("trainer.sh");
    fs::write(
        &program,
        format!("#!/bin/sh\ncd {}\n{script}\n", dir.display()),
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    TrainerSpec {
        program: "/bin/sh".into(),
        arguments: vec![program.to_string_lossy().into_owned()],
        key: "secret-of-this-run".to_owned(),
        env: Vec::new(),
        n_threads: 3,
        cleared: vec!["PATH_LIKE_NOTHING".to_owned()],
    }
}

type Addresses = Arc<Mutex<Vec<Option<SocketAddr>>>>;

fn supervisor(spec: TrainerSpec) -> (Supervisor, watch::Receiver<TrainerState>, Addresses) {
    let seen = Addresses::default();
    let writer = Arc::clone(&seen);
    let on_address: OnAddress = Box::new(move |address| writer.lock().unwrap().push(address));
    let (supervisor, state) = Supervisor::new(spec, on_address);
    (supervisor, state, seen)
}

fn lives(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("lives")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

async fn until(state: &mut watch::Receiver<TrainerState>, wanted: fn(&TrainerState) -> bool) {
    let seen = state.wait_for(wanted);
    tokio::time::timeout(Duration::from_secs(20), seen)
        .await
        .expect("in time")
        .expect("the supervisor lives");
}

fn is_ready(state: &TrainerState) -> bool {
    matches!(state, TrainerState::Ready { .. })
}

#[tokio::test]
async fn a_trainer_that_is_killed_is_started_again_and_goes_with_us() {
    let dir = tempfile::tempdir().unwrap();
    let (supervisor, mut state, addresses) = supervisor(spec(dir.path(), GOOD));
    let ending = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(supervisor.run(ending.clone()));

    until(&mut state, is_ready).await;
    let first = lives(dir.path());
    let pid = rustix::process::Pid::from_raw(first[0].parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until(&mut state, |it| matches!(it, TrainerState::Down { .. })).await;
    until(&mut state, is_ready).await;

    ending.cancel();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(*state.borrow(), TrainerState::Ended);
    assert_eq!(lives(dir.path()).len(), 2, "never more than one at a time");
    let address = Some("127.0.0.1:7".parse().unwrap());
    assert_eq!(*addresses.lock().unwrap(), [address, None, address, None]);
    let last = lives(dir.path())[1].parse().unwrap();
    let gone = rustix::process::test_kill_process(rustix::process::Pid::from_raw(last).unwrap());
    assert!(gone.is_err(), "the second one was waited for");
}

#[tokio::test]
async fn a_trainer_runs_below_what_its_owner_does() {
    use rustix::process::{Pid, getpriority_process};
    let dir = tempfile::tempdir().unwrap();
    let (supervisor, mut state, _) = supervisor(spec(dir.path(), GOOD));
    let ending = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(supervisor.run(ending.clone()));
    until(&mut state, is_ready).await;
    let pid = lives(dir.path())[0].parse().ok().and_then(Pid::from_raw);
    // No process can have a higher priority than that with which these tests were started.
    let own = getpriority_process(None).unwrap();
    assert_eq!(getpriority_process(pid).unwrap(), own.max(5));
    ending.cancel();
    tasks.join_all().await;
}

#[tokio::test]
async fn a_trainer_that_refuses_to_start_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let refuses = "echo 'no such model' >&2; exit 3";
    let (supervisor, mut state, addresses) = supervisor(spec(dir.path(), refuses));
    let ending = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(supervisor.run(ending.clone()));
    until(
        &mut state,
        |it| matches!(it, TrainerState::Down { reason } if reason == "exit status: 3: no such model"),
    )
    .await;
    ending.cancel();
    tasks.join_next().await.unwrap().unwrap();
    assert!(addresses.lock().unwrap().iter().all(Option::is_none));
}

#[tokio::test]
async fn the_key_and_the_thread_counts_come_by_environment() {
    let dir = tempfile::tempdir().unwrap();
    let tells =
        format!(r#"echo "$METACLAW_API_KEY $OMP_WAIT_POLICY $OMP_NUM_THREADS" > told; {GOOD}"#);
    let (supervisor, mut state, _) = supervisor(spec(dir.path(), &tells));
    let ending = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(supervisor.run(ending.clone()));
    until(&mut state, is_ready).await;
    ending.cancel();
    tasks.join_next().await.unwrap().unwrap();
    let told = fs::read_to_string(dir.path().join("told")).unwrap();
    assert_eq!(told.trim(), "secret-of-this-run passive 3");
}

#[test]
fn a_trainer_that_is_nowhere_is_missed_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("metaclaw");
    let programs = InstalledPrograms::at(dir.path().join("programs"));
    let find = |path| TrainerProgram::find(&own, &programs, path);
    let error = find(Some("/nowhere:/at/all")).unwrap_err();
    assert!(error.to_string().contains("neither beside"), "{error}");
    let in_path = dir.path().join("bin");
    let installed = dir.path().join("programs/trainer");
    // Each of these has priority over the ones above it.
    for (folder, origin) in [
        (in_path.as_path(), TrainerOrigin::Path),
        (&installed, TrainerOrigin::Installed),
        (dir.path(), TrainerOrigin::Beside),
    ] {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("metaclaw-trainer"), "").unwrap();
        assert_eq!(find(in_path.to_str()).unwrap().origin, origin);
    }
}
