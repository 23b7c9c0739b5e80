//! Training of an agent's weights from a data set, and the adapter that serves afterwards.

use std::{io, sync::Arc};

use futures_util::{StreamExt as _, stream::BoxStream};
use metaclaw_gateway::Serving;
use metaclaw_learner::{SftEvent, SftReport, SftWanted};
use metaclaw_turns::TurnLog;
use tracing::info;

use super::events::{EventTeller, event_lines};
use crate::{
    instance::{Instance, Rooms},
    operation::StreamedOperation,
};

impl StreamedOperation for SftWanted {
    const PATH: &'static str = "train";

    /// A line for each event, as they come; the last one of a training that fails says why. The
    /// training ends if the client disconnects.
    fn stream(
        self,
        instance: Arc<Instance>,
        _note: fn(&str),
    ) -> BoxStream<'static, io::Result<Vec<u8>>> {
        let work = |instance: Arc<Instance>, teller: EventTeller| async move {
            train(instance.process()?, &self, &teller).await
        };
        event_lines(instance, work, |why| SftEvent::Failed { why }).boxed()
    }
}

async fn train(rooms: &Rooms, wanted: &SftWanted, teller: &EventTeller) -> anyhow::Result<()> {
    let tell = Box::new(|event: SftEvent| teller.tell(&event));
    let mut report = rooms.learning.learner.fine_tune(wanted, tell).await?;
    if wanted.serves && !wanted.dry_run && !report.serves && report.passed() {
        serve(&rooms.log, &rooms.gateway.serving, &mut report).await?;
    }
    teller.tell_last(&SftEvent::Ended(Box::new(report))).await;
    Ok(())
}

/// Serves the agent with the adapter, by its owner's choice: its next steps start from there.
async fn serve(log: &TurnLog, serving: &Serving, report: &mut SftReport) -> anyhow::Result<()> {
    let agent = &report.agent;
    log.choose(agent, report.adapter.clone()).await?;
    serving.choose(agent, report.adapter.as_deref());
    info!(%agent, adapter = report.adapter, "trained from a data set, and serves");
    report.serves = true;
    Ok(())
}
