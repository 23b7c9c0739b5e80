//! Training from a data set: what it makes, and what becomes of it when it is cut off, refused, or in the way of a step.

use std::path::PathBuf;

use super::*;
use crate::{
    HeldOutRows, RateSchedule, SftError, SftEvent, SftOrigin, SftReport, SftWanted, testing::Habit,
};

const N_ROWS: usize = 10;

/// Chats that each have an id of their own at the beginning.
fn chats() -> String {
    let row = |n: usize| {
        let letter = char::from(b'a' + u8::try_from(n).unwrap());
        json!({"messages": [
            {"role": "user", "content": format!("{letter} question")},
            {"role": "assistant", "content": format!("reply {n}")},
        ]})
    };
    lines(N_ROWS, row)
}

fn lines(n_rows: usize, row: impl Fn(usize) -> Value) -> String {
    let rows = (0..n_rows).map(|n| row(n).to_string());
    rows.collect::<Vec<_>>().join("\n")
}

fn file(dir: &Path, text: &str) -> PathBuf {
    let file = dir.join("data.jsonl");
    std::fs::write(&file, text).unwrap();
    file
}

/// Two epochs of four steps.
fn wanted(file: PathBuf) -> SftWanted {
    SftWanted {
        agent: AgentId::default_agent(),
        file,
        held_out: HeldOutRows::Share(0.2),
        epochs: 2,
        batch_size: Some(2),
        learning_rate: Some(1e-3),
        schedule: RateSchedule::Linear,
        seed: 0,
        beta: 0.1,
        from: SftOrigin::Current,
        serves: true,
        dry_run: false,
    }
}

async fn tuned(rig: &Rig, wanted: &SftWanted) -> (Result<SftReport, SftError>, Vec<SftEvent>) {
    let events = Mutex::new(Vec::new());
    let told = |event| events.lock().unwrap().push(event);
    let report = rig.learner.fine_tune(wanted, Box::new(told)).await;
    (report, events.into_inner().unwrap())
}

fn epochs(events: &[SftEvent]) -> Vec<u64> {
    let epoch = |event: &SftEvent| match event {
        SftEvent::Epoch(it) => Some(it.epoch),
        _ => None,
    };
    events.iter().filter_map(epoch).collect()
}

async fn rig(dir: &Path, world: &World) -> Rig {
    Rig::start(dir, world, usual()).await
}

#[tokio::test]
async fn each_epoch_is_a_checkpoint_and_the_best_is_tested() {
    let (dir, world) = (folder(), World::default());
    let rig = rig(&dir.path().join("log"), &world).await;
    let wanted = wanted(file(dir.path(), &chats()));
    let (report, events) = tuned(&rig, &wanted).await;
    let report = report.unwrap();
    assert_eq!(epochs(&events), [1, 2]);
    let SftEvent::Planned(planned) = &events[0] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (planned.n_rows, planned.n_held_out, planned.n_steps),
        (8, 2, 8)
    );
    assert_eq!(Some(&planned.adapter), report.adapter.as_ref());
    // 1e-3 after three steps of warm-up, and nothing after the eighth.
    let rates: Vec<f64> = world.rates().iter().map(|r| (r * 1e6).round()).collect();
    assert_eq!(
        rates,
        [333.0, 667.0, 1000.0, 833.0, 667.0, 500.0, 333.0, 167.0]
    );
    let made = world.checkpoints();
    assert_eq!(made.len(), 2);
    let mut trained = made[1].1.clone();
    trained.sort_unstable();
    let twice = trained.chunks(2).all(|pair| pair[0] == pair[1]);
    let is_so = twice && trained.len() == 16;
    assert!(is_so, "each row in each epoch: {trained:?}");
    assert_eq!(made[1].0["made"]["data"]["epoch"], 2);
    assert_eq!(
        made[1].0["parent"],
        format!(
            "{}-{}-000001",
            made[0].0["agent"].as_str().unwrap(),
            made[0].0["lineage"].as_str().unwrap()
        )
    );
    let gate = report.gate.clone().unwrap();
    assert_eq!(gate.tests[0].name, "held_out_loss");
    assert!(gate.tests.len() > 1 && report.passed(), "{gate:?}");
    // Only the tokens of replies have a weight.
    for datum in world.cross_entropies() {
        let weights = datum.parts().weights.as_ref().unwrap();
        let n_trained = weights.values().iter().filter(|w| **w > 0.0).count();
        assert_eq!(n_trained, "reply 0".len());
    }
    rig.stop().await;
}

