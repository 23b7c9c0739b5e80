//! A training from a data set, from the file to the gate.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use metaclaw_chat::regular;
use metaclaw_trainer_api::{AdapterName, CheckpointName, LossFn, RunId, TrainingBackend};
use tokio::time::Instant;

use super::{
    checkpoints::{EpochLine, MadeEpoch},
    error::SftError,
    examples::{NotTokenised, token_rows},
    objective::Objective,
    passes::{PassError, Passes, ReferenceLogprobs},
    plan::{DataSet, SftPlan},
    rows::{DataRow, RowContent, rows},
    types::{
        HeldOutRows, SftEpoch, SftEvent, SftOrigin, SftPlanned, SftReport, SftStep, SftWanted,
    },
};
use crate::{
    config::Mode,
    error::TrainError,
    gate::{GateReport, GateTest},
    lineage::{BaseModel, KnownCheckpoint, Numbers, Shape},
    shared::Shared,
    step::TrainingContext,
    trainer::{RunHandle, StepFailure, StepRunner, StepStage, seen},
};

/// The largest file, in megabytes: all of it is in memory.
const MOST_MB: u64 = 512;
/// Failures in a row that may pass, before they count as the server's refusal.
const MOST_FAILURES: usize = 5;
/// Pause before a training server is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Trains an agent's weights from a data set, and has the gate test what that came to. Whether it serves is for others to
/// do. `told` hears how it goes.
///
/// # Errors
/// [`SftError`]; the epochs that were made until then are there.
///
/// # Cancel safety
/// A dropped training ends where it stands, and the same asked for again goes on after its last epoch.
pub(crate) async fn fine_tune(
    shared: &Arc<Shared>,
    backend: Arc<dyn TrainingBackend>,
    wanted: &SftWanted,
    mut told: impl FnMut(SftEvent) + Send,
) -> Result<SftReport, SftError> {
    let began = Instant::now();
    check(shared, wanted)?;
    let mut context = TrainingContext::new(Arc::clone(shared), backend);
    let made = with(&mut context, wanted, &mut told).await;
    context.close().await;
    let mut report = made?;
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// Refuses what no file could mend.
fn check(shared: &Shared, wanted: &SftWanted) -> Result<(), SftError> {
    let agent = &wanted.agent;
    if shared.config.mode_of(agent) == Mode::SkillsOnly {
        return Err(TrainError::SkillsOnly.into());
    }
    if (shared.is_off)(agent) {
        let agent = agent.clone();
        return Err(TrainError::Off { agent }.into());
    }
    let refused = |field, value: &dyn ToString, allowed| {
        let value = value.to_string();
        Err(SftError::Setting {
            field,
            value,
            allowed,
        })
    };
    if wanted.epochs == 0 {
        return refused("epochs", &0, "1 or more");
    }
    if wanted.batch_size == Some(0) {
        return refused("batch size", &0, "1 or more");
    }
    if let Some(rate) = wanted.learning_rate
        && !(rate > 0.0 && rate <= 1.0)
    {
        return refused("learning rate", &rate, "above 0, up to 1");
    }
    if !(wanted.beta > 0.0 && wanted.beta.is_finite()) {
        return refused("beta", &wanted.beta, "above 0");
    }
    if let HeldOutRows::Share(share) = wanted.held_out
        && !(0.0..1.0).contains(&share)
    {
        return refused("held-out share", &share, "0 or more, below 1");
    }
    Ok(())
}

async fn with(
    context: &mut TrainingContext,
    wanted: &SftWanted,
    told: &mut (impl FnMut(SftEvent) + Send),
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
    let shape = Shape {
        base: BaseModel::served(&health),
        rank: rl.lora_rank,
        alpha: rl.lora_alpha,
        targets: rl.targets.0.clone(),
    };
    let plan = SftPlan::new(wanted, data, shape, rl)?;
    if wanted.dry_run {
        let (_line, planned) = start(context, &runner, wanted, &plan).await?;
        told(SftEvent::Planned(planned));
        return Ok(report(wanted, &plan, None));
    }
    let locks = Arc::clone(&context.shared);
    let lock = if let Some(lock) = locks.training.try_lock(&wanted.agent) {
        lock
    } else {
        let why = format!("agent {} is being trained", wanted.agent);
        told(SftEvent::Waits { why });
        locks.training.lock(&wanted.agent).await
    };
    let (line, planned) = start(context, &runner, wanted, &plan).await?;
    told(SftEvent::Planned(planned));
    let mut tuning = FineTuning {
        runner: &runner,
        run: RunHandle::default(),
        plan: &plan,
        line: &line,
        file: &wanted.file,
        reference: None,
        made: Vec::new(),
        n_failures: 0,
        told,
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
            test(context, adapter, &mut report, told).await?;
        }
    }
    drop(lock);
    Ok(report)
}

