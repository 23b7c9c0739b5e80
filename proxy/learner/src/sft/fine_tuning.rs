//! A training from a data set, from the file to the gate.

use std::{fs, path::Path, sync::Arc};

use metaclaw_chat::regular;
use metaclaw_trainer_api::{AdapterName, CheckpointName, LossFn, TrainingBackend};
use tokio::time::Instant;

use super::{
    epochs::{EpochLine, FineTuning, MadeEpoch},
    plan::{DataSet, Objective, SftPlan},
    rows::{DataRow, RowContent, SftError, rows, token_rows},
    types::{HeldOutRows, SftEvent, SftOrigin, SftPlanned, SftReport, SftWanted},
};
use crate::{
    config::Mode,
    error::TrainError,
    gate::{GateReport, GateTest},
    lineage::{BaseModel, KnownCheckpoint, Shape},
    shared::Shared,
    step::TrainingContext,
    trainer::{Patience, RunHandle, StepRunner},
};

/// The largest file, in megabytes: all of it is in memory.
const MOST_MB: u64 = 512;

/// Trains an agent's weights from a data set, and lets the gate test the result. The caller decides whether the result
/// serves. `tell` gets the events of the training.
///
/// # Errors
/// [`SftError`]. The epochs that were completed before it are kept.
///
/// # Cancel safety
/// A dropped training stops at once. The same training, started again, continues after its last complete epoch.
pub(crate) async fn fine_tune(
    shared: &Arc<Shared>,
    backend: Arc<dyn TrainingBackend>,
    wanted: &SftWanted,
    mut tell: impl FnMut(SftEvent) + Send,
) -> Result<SftReport, SftError> {
    let began = Instant::now();
    check(shared, wanted)?;
    let mut context = TrainingContext::new(Arc::clone(shared), backend);
    let made = with(&mut context, wanted, &mut tell).await;
    context.close().await;
    let mut report = made?;
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

fn check(shared: &Shared, wanted: &SftWanted) -> Result<(), SftError> {
    let agent = &wanted.agent;
    if shared.config.mode_of(agent) == Mode::SkillsOnly {
        return Err(TrainError::SkillsOnly.into());
    }
    if (shared.is_off)(agent) {
        let agent = agent.clone();
        return Err(TrainError::Off { agent }.into());
    }
    let rate = wanted.learning_rate.unwrap_or(1.0);
    let share = match wanted.held_out {
        HeldOutRows::Share(share) => share,
        HeldOutRows::File(_) => 0.0,
    };
    let (field, value, allowed) = if wanted.epochs == 0 {
        ("epochs", 0.0, "1 or more")
    } else if wanted.batch_size == Some(0) {
        ("batch size", 0.0, "1 or more")
    } else if !(rate > 0.0 && rate <= 1.0) {
        ("learning rate", rate, "above 0, up to 1")
    } else if !(wanted.beta > 0.0 && wanted.beta.is_finite()) {
        ("beta", wanted.beta, "above 0")
    } else if !(0.0..1.0).contains(&share) {
        ("held-out share", share, "0 or more, below 1")
    } else {
        return Ok(());
    };
    let value = value.to_string();
    Err(SftError::Setting {
        field,
        value,
        allowed,
    })
}

async fn with(
    context: &mut TrainingContext,
    wanted: &SftWanted,
    tell: &mut (impl FnMut(SftEvent) + Send),
) -> Result<SftReport, SftError> {
    let runner = context.runner().await?;
    if wanted.serves && !wanted.dry_run {
        context.can_test().await?;
    }
    let data = read(&runner, wanted).await?;
    can_train(&runner, wanted, data.objective)?;
    let health = runner.backend.health().await;
    let health = health.map_err(|error| context.shared.no_trainer(&error))?;
    let rl = context.shared.config.rl.clone();
    let shape = Shape::new(BaseModel::served(&health), &rl);
    let plan = SftPlan::new(wanted, data, shape, rl)?;
    if wanted.dry_run {
        let (_line, planned) = start(context, &runner, wanted, &plan).await?;
        tell(SftEvent::Planned(planned));
        return Ok(report(wanted, &plan, None));
    }
    let locks = Arc::clone(&context.shared);
    let lock = if let Some(lock) = locks.training.try_lock(&wanted.agent) {
        lock
    } else {
        let why = format!("agent {} is being trained", wanted.agent);
        tell(SftEvent::Waits { why });
        locks.training.lock(&wanted.agent).await
    };
    let (line, planned) = start(context, &runner, wanted, &plan).await?;
    tell(SftEvent::Planned(planned));
    let mut tuning = FineTuning {
        runner: &runner,
        run: RunHandle::default(),
        plan: &plan,
        line: &line,
        file: &wanted.file,
        reference: None,
        made: Vec::new(),
        patience: Patience::default(),
        recorder: &locks.recorder,
        tell,
    };
    let trained = tuning.all_epochs().await;
    let made = std::mem::take(&mut tuning.made);
    tuning.run.close(&*runner.backend).await;
    trained?;
    let best = best(&made);
    let mut report = report(wanted, &plan, best);
    if let Some(adapter) = best.map(|best| &best.adapter).filter(|_| wanted.serves) {
        report.serves = serves(&context.shared, wanted, adapter).await?;
        if !report.serves {
            test(context, adapter, &mut report, tell).await?;
        }
    }
    drop(lock);
    Ok(report)
}

fn can_train(
    runner: &StepRunner,
    wanted: &SftWanted,
    objective: Objective,
) -> Result<(), SftError> {
    let capabilities = &runner.capabilities;
    if !capabilities.losses.contains(&LossFn::CrossEntropy) {
        let loss = LossFn::CrossEntropy.as_str();
        let method = "metaclaw train".to_owned();
        return Err(TrainError::NoLoss { loss, method }.into());
    }
    let is_pairs = matches!(objective, Objective::Preference { .. });
    match (&wanted.held_out, is_pairs) {
        _ if capabilities.forward => Ok(()),
        (_, true) => Err(SftError::NoPairs),
        (HeldOutRows::Share(share), false) if *share <= 0.0 => Ok(()),
        (HeldOutRows::Share(_) | HeldOutRows::File(_), false) => Err(SftError::NoScores),
    }
}

async fn read(runner: &StepRunner, wanted: &SftWanted) -> Result<DataSet, SftError> {
    let mut hasher = blake3::Hasher::new();
    let rows = read_file(&wanted.file, &mut hasher).await?;
    let kind = |rows: &[DataRow]| rows.first().map_or("no row", |row| row.content.kind());
    let (trained, mut held_out) = (kind(&rows), None);
    let objective = match rows.first().map(|row| &row.content) {
        Some(RowContent::Pair { .. }) => Objective::Preference { beta: wanted.beta },
        Some(RowContent::Chat { .. }) | None => Objective::CrossEntropy,
    };
    if let HeldOutRows::File(file) = &wanted.held_out {
        let rows = read_file(file, &mut hasher).await?;
        if kind(&rows) != trained {
            return Err(SftError::Mixed {
                file: file.clone(),
                held_out: kind(&rows),
                other: wanted.file.clone(),
                trained,
            });
        }
        held_out = Some((file, rows));
    }
    let backend = &*runner.backend;
    Ok(DataSet {
        objective,
        rows: token_rows(backend, &wanted.file, rows).await?,
        held_out: match held_out {
            Some((file, rows)) => token_rows(backend, file, rows).await?,
            None => Vec::new(),
        },
        hash: hasher.finalize().to_hex().to_string(),
    })
}

async fn read_file(file: &Path, hasher: &mut blake3::Hasher) -> Result<Vec<DataRow>, SftError> {
    let path = file.to_owned();
    let read = tokio::task::spawn_blocking(move || read_text(&path)).await;
    let text = read.map_err(|_| TrainError::Interrupted)??;
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
    let file = file.to_owned();
    match rows(&text) {
        Ok(rows) if rows.is_empty() => Err(SftError::Empty { file }),
        Ok(rows) => Ok(rows),
        Err(error) => Err(SftError::Row { file, error }),
    }
}

fn read_text(file: &Path) -> Result<String, SftError> {
    let failed = |source| SftError::File {
        file: file.to_owned(),
        source,
    };
    let n = regular(file).and_then(fs::metadata).map_err(failed)?.len() >> 20;
    if n > MOST_MB {
        let (file, most) = (file.to_owned(), MOST_MB);
        return Err(SftError::Large { file, n, most });
    }
    fs::read_to_string(file).map_err(failed)
}

async fn start(
    context: &mut TrainingContext,
    runner: &StepRunner,
    wanted: &SftWanted,
    plan: &SftPlan,
) -> Result<(EpochLine, SftPlanned), SftError> {
    let known = runner.checkpoints().await;
    let known = known.map_err(|error| context.shared.no_trainer(&error))?;
    let mut begins_anew = None;
    let from = match &wanted.from {
        SftOrigin::Base => None,
        SftOrigin::Adapter(name) => Some(named(name, known.as_deref(), &plan.shape)?),
        SftOrigin::Current => {
            let site = context.site_with(runner.clone(), &wanted.agent);
            let (start, lost) = site.look_for_start(&plan.shape.base).await?;
            begins_anew = lost;
            start.point.checkpoint
        }
    };
    let known = known.unwrap_or_default();
    let line = EpochLine::new(&wanted.agent, plan, from, &known);
    let planned = SftPlanned {
        from: line.from.as_ref().map(ToString::to_string),
        begins_anew,
        adapter: line.names(plan.epochs)?.0.to_string(),
        ..plan.planned(wanted)
    };
    Ok((line, planned))
}

fn named(
    name: &str,
    known: Option<&[KnownCheckpoint]>,
    shape: &Shape,
) -> Result<CheckpointName, SftError> {
    let Some(known) = known else {
        return Ok(name.parse()?);
    };
    let why = match known.iter().find(|known| known.name.as_str() == name) {
        Some(found) if found.manifest.shape.fits(shape) => return Ok(found.name.clone()),
        Some(found) => {
            let why = shape.change_from(&found.manifest.shape);
            format!("{name} cannot be trained further: {why}")
        }
        None => format!(
            "the training server has no checkpoint {name}: `metaclaw adapters list` shows those there are"
        ),
    };
    Err(SftError::NoStart(why))
}

/// The epoch with the lowest held-out loss; the last one where nothing is held out.
fn best(made: &[MadeEpoch]) -> Option<&MadeEpoch> {
    let loss = |made: &MadeEpoch| made.held_out_loss.unwrap_or(f64::INFINITY);
    // Of epochs with equal losses, the last one is chosen. `min_by` returns the first, so the order is reversed.
    let newest_first = made.iter().rev();
    newest_first.min_by(|one, other| loss(one).total_cmp(&loss(other)))
}

fn report(wanted: &SftWanted, plan: &SftPlan, best: Option<&MadeEpoch>) -> SftReport {
    SftReport {
        agent: wanted.agent.clone(),
        adapter: best.map(|epoch| epoch.adapter.to_string()),
        epoch: best.map_or(0, |epoch| epoch.epoch),
        epochs: plan.epochs,
        held_out_before: best.and_then(|epoch| epoch.held_out_before),
        held_out_after: best.and_then(|epoch| epoch.held_out_loss),
        gate: None,
        serves: false,
        seconds: 0.0,
    }
}

async fn serves(
    shared: &Shared,
    wanted: &SftWanted,
    adapter: &AdapterName,
) -> Result<bool, SftError> {
    let serving = shared.serving(&wanted.agent).await?;
    Ok(serving.as_deref() == Some(adapter.as_str()))
}

/// Has the gate test an adapter. What it was trained for comes first: the held-out loss must not have risen.
async fn test(
    context: &mut TrainingContext,
    adapter: &AdapterName,
    report: &mut SftReport,
    tell: &mut (impl FnMut(SftEvent) + Send),
) -> Result<(), SftError> {
    if !context.gate.is_on() {
        return Ok(());
    }
    let name = adapter.to_string();
    tell(SftEvent::Testing { adapter: name });
    let mut gate = GateReport::default();
    gate.tests.extend(held_out_test(report));
    if gate.passed() {
        let Some(tested) = context.test_adapter(adapter).await? else {
            let why = "it lists no checkpoints, so that the adapter cannot be tested".to_owned();
            return Err(SftError::Refused(why));
        };
        gate.tests.extend(tested.tests);
        (gate.seconds, gate.untold) = (tested.seconds, tested.untold);
    }
    report.gate = Some(gate);
    Ok(())
}

fn held_out_test(report: &SftReport) -> Option<GateTest> {
    let (before, after) = (report.held_out_before?, report.held_out_after?);
    Some(GateTest {
        name: "held_out_loss".to_owned(),
        value: Some(after),
        limit: Some(before),
        passed: Some(after <= before),
        why: format!("held_out_loss {after:.4}, at most {before:.4} as before"),
    })
}