fn pairs(n_rows: usize) -> String {
    let pair =
        |n: usize| json!({"prompt": format!("q{n}"), "chosen": "good one", "rejected": "bad"});
    lines(n_rows, pair)
}

fn figures(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log.join("learning/steps.jsonl")).unwrap_or_default();
    let read = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(read).collect()
}

#[tokio::test]
async fn each_step_leaves_its_figures_as_other_steps_do() {
    for (method, text) in [("cross_entropy", chats()), ("dpo", pairs(N_ROWS))] {
        let (dir, world) = (folder(), World::default());
        let log = dir.path().join("log");
        let rig = rig(&log, &world).await;
        let (report, events) = tuned(&rig, &wanted(file(dir.path(), &text))).await;
        let adapter = report.unwrap().adapter;
        let told = events.iter().filter_map(|event| match event {
            SftEvent::Step(step) => Some((step.step, step.loss)),
            _ => None,
        });
        let lines = figures(&log);
        let written = lines.iter().map(|line| {
            let loss = line["loss/total"].as_f64().unwrap();
            assert_eq!(line[format!("loss/{method}")], loss, "{line}");
            (line["step"].as_u64().unwrap(), loss)
        });
        assert!(written.eq(told), "{method}: {lines:?}");
        let held_out = lines.iter().map(|line| line["eval/loss"].is_number());
        let ends = (1..=8).map(|step| step % 4 == 0);
        assert!(held_out.eq(ends), "{method}: {lines:?}");
        let last = &lines[7];
        assert_eq!(last["adapter"].as_str(), adapter.as_deref());
        assert_eq!(
            (&last["train/batch_size"], &last["n"]),
            (&2.0.into(), &8.into())
        );
        assert_eq!(
            last["rollout/turns"],
            Value::Null,
            "a data set has no turns"
        );
        let run = [&last["agent"], &last["lineage"]].map(|part| part.as_str().unwrap());
        let run = log.join("learning/tensorboard").join(run[0]).join(run[1]);
        assert!(run.is_dir(), "{}", run.display());
        rig.stop().await;
    }
}

/// What became of a training whose process was killed, and that another process went on with.
struct Killed {
    world: World,
    report: SftReport,
    epochs_done: u64,
}

/// Kills the process at this call of the server; none where the training has fewer calls.
async fn killed_at(wanted: &SftWanted, n: usize, failure: Failure) -> Option<Killed> {
    let (dir, world) = (folder(), World::default());
    let first = rig(dir.path(), &world).await;
    world.fail(n, failure);
    let is_killed = tokio::select! {
        () = first.cancel.cancelled() => true,
        _ = tuned(&first, wanted) => false,
    };
    first.stop().await;
    if !is_killed {
        return None;
    }
    let rig = rig(dir.path(), &world).await;
    let (report, events) = tuned(&rig, wanted).await;
    rig.stop().await;
    let continued = events.iter().find_map(|event| match event {
        SftEvent::Continues { epochs_done } => Some(*epochs_done),
        _ => None,
    });
    Some(Killed {
        world,
        report: report.unwrap(),
        epochs_done: continued.unwrap_or(0),
    })
}

