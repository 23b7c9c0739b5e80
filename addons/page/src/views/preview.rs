//! What the next training step would be made of.

use axum::extract::{Query, State};
use maud::{Markup, html};
use metaclaw_control::operations::weights::PreviewStep;
use metaclaw_control::replies::StepPreview;

use super::lessons::AgentQuery;
use crate::{
    elements::{count, empty, number},
    failure::PageFailure,
    layout::{Frame, Section},
    state::PageState,
};

pub(crate) async fn show(
    State(state): State<PageState>,
    frame: Frame,
    Query(query): Query<AgentQuery>,
) -> Result<Markup, PageFailure> {
    let steps = state.ask(PreviewStep(query.agent)).await?;
    let body = html! {
        h1 { "The next step" }
        p { a href="/ui/training" { "Back to training" } }
        @if steps.is_empty() {
            (empty("There is nothing to train on yet.", &html! { "A step needs judged replies." }))
        }
        @for step in &steps { (preview(step)) }
    };
    Ok(frame.page("The next step", Section::Training, &body))
}

fn preview(step: &StepPreview) -> Markup {
    let n = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    html! {
        section {
            h2 { (step.agent) ", step " (step.n) }
            dl.facts {
                div { dt { "Starts from" } dd { (step.parent.as_deref().unwrap_or("a fresh adapter")) " on " (step.base) } }
                div { dt { "Takes" } dd { (count(n(step.n_turns), "turn")) ", " (number(n(step.n_tokens))) " tokens read" } }
                div { dt { "Mean score" } dd { (format!("{:+.3}", step.batch.reward.mean)) } }
                @if let Some(rate) = step.learning_rate { div { dt { "Learning rate" } dd { (format!("{rate:.2e}")) } } }
                @if let Some(why) = &step.begins_anew { div { dt { "Begins anew" } dd { (why) } } }
            }
            div.scroll { table {
                thead { tr { th { "Method" } th { "Turns" } th.number { "Tokens" } th.number { "Trained" } th.number { "Weight" } } }
                tbody { @for sample in &step.samples { tr {
                    td { (sample.method) }
                    td { @for turn in &sample.turns { a href={ "/ui/turns/" (turn) } { (turn) } " " } }
                    td.number { (number(n(sample.n_tokens))) }
                    td.number { (number(n(sample.n_trained))) }
                    td.number { (format!("{:+.3}", sample.weight)) }
                } } }
            } }
            @if !step.spends.is_empty() {
                h3 { "Set aside on the way" }
                ul { @for spent in &step.spends { li { a href={ "/ui/turns/" (spent.turn) } { (spent.turn) } ": " (spent.why) } } }
            }
        }
    }
}