/// Refuses what the training server has no call for.
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

/// Reads and tokenises the files.
async fn read(runner: &StepRunner, wanted: &SftWanted) -> Result<DataSet, SftError> {
    let mut hasher = blake3::Hasher::new();
    let rows = read_file(&wanted.file, &mut hasher).await?;
    let kind = kind(&rows);
    let objective = match rows.first().map(|row| &row.content) {
        Some(RowContent::Pair { .. }) => Objective::Preference { beta: wanted.beta },
        Some(RowContent::Chat { .. }) | None => Objective::CrossEntropy,
    };
    let mut held_out = Vec::new();
    if let HeldOutRows::File(file) = &wanted.held_out {
        held_out = read_file(file, &mut hasher).await?;
        let of_held_out = self::kind(&held_out);
        if of_held_out != kind {
            return Err(SftError::Mixed {
                file: file.clone(),
                held_out: of_held_out,
                other: wanted.file.clone(),
                trained: kind,
            });
        }
    }
    let held_out_file = match &wanted.held_out {
        HeldOutRows::File(file) => file,
        HeldOutRows::Share(_) => &wanted.file,
    };
    let backend = &*runner.backend;
    let tokenised = token_rows(backend, rows).await;
    let rows = tokenised.map_err(|error| not_tokenised(error, &wanted.file))?;
    let tokenised = token_rows(backend, held_out).await;
    let held_out = tokenised.map_err(|error| not_tokenised(error, held_out_file))?;
    Ok(DataSet {
        objective,
        rows,
        held_out,
        hash: hasher.finalize().to_hex().to_string(),
    })
}

fn kind(rows: &[DataRow]) -> &'static str {
    rows.first().map_or("no row", |row| row.content.kind())
}

/// Reads the rows of a file, and adds its content to a hash.
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

fn not_tokenised(error: NotTokenised, file: &Path) -> SftError {
    match error {
        NotTokenised::Row(error) => SftError::Row {
            file: file.to_owned(),
            error,
        },
        NotTokenised::NoSplit => SftError::NoSplit,
        NotTokenised::Server(error) => {
            let why = error.words();
            TrainError::NoTrainer { why }.into()
        }
    }
}

/// Where the training starts, with what is told of it.
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

/// The checkpoint of an adapter that was named.
fn named(
    name: &str,
    known: Option<&[KnownCheckpoint]>,
    shape: &Shape,
) -> Result<CheckpointName, SftError> {
    let Some(known) = known else {
        return Ok(name.parse()?);
    };
    let found = known.iter().find(|it| it.name.as_str() == name);
    let Some(found) = found else {
        return Err(SftError::NoStart(format!(
            "the training server has no checkpoint {name}: `metaclaw adapters list` shows those there are"
        )));
    };
    if !found.manifest.shape.fits(shape) {
        let why = shape.change_from(&found.manifest.shape);
        return Err(SftError::NoStart(format!(
            "{name} cannot be trained further: {why}"
        )));
    }
    Ok(found.name.clone())
}

/// The epoch with the lowest held-out loss; the last one where nothing is held out.
fn best(made: &[MadeEpoch]) -> Option<&MadeEpoch> {
    let loss = |it: &MadeEpoch| it.held_out_loss.unwrap_or(f64::INFINITY);
    let better = |best: &'_ MadeEpoch, it: &MadeEpoch| loss(it) <= loss(best);
    let mut made = made.iter();
    let first = made.next()?;
    Some(made.fold(first, |best, it| if better(best, it) { it } else { best }))
}