#[tokio::test]
async fn a_training_that_is_killed_at_any_call_comes_to_the_same_weights() {
    let dir = folder();
    let wanted = SftWanted {
        serves: false,
        ..wanted(file(dir.path(), &chats()))
    };
    let undisturbed = World::default();
    let rig = rig(&dir.path().join("whole"), &undisturbed).await;
    let (whole, _) = tuned(&rig, &wanted).await;
    rig.stop().await;
    let whole = whole.unwrap();
    let name = whole.adapter.clone().unwrap();
    let (mut n, mut continued) = (0, BTreeSet::new());
    while let Some(before) = killed_at(&wanted, n, Failure::ClientKilledBefore).await {
        let after = killed_at(&wanted, n, Failure::ClientKilledAfter).await;
        for killed in [before, after.unwrap()] {
            assert_eq!(killed.report.adapter, whole.adapter, "killed at {n}");
            let weights = killed.world.adapter(&name);
            assert_eq!(weights, undisturbed.adapter(&name), "killed at {n}");
            assert_eq!(killed.world.checkpoints().len(), 2, "killed at {n}");
            continued.insert(killed.epochs_done);
        }
        n += 1;
    }
    assert!(n > 20, "{n}");
    assert_eq!(continued, BTreeSet::from([0, 1, 2]));
}

#[tokio::test]
async fn what_is_complete_is_not_trained_again() {
    let (dir, world) = (folder(), World::default());
    let wanted = wanted(file(dir.path(), &chats()));
    let rig = rig(&dir.path().join("log"), &world).await;
    let (report, _) = tuned(&rig, &wanted).await;
    let n_steps = world.rates().len();
    let (again, events) = tuned(&rig, &wanted).await;
    let (report, again) = (report.unwrap(), again.unwrap());
    assert_eq!((again.adapter, epochs(&events)), (report.adapter, vec![]));
    assert_eq!(world.rates().len(), n_steps);
    rig.stop().await;
}

#[tokio::test]
async fn what_is_served_is_not_trained_again_and_further_settings_continue_it() {
    let (dir, world) = (folder(), World::default());
    let file = file(dir.path(), &chats());
    let rig = rig(&dir.path().join("log"), &world).await;
    let agent = AgentId::default_agent();
    let (report, _) = tuned(&rig, &wanted(file.clone())).await;
    let first = report.unwrap().adapter.unwrap();
    rig.log.choose(&agent, Some(first.clone())).await.unwrap();

    let (again, events) = tuned(&rig, &wanted(file.clone())).await;
    let again = again.unwrap();
    assert_eq!((again.adapter.as_ref(), again.serves), (Some(&first), true));
    assert_eq!((epochs(&events), again.gate), (vec![], None));

    let more = SftWanted {
        epochs: 1,
        ..wanted(file)
    };
    let (report, events) = tuned(&rig, &more).await;
    assert_ne!(report.unwrap().adapter, Some(first.clone()));
    let SftEvent::Planned(planned) = &events[0] else {
        panic!("{events:?}");
    };
    assert_eq!(planned.from, Some(first));
    rig.stop().await;
}

#[tokio::test]
async fn an_agent_is_trained_by_one_thing_at_a_time() {
    let (dir, world) = (folder(), World::default());
    let rig = rig(&dir.path().join("log"), &world).await;
    let wanted = wanted(file(dir.path(), &chats()));
    let lock = rig.learner.shared.training.lock(&wanted.agent).await;
    let refused = rig.learner.train_now(Some(wanted.agent.clone())).await;
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("is being trained from a data set"), "{said}");
    // Another training of it waits.
    let (tell, mut told) = tokio::sync::mpsc::channel(64);
    let tuning = rig
        .learner
        .fine_tune(&wanted, Box::new(move |event| drop(tell.try_send(event))));
    let release = async {
        let first = told.recv().await;
        assert!(matches!(first, Some(SftEvent::Waits { .. })), "{first:?}");
        drop(lock);
    };
    let (report, ()) = tokio::join!(tuning, release);
    assert!(report.unwrap().passed());
    let free = rig.learner.train_now(Some(wanted.agent.clone())).await;
    assert_eq!(free.unwrap(), []);
    rig.stop().await;
}

#[tokio::test]
async fn failures_that_pass_are_waited_for_and_a_refused_row_is_named() {
    let (dir, world) = (folder(), World::default());
    let wanted = wanted(file(dir.path(), &chats()));
    let rig = rig(&dir.path().join("log"), &world).await;
    world.fail(6, Failure::Killed);
    let (report, events) = tuned(&rig, &wanted).await;
    assert_eq!(report.unwrap().epoch, 2);
    let waits = |event: &SftEvent| matches!(event, SftEvent::Waits { .. });
    assert!(events.iter().any(waits), "{events:?}");

    let other = SftWanted {
        seed: 9,
        held_out: HeldOutRows::Share(0.0),
        ..wanted
    };
    world.poison(u32::from(b'c'), Poison::Named);
    let (refused, _) = tuned(&rig, &other).await;
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("data.jsonl, line 3: "), "{said}");
    rig.stop().await;
}

