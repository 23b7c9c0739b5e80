//! Lessons: what was learned in words, looked at and changed.

use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use metaclaw_chat::AgentId;
use tracing::warn;

use super::{
    answer::{Control, answer, failed, on_files, refused, spawned},
    wire::{Forget, SkillChange, WishChange},
};
use crate::{
    app::App,
    lesson_list::LessonList,
    lessons::{self, Done},
};

pub(super) fn routes() -> Router<Control> {
    Router::new()
        .route("/skills", post(skills))
        .route("/proposals", post(proposals))
        .route("/skill", post(skill))
        .route("/lessons", post(lessons_of))
        .route("/lesson_list", post(lesson_list))
        .route("/journal", post(journal))
        .route("/wish", post(wish))
        .route("/forget", post(forget))
}

async fn skills(State(control): State<Control>, Json(of): Json<Option<AgentId>>) -> Response {
    answer(control.app.skills(of.as_ref()).await.map_err(failed)).into_response()
}

async fn proposals(State(control): State<Control>) -> Response {
    let library = control.app.library.clone();
    on_files(move || Ok(library.proposals()?)).await
}

async fn skill(State(control): State<Control>, Json(change): Json<SkillChange>) -> Response {
    let library = control.app.library.clone();
    changed(&control, move || lessons::settle(&library, change)).await
}

async fn lessons_of(State(control): State<Control>, Json(agent): Json<AgentId>) -> Response {
    let App {
        log,
        library,
        serving,
        ..
    } = &*control.app;
    let adapter = serving.current(&agent);
    let counts = match log.lesson_counts(Some(&agent)).await {
        Ok(counts) => counts,
        Err(error) => return failed(error).into_response(),
    };
    let library = library.clone();
    on_files(move || lessons::view(&library, (&agent, adapter.as_deref()), &counts)).await
}

async fn lesson_list(State(control): State<Control>, Json(agent): Json<AgentId>) -> Response {
    let library = control.app.library.clone();
    on_files(move || Ok(LessonList::of(&library, &agent))).await
}

async fn journal(State(control): State<Control>) -> Response {
    let library = control.app.library.clone();
    on_files(move || Ok(library.journal()?)).await
}

async fn wish(State(control): State<Control>, Json(change): Json<WishChange>) -> Response {
    let library = control.app.library.clone();
    changed(&control, move || lessons::apply(&library, change)).await
}

/// Changes lessons; what came into force is counted, and what was done is told.
async fn changed(
    control: &Control,
    work: impl FnOnce() -> anyhow::Result<Done> + Send + 'static,
) -> Response {
    let done = match spawned(work).await {
        Ok(done) => done,
        Err(failure) => return failure.into_response(),
    };
    if let Some(agent) = &done.learned
        && let Err(error) = lessons::count(&control.app.log, agent).await
    {
        warn!(%error, "a lesson is missing in the counts of its day");
    }
    Json(done.told).into_response()
}

async fn forget(State(control): State<Control>, Json(what): Json<Forget>) -> Response {
    let App {
        log, library, home, ..
    } = &*control.app;
    let forgotten = lessons::forget(log, (library, home), &what).await;
    answer(forgotten.map_err(|error| refused(&error))).into_response()
}