fn report(wanted: &SftWanted, plan: &SftPlan, best: Option<&MadeEpoch>) -> SftReport {
    SftReport {
        agent: wanted.agent.clone(),
        adapter: best.map(|it| it.adapter.to_string()),
        epoch: best.map_or(0, |it| it.epoch),
        epochs: plan.epochs,
        held_out_before: best.and_then(|it| it.held_out_before),
        held_out_after: best.and_then(|it| it.held_out_loss),
        gate: None,
        serves: false,
        seconds: 0.0,
    }
}

/// Whether the agent is served with this adapter.
async fn serves(
    shared: &Shared,
    wanted: &SftWanted,
    adapter: &AdapterName,
) -> Result<bool, SftError> {
    let serving = shared.persist(|| shared.log.serving()).await?;
    let mut serving = serving.iter();
    Ok(serving.any(|(agent, name)| *agent == wanted.agent && name == adapter.as_str()))
}

/// Has the gate test an adapter. What it was trained for comes first: the held-out loss must not have risen.
async fn test(
    context: &mut TrainingContext,
    adapter: &AdapterName,
    report: &mut SftReport,
    told: &mut (impl FnMut(SftEvent) + Send),
) -> Result<(), SftError> {
    if !context.gate.is_on() {
        return Ok(());
    }
    let name = adapter.to_string();
    told(SftEvent::Testing { adapter: name });
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

/// The epochs of a training at a training server.
struct FineTuning<'a, T> {
    runner: &'a StepRunner,
    run: RunHandle,
    plan: &'a SftPlan,
    line: &'a EpochLine,
    file: &'a PathBuf,
    /// Of pairs, once it is known.
    reference: Option<ReferenceLogprobs>,
    made: Vec<MadeEpoch>,
    /// Failures since the last epoch.
    n_failures: usize,
    told: &'a mut T,
}

// === impl FineTuning ===

