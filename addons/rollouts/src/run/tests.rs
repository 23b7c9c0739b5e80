//! Runs against a scripted proxy: programs are real processes, the model and the learner are not.

mod environments;
mod kit;

use metaclaw_test_kit::has;
use std::{fs, sync::Arc, time::Duration};

use futures_util::future;
use metaclaw_test_kit::{Reply, Server};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::kit::{ALTERNATES, RunFolder, ScriptedHost, ScriptedProxy, ran, setup, tasks};
use super::*;

#[tokio::test]
async fn groups_are_run_and_trained_on_and_a_run_that_is_complete_runs_nothing_again() {
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(ALTERNATES));
    let (file, host) = (folder.file(), ScriptedHost::default());
    let setup = setup(&file, &host, &proxy, &folder);
    let summary = ran(&setup, &tasks(4, 0)).await.unwrap();
    assert_eq!((summary.n_steps, *host.n_steps.lock().unwrap()), (2, 2));
    let funnel = summary.funnel;
    assert_eq!((funnel.opened, funnel.scored, funnel.trained), (8, 8, 8));
    let groups = proxy
        .log
        .lock()
        .unwrap()
        .opened
        .iter()
        .map(|it| it["group"].clone())
        .collect::<Vec<_>>();
    assert_eq!(
        groups
            .iter()
            .collect::<std::collections::HashSet<_>>()
            .len(),
        4
    );
    let again = ran(&setup, &tasks(4, 0)).await.unwrap();
    assert_eq!((again.funnel, proxy.n_opened()), (funnel, 8));
    let error = ran(&setup, &tasks(5, 0)).await.unwrap_err();
    has(&error, ["began with 4 tasks", "--run"]);
}

#[tokio::test]
async fn groups_without_difference_are_replaced_as_often_as_the_file_says() {
    let yaml = "command: ['true']\ngroup_size: 2\ntasks_per_step: 2\nresample: 1\nsteps: 1\n";
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(yaml));
    let (file, host) = (folder.file(), ScriptedHost::default());
    let summary = ran(&setup(&file, &host, &proxy, &folder), &tasks(4, 0))
        .await
        .unwrap();
    assert_eq!(
        *host.n_steps.lock().unwrap(),
        0,
        "there was nothing to train on"
    );
    let funnel = summary.funnel;
    assert_eq!(
        (funnel.opened, funnel.without_difference, funnel.trained),
        (6, 6, 0)
    );
}

#[tokio::test]
async fn a_run_that_was_killed_closes_what_was_open_and_runs_only_what_is_missing() {
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(ALTERNATES));
    let (file, host) = (folder.file(), ScriptedHost::default());
    ran(&setup(&file, &host, &proxy, &folder), &tasks(4, 0))
        .await
        .unwrap();
    // The runner was killed within a character of a line, just after it had opened the last episode of the first step.
    let path = folder.path("runs/file/journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let first_step = text
        .lines()
        .position(|line| line.contains("\"event\":\"step\""))
        .unwrap();
    let lines: Vec<&str> = text.lines().take(first_step).collect();
    let last_opened = lines
        .iter()
        .rposition(|line| line.contains("\"event\":\"opened\""))
        .unwrap();
    let cut = &lines[..=last_opened];
    let mut cut_off = format!("{}\n{{\"event\":\"clos\u{e9}", cut.join("\n")).into_bytes();
    cut_off.pop();
    fs::write(&path, cut_off).unwrap();
    let events: Vec<Value> = cut
        .iter()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let is = |event: &Value, name: &str| event["event"] == name;
    let was_closed = |id: &Value| {
        events
            .iter()
            .any(|it| is(it, "closed") && it["rollout"] == *id)
    };
    let of_opened = events.iter().filter(|it| is(it, "opened"));
    let open: Vec<&Value> = of_opened.filter(|it| !was_closed(&it["rollout"])).collect();
    for opened in &open {
        proxy
            .log
            .lock()
            .unwrap()
            .closed
            .remove(opened["rollout"].as_str().unwrap());
        // The same try of its task ends as before.
        let n = opened["task"].as_str().unwrap().trim_start_matches('t');
        let tries = folder.path(&format!("tries-{n}-{}", opened["attempt"]));
        fs::remove_dir(tries).unwrap();
    }
    let n_before = proxy.n_opened();
    let summary = ran(&setup(&file, &host, &proxy, &folder), &tasks(4, 0))
        .await
        .unwrap();
    let log = proxy.log.lock().unwrap();
    for opened in &open {
        let closed = &log.closed[opened["rollout"].as_str().unwrap()];
        assert_eq!(closed["failed"], "its runner ended before it");
    }
    // Those that were open, and the four of the second step.
    let n_open = open.len();
    assert_eq!(log.opened.len() - n_before, n_open + 4);
    let places = |all: &mut dyn Iterator<Item = &Value>| -> Vec<String> {
        let mut places: Vec<_> = all
            .map(|it| format!("{} {}", it["group"], it["attempt"]))
            .collect();
        places.sort();
        places
    };
    let again = &log.opened[n_before..n_before + open.len()];
    assert_eq!(places(&mut again.iter()), places(&mut open.iter().copied()));
    let funnel = summary.funnel;
    let counted = (funnel.opened, funnel.scored, funnel.unfinished);
    assert_eq!(counted, (8 + n_open, 8, n_open));
    assert_eq!(
        funnel.opened,
        funnel.scored + funnel.failed + funnel.unfinished
    );
    assert_eq!(
        funnel.scored,
        funnel.trained + funnel.without_difference + funnel.not_trained
    );
}

