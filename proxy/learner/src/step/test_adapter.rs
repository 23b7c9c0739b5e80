//! An adapter that no step of the log is making, before the gate: its owner wants it to serve.

use metaclaw_trainer_api::{AdapterName, CheckpointName};

use super::{context::TrainingContext, gate_candidate};
use crate::{
    error::TrainError,
    gate::GateReport,
    lineage::{Candidate, Known, ResumePoint},
};

/// What the tests of an adapter come to, by what its checkpoint says of itself; none where it has no checkpoint of ours.
///
/// # Errors
/// [`TrainError::NoTrainer`]; [`TrainError::Refused`] where it cannot be tested; the log's.
pub(crate) async fn tested(
    context: &mut TrainingContext,
    adapter: &AdapterName,
) -> Result<Option<GateReport>, TrainError> {
    let mut runner = context.runner().await?;
    let checkpoints = runner.checkpoints().await;
    let checkpoints = checkpoints.map_err(|error| context.no_trainer(&error))?;
    let known = checkpoints.into_iter().flatten();
    let mut known = known.filter(|known| known.name.as_str() == adapter.as_str());
    let Some(known) = known.next() else {
        return Ok(None);
    };
    let shape = &known.manifest.shape;
    if !shape.base.may_be(runner.base.as_deref()) {
        let why = format!("{adapter} is of {}, which is not served now", shape.base);
        return Err(TrainError::Refused { why });
    }
    // Of another shape than the settings', maybe.
    runner.rl.lora_rank = shape.rank;
    runner.rl.lora_alpha = shape.alpha;
    runner.rl.targets.0.clone_from(&shape.targets);
    let candidate = candidate(adapter.clone(), known);
    // Its owner waits for an answer: that nobody can try it now is one.
    let tried = runner.try_adapter(&candidate).await;
    tried.map_err(|error| context.no_trainer(&error))?;
    match gate_candidate::test(context, &runner, &candidate).await? {
        Ok(report) => Ok(Some(report)),
        Err(why) => Err(TrainError::Refused { why }),
    }
}

fn candidate(adapter: AdapterName, known: Known) -> Candidate {
    let Known {
        name,
        steps,
        sha256,
        manifest,
    } = known;
    let checkpoint: CheckpointName = name;
    Candidate {
        point: ResumePoint {
            lineage: manifest.lineage,
            n: manifest.n,
            steps,
            checkpoint: Some(checkpoint.clone()),
            choice_ms: None,
        },
        agent: manifest.agent,
        n: manifest.n,
        turns: manifest.turns,
        adapter,
        checkpoint,
        choice_ms: None,
        sha256,
    }
}