#[tokio::test]
async fn what_the_gate_or_the_held_out_loss_declines_does_not_pass() {
    let (dir, world) = (folder(), World::default());
    let wanted = wanted(file(dir.path(), &chats()));
    let rig = rig(&dir.path().join("log"), &world).await;
    world.train_into(&[], Habit::Greets);
    let (report, _) = tuned(&rig, &wanted).await;
    let report = report.unwrap();
    let gate = report.gate.clone().unwrap();
    assert!(!report.passed() && !gate.passed(), "{gate:?}");
    rig.stop().await;
}

#[tokio::test]
async fn pairs_are_trained_by_signed_weights_and_a_dry_run_trains_nothing() {
    let (dir, world) = (folder(), World::default());
    let rig = rig(&dir.path().join("log"), &world).await;
    let wanted = SftWanted {
        epochs: 1,
        ..wanted(file(dir.path(), &pairs(4)))
    };
    let dry = SftWanted {
        dry_run: true,
        ..wanted.clone()
    };
    let (report, events) = tuned(&rig, &dry).await;
    assert_eq!(report.unwrap().adapter, None);
    let [SftEvent::Planned(planned)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((planned.method.as_str(), planned.n_rows), ("dpo", 3));
    assert!(world.rates().is_empty() && world.checkpoints().is_empty());

    let (report, _) = tuned(&rig, &wanted).await;
    report.unwrap();
    let said = |datum: &metaclaw_trainer_api::Datum| {
        let weights = datum.parts().weights.clone().unwrap();
        let mut trained = weights.values().to_vec();
        trained.retain(|weight| *weight != 0.0);
        (trained.len(), trained[0] > 0.0)
    };
    let mut trained: Vec<(usize, bool)> = world.cross_entropies().iter().map(said).collect();
    trained.sort_unstable();
    assert_eq!(trained, [[(3, false); 3], [(8, true); 3]].concat());
    rig.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_said_before_anything_is_trained() {
    let (dir, world) = (folder(), World::default());
    let rig = rig(&dir.path().join("log"), &world).await;
    let refused = async |wanted: SftWanted| tuned(&rig, &wanted).await.0.unwrap_err().to_string();
    let good = wanted(file(dir.path(), &chats()));
    type Change = fn(&mut SftWanted);
    let cases: [(Change, &str); 4] = [
        (
            |wanted| wanted.file.set_file_name("none.jsonl"),
            "none.jsonl: ",
        ),
        (
            |wanted| wanted.learning_rate = Some(2.0),
            "learning rate is 2, allowed: above 0, up to 1",
        ),
        (
            |wanted| wanted.held_out = HeldOutRows::Share(1.0),
            "held-out share is 1, allowed: 0 or more, below 1",
        ),
        (
            |wanted| wanted.from = SftOrigin::Adapter("main-0badcafe-000001".to_owned()),
            "has no checkpoint main-0badcafe-000001",
        ),
    ];
    for (change, expected) in cases {
        let mut wanted = good.clone();
        change(&mut wanted);
        let said = refused(wanted).await;
        assert!(said.contains(expected), "{said}");
    }
    let long = dir.path().join("long.jsonl");
    let messages = json!([
        {"role": "user", "content": "x".repeat(9_000)},
        {"role": "assistant", "content": "y"},
    ]);
    std::fs::write(&long, json!({"messages": messages}).to_string()).unwrap();
    let said = refused(SftWanted { file: long, ..good }).await;
    assert!(
        said.contains("long.jsonl, line 1: it has 9002 tokens, and the model takes at most 8192"),
        "{said}"
    );
    assert!(world.checkpoints().is_empty());
    rig.stop().await;
}