#[tokio::test]
async fn a_run_that_was_killed_while_it_measured_measures_again() {
    let yaml = format!("{ALTERNATES}steps: 1\n");
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(&yaml));
    let (file, host) = (folder.file(), ScriptedHost::default());
    let setup = setup(&file, &host, &proxy, &folder);
    let tasks = tasks(2, 1);
    ran(&setup, &tasks).await.unwrap();
    let path = folder.path("runs/file/journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let step = text.find("{\"event\":\"step\"").unwrap();
    let end = step + text[step..].find('\n').unwrap() + 1;
    fs::write(&path, &text[..end]).unwrap();
    let summary = ran(&setup, &tasks).await.unwrap();
    let names: Vec<&str> = summary.measurements.iter().map(|it| &*it.name).collect();
    assert_eq!(
        names,
        ["held-out tasks after step 0", "held-out tasks after step 1"]
    );
    assert_eq!(*host.n_steps.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_run_whose_programs_all_fail_says_why_and_ends() {
    let yaml = "command: [/nowhere/agent]\ngroup_size: 2\ntasks_per_step: 1\n";
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(yaml));
    let (file, host) = (folder.file(), ScriptedHost::default());
    let error = ran(&setup(&file, &host, &proxy, &folder), &tasks(2, 0))
        .await
        .unwrap_err();
    has(&error, ["no episode of step 1 has a score"]);
    {
        let log = proxy.log.lock().unwrap();
        let why = log.closed.values().next().unwrap()["failed"].to_string();
        assert!(why.contains("/nowhere/agent cannot be started"), "{why}");
    }
    // It is mended, and the same run goes on.
    let yaml = yaml.replace("/nowhere/agent", "'true'");
    fs::write(folder.path("file.yaml"), yaml).unwrap();
    let file = folder.file();
    let summary = ran(&setup(&file, &host, &proxy, &folder), &tasks(2, 0)).await;
    let funnel = summary.unwrap().funnel;
    assert_eq!(funnel.opened, funnel.scored + funnel.failed);
    assert!(funnel.scored >= 4, "{funnel:?}");
}

#[tokio::test]
async fn a_measurement_trains_nothing_and_names_the_adapter() {
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(ALTERNATES));
    let (file, host) = (folder.file(), ScriptedHost::default());
    let mut setup = setup(&file, &host, &proxy, &folder);
    setup.eval = Some(EvalSetup {
        adapter: Some("a-7".to_owned()),
        tries: Some(4),
    });
    let summary = ran(&setup, &tasks(9, 3)).await.unwrap();
    assert_eq!(summary.run, "file-eval-a-7-1");
    let measured = &summary.measurements[0];
    assert_eq!((measured.n_tasks, measured.n_tries), (3, 12));
    assert!((measured.pass[0].estimate - 0.5).abs() < 1e-9);
    let last = &measured.pass[2];
    assert!(last.k == 4 && (last.estimate - 1.0).abs() < 1e-9);
    {
        let log = proxy.log.lock().unwrap();
        let is_measured = |it: &Value| it["held_out"] == true && it["adapter"] == "a-7";
        assert!(log.opened.iter().all(is_measured));
    }
    assert_eq!(*host.n_steps.lock().unwrap(), 0);
    let again = ran(&setup, &tasks(9, 3)).await.unwrap();
    assert_eq!(
        (again.run.as_str(), proxy.n_opened()),
        ("file-eval-a-7-2", 24)
    );
}