impl<T: FnMut(SftEvent) + Send> FineTuning<'_, T> {
    /// Makes the epochs that are not there yet. After a failure that may pass, the epoch begins again.
    async fn all_epochs(&mut self) -> Result<(), SftError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let n_made = self.made.len();
            let failed = match self.go_on().await {
                Ok(()) => return Ok(()),
                Err(PassError::Refused(error)) => return Err(error),
                Err(PassError::Row(error)) => {
                    let file = self.file.clone();
                    return Err(SftError::Row { file, error });
                }
                Err(PassError::Failed(failed)) => failed,
            };
            if self.made.len() > n_made {
                (self.n_failures, pause) = (0, FIRST_PAUSE);
            }
            self.may_try_again(&failed)?;
            let why = failed.to_string();
            tracing::warn!(why, "the epoch begins again");
            (self.told)(SftEvent::Waits { why });
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A training server that is away is waited for without an end.
    fn may_try_again(&mut self, failed: &StepFailure) -> Result<(), SftError> {
        let error = &failed.error;
        if error.is_not_supported() {
            return Err(match self.plan.objective {
                Objective::CrossEntropy => SftError::NoScores,
                Objective::Preference { .. } => SftError::NoPairs,
            });
        }
        if error.is_unreachable() {
            return Ok(());
        }
        self.n_failures += 1;
        if failed.may_pass() && self.n_failures < MOST_FAILURES {
            return Ok(());
        }
        Err(SftError::Refused(failed.to_string()))
    }

    async fn go_on(&mut self) -> Result<(), PassError> {
        self.find_made().await?;
        let n_made = self.made.last().map_or(0, |last| last.epoch);
        if n_made >= self.plan.epochs {
            return Ok(());
        }
        let is_pairs = matches!(self.plan.objective, Objective::Preference { .. });
        if is_pairs && self.reference.is_none() {
            let id = self.put_after(0).await?;
            self.reference = Some(self.passes().reference(&id).await?);
        }
        for epoch in n_made + 1..=self.plan.epochs {
            let made = self.epoch(epoch).await?;
            self.made.push(made);
        }
        Ok(())
    }

    /// Asks the server which epochs are there: an earlier run of the same made some, or a failed call was carried out.
    async fn find_made(&mut self) -> Result<(), StepFailure> {
        let known = self.runner.checkpoints().await;
        let known = known.map_err(StepFailure::at_server)?;
        // A server that lists none has those that were made here.
        let Some(known) = known else { return Ok(()) };
        let made = self.line.made(&known);
        if self.made.is_empty()
            && let Some(last) = made.last()
        {
            let epochs_done = last.epoch;
            (self.told)(SftEvent::Continues { epochs_done });
        }
        self.made = made;
        Ok(())
    }

    /// Puts the run where it stands after so many epochs.
    async fn put_after(&mut self, epochs: u64) -> Result<RunId, PassError> {
        let point = self.line.point(epochs)?;
        if let Some(id) = &self.run.id
            && self.run.at.as_ref() == Some(&point)
        {
            return Ok(id.clone());
        }
        let id = self.runner.put_at(&mut self.run, &point).await?;
        self.run.at = Some(point);
        Ok(id)
    }

    fn passes(&mut self) -> Passes<'_> {
        Passes {
            runner: self.runner,
            run: &mut self.run,
            plan: self.plan,
            reference: self.reference.as_ref(),
        }
    }

    /// One epoch, with its checkpoint.
    async fn epoch(&mut self, epoch: u64) -> Result<MadeEpoch, PassError> {
        let began = Instant::now();
        let id = self.put_after(epoch - 1).await?;
        let before = if let Some(first) = self.made.first() {
            first.held_out_before
        } else {
            let before = self.passes().held_out_loss(&id).await?;
            before.inspect(|&held_out_loss| (self.told)(SftEvent::Before { held_out_loss }))
        };
        // What was put there is changed from here on.
        self.run.at = None;
        let numbers = self.steps(epoch, &id).await?;
        let (adapter, checkpoint) = self.line.names(epoch)?;
        let made = MadeEpoch {
            epoch,
            adapter: adapter.clone(),
            held_out_before: before,
            held_out_loss: self.passes().held_out_loss(&id).await?,
        };
        let loss = numbers.loss;
        let file = self.file.display().to_string();
        let manifest = self.line.manifest(self.plan, &made, numbers, file)?;
        let manifest = serde_json::to_value(manifest).unwrap_or_default();
        // The adapter first: where the checkpoint is there, so is its adapter.
        let backend = &self.runner.backend;
        let saved = backend.save_adapter(id.clone(), adapter).await;
        seen(&mut self.run, StepStage::Save, saved)?;
        let saved = backend.save_checkpoint(id, checkpoint, manifest).await;
        seen(&mut self.run, StepStage::Save, saved)?;
        self.run.at = Some(self.line.point(epoch)?);
        (self.told)(SftEvent::Epoch(SftEpoch {
            epoch,
            of: self.plan.epochs,
            adapter: made.adapter.to_string(),
            loss,
            held_out_loss: made.held_out_loss,
            seconds: began.elapsed().as_secs_f64(),
        }));
        Ok(made)
    }

    /// The steps of an epoch; what they measured, with the mean loss.
    async fn steps(&mut self, epoch: u64, id: &RunId) -> Result<Numbers, PassError> {
        let n_params = self.run.n_params;
        let mut numbers = Numbers::default();
        let batches = self.plan.batches(epoch);
        let n_batches = batches.len();
        for (at, batch) in (1..).zip(batches) {
            let began = Instant::now();
            let step = (epoch - 1) * self.plan.steps_per_epoch() + at;
            let rate = self.plan.rate(step, n_params);
            let taken = self.passes().step(id, &batch, rate).await?;
            numbers.loss += taken.loss / n_batches as f64;
            numbers.grad_norm = taken.stepped.grad_norm;
            numbers.learning_rate = self.plan.full_rate(n_params);
            numbers.skipped |= taken.stepped.skipped;
            numbers.n_tokens += taken.n_tokens;
            numbers.train_seconds += began.elapsed().as_secs_f64();
            (self.told)(SftEvent::Step(SftStep {
                step,
                of: self.plan.n_steps(),
                epoch,
                loss: taken.loss,
                learning_rate: taken.learning_rate,
                grad_norm: taken.stepped.grad_norm,
                skipped: taken.stepped.skipped,
                n_tokens: taken.n_tokens,
                seconds: began.elapsed().as_secs_f64(),
            }));
        }
        let method = self.plan.objective.as_str().to_owned();
        numbers.losses.insert(method, numbers.loss);
        Ok(numbers)
    }
}
