//! The operation that reads the curves.

use async_trait::async_trait;
use metaclaw_chat::now_ms;

use crate::{
    curves::{Curve, CurvesWanted, by_day, by_step},
    instance::Instance,
    operation::{Operation, OperationFailure},
};

#[async_trait]
impl Operation for CurvesWanted {
    const PATH: &'static str = "curves";
    type Reply = Vec<Curve>;

    async fn perform(self, instance: &Instance) -> Result<Vec<Curve>, OperationFailure> {
        let log = instance.log_if_any().await?;
        let mut curves = by_day(log, &self, now_ms()).await?;
        curves.extend(by_step(log, instance.step_figures()?, &self).await?);
        Ok(curves)
    }
}