#[tokio::test]
async fn held_out_tasks_are_run_while_the_gate_wants_them() {
    let yaml = format!("{ALTERNATES}steps: 1\n");
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(&yaml));
    let file = folder.file();
    let host = ScriptedHost {
        gate: Some(Arc::clone(&proxy.log)),
        ..ScriptedHost::default()
    };
    let summary = ran(&setup(&file, &host, &proxy, &folder), &tasks(2, 3))
        .await
        .unwrap();
    let log = proxy.log.lock().unwrap();
    let of_gate = log.opened.iter().filter(|it| it["adapter"] == "a-1");
    assert!(of_gate.clone().all(|it| it["held_out"] == true));
    assert_eq!(of_gate.count(), 2);
    // Before the first step and after the last one.
    assert_eq!(summary.measurements.len(), 2);
    assert_eq!(
        summary.funnel.opened, 4,
        "held-out episodes are not in the funnel"
    );
}

#[tokio::test]
async fn a_program_ends_with_all_of_its_processes_when_its_time_is_over() {
    let yaml = "shell: true\ncommand: 'echo $$ > pid; (setsid sleep 600 & echo $! > other); sleep 600'\ngroup_size: 2\ntasks_per_step: 1\nat_once: 1\ntimeout: 1 s\nreward: file\nresample: 0\n";
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(yaml));
    let (file, host) = (folder.file(), ScriptedHost::default());
    let error = ran(&setup(&file, &host, &proxy, &folder), &tasks(1, 0))
        .await
        .unwrap_err();
    has(&error, ["no episode of step 1 has a score"]);
    for name in ["pid", "other"] {
        let pid = fs::read_to_string(folder.path(name)).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status", pid = pid.as_raw_nonzero()));
        let is_gone = status.map_or(true, |status| status.contains("State:\tZ"));
        assert!(is_gone, "{name} still runs");
    }
    let log = proxy.log.lock().unwrap();
    assert!(
        log.closed
            .values()
            .all(|it| it["failed"] == "its time of 1 s was over")
    );
}

#[tokio::test]
async fn an_episode_that_has_ended_waits_for_no_look_at_its_turns() {
    let yaml =
        "command: [sleep, '1.5']\nmax_turns: 5\ngroup_size: 2\ntasks_per_step: 1\nresample: 0\n";
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(yaml));
    proxy.log.lock().unwrap().hangs = true;
    let (file, host) = (folder.file(), ScriptedHost::default());
    let setup = setup(&file, &host, &proxy, &folder);
    let tasks = tasks(1, 0);
    let ran = tokio::time::timeout(Duration::from_secs(20), ran(&setup, &tasks)).await;
    assert_eq!(ran.unwrap().unwrap().funnel.scored, 2);
}

#[tokio::test]
async fn a_score_counts_if_the_answer_to_it_was_lost() {
    let yaml = "command: ['true']\ngroup_size: 2\ntasks_per_step: 1\nresample: 0\n";
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(yaml));
    proxy.log.lock().unwrap().loses_answer = true;
    let (file, host) = (folder.file(), ScriptedHost::default());
    let summary = ran(&setup(&file, &host, &proxy, &folder), &tasks(1, 0)).await;
    assert_eq!(summary.unwrap().funnel.scored, 2);
}

#[tokio::test]
async fn rewards_come_from_the_file_the_judge_and_a_function() {
    let judged = "reward: judge\ncommand: ['true']\ngroup_size: 2\ntasks_per_step: 1\n";
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(judged));
    let (file, host) = (folder.file(), ScriptedHost::default());
    ran(&setup(&file, &host, &proxy, &folder), &tasks(1, 0))
        .await
        .unwrap();
    {
        let log = proxy.log.lock().unwrap();
        assert!(log.closed.values().all(|it| it["score"] == 0.25));
    }
    let of_file = "reward: file\nshell: true\ncommand: |\n  echo '{\"score\": 0.5, \"steps\": [1]}' > $METACLAW_REWARD; exit 3\ngroup_size: 2\ntasks_per_step: 1\n";
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(of_file));
    let file = folder.file();
    ran(&setup(&file, &host, &proxy, &folder), &tasks(1, 0))
        .await
        .unwrap();
    {
        let log = proxy.log.lock().unwrap();
        assert!(
            log.closed
                .values()
                .all(|it| it["score"] == 0.5 && it["steps"] == json!([1.0]))
        );
    }
    let function = Server::new(|request| {
        let body = request.json();
        let reply = body["turns"][0]["reply"]["content"] == "done";
        let n = body["task"]["n"].as_f64().unwrap();
        Reply::json(json!({"score": if reply && body["exit_code"] == 0 { n - 1.0 } else { 1.0 }}))
    });
    let address = function.address;
    let asked = format!(
        "reward: {{url: 'http://{address}/score'}}\ncommand: ['true']\ngroup_size: 2\ntasks_per_step: 1\n"
    );
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(&asked));
    let file = folder.file();
    ran(&setup(&file, &host, &proxy, &folder), &tasks(1, 0))
        .await
        .unwrap();
    let log = proxy.log.lock().unwrap();
    assert!(log.closed.values().all(|it| it["score"] == -1.0));
}

#[tokio::test]
async fn an_interrupted_run_closes_its_episodes_and_goes_on_later() {
    let yaml = "shell: true\ncommand: 'test -e go || sleep 600'\ngroup_size: 2\ntasks_per_step: 1\nsteps: 1\n";
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(yaml));
    let (file, host) = (folder.file(), ScriptedHost::default());
    let setup = setup(&file, &host, &proxy, &folder);
    let cancel = CancellationToken::new();
    let tasks = tasks(1, 0);
    let (ended, ()) = future::join(run(&setup, &tasks, &cancel), async {
        while proxy.n_opened() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cancel.cancel();
    })
    .await;
    assert!(matches!(ended, Err(TaskRunError::Interrupted)), "{ended:?}");
    assert_eq!(proxy.log.lock().unwrap().closed.len(), 2);
    fs::write(folder.path("go"), "").unwrap();
    let summary = ran(&setup, &tasks).await.unwrap();
    assert_eq!((summary.funnel.unfinished, summary.funnel.scored), (2, 8));
}

#[tokio::test]
async fn a_dry_run_opens_nothing_and_shows_the_first_program() {
    let (proxy, folder) = (ScriptedProxy::start(), RunFolder::new(ALTERNATES));
    let (file, host) = (folder.file(), ScriptedHost::default());
    let lines = dry_run(&setup(&file, &host, &proxy, &folder), &tasks(4, 1)).unwrap();
    let text = lines.join("\n");
    for said in [
        "steps:    2, each of 2 groups of 2 episodes",
        "episodes: 8 to 20",
        "OPENAI_BASE_URL=http://127.0.0.1:",
        "METACLAW_TASK=FOLDER/task.json",
        "command:  sh -c",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert_eq!(proxy.n_opened(), 0);
    let elsewhere = format!("{ALTERNATES}proxy_url: http://10.0.0.5:30000\n");
    let folder = RunFolder::new(&elsewhere);
    let file = folder.file();
    let lines = dry_run(&setup(&file, &host, &proxy, &folder), &tasks(4, 1)).unwrap();
    let said = "    OPENAI_BASE_URL=http://10.0.0.5:30000/rollout/ID/v1".to_owned();
    assert!(lines.contains(&said), "{lines:?}");
}
