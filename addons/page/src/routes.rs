//! The addresses of the page.

use axum::{
    Form, Router,
    extract::{Query, State},
    http::HeaderMap,
    middleware::{from_fn, from_fn_with_state},
    response::Redirect,
    routing::{get, post},
};

use crate::{
    access::{LoginQuery, admit, log_in, only_get, protect, sign_out},
    actions::{self, AdapterForm, AgentForm},
    assets,
    failure::PageFailure,
    live,
    state::PageState,
    views,
};

/// All routes below `/ui`. The style sheet and the icon are for everybody, as the page that asks people to sign in uses
/// them; everything else is for those who are signed in.
pub fn router(state: PageState) -> Router {
    let train = |State(state): State<PageState>, Form(form): Form<AgentForm>| async move {
        actions::train(&state, form)
    };
    let adapter = |State(state): State<PageState>, Form(form): Form<AdapterForm>| async move {
        actions::adapter(&state, form)
    };
    let log_in = |State(state): State<PageState>,
                  headers: HeaderMap,
                  Query(query): Query<LoginQuery>| async move {
        log_in(&state, &headers, &query)
    };
    // Otherwise nginx holds events back.
    let events = |State(state): State<PageState>| async move {
        ([("x-accel-buffering", "no")], live::events(state))
    };
    let sign_out = |State(state): State<PageState>, headers: HeaderMap| async move {
        sign_out(&state, &headers)
    };
    let not_here = async || PageFailure::not_found("The page has nothing at this address.");
    let admitted = Router::new()
        .route("/ui", get(views::today::show))
        .route("/ui/", get(async || Redirect::permanent("/ui")))
        .route("/ui/agents", get(views::agents::show))
        .route("/ui/sessions", get(views::sessions::list))
        .route("/ui/session", get(views::sessions::show))
        .route(
            "/ui/turns",
            get(async || Redirect::permanent("/ui/sessions")),
        )
        .route("/ui/turns/{id}", get(views::turn::show))
        .route("/ui/lessons", get(views::lessons::show))
        .route("/ui/skill", get(views::skill::show))
        .route("/ui/compare", get(views::compare::offer))
        .route("/ui/training", get(views::training::show))
        .route("/ui/curves", get(views::curves::show))
        .route("/ui/cost", get(views::cost::show))
        .route("/ui/privacy", get(views::privacy::show))
        .route("/ui/health", get(views::health::show))
        .route("/ui/live.js", get(async || assets::script()))
        .route("/ui/events", get(events))
        .route("/ui/do/wish", post(actions::wish))
        .route("/ui/do/skill", post(actions::skill))
        .route("/ui/do/agent", post(views::agents::change))
        .route("/ui/do/rate", post(actions::rate))
        .route("/ui/do/forget", post(actions::forget))
        .route("/ui/do/switch", post(actions::switch))
        .route("/ui/do/train", post(train))
        .route("/ui/do/adapter", post(adapter))
        .route("/ui/do/roll-back", post(actions::roll_back))
        .route("/ui/do/compare", post(views::compare::ask))
        .route("/ui/do/sign-out", post(sign_out))
        .fallback(not_here)
        .layer(from_fn_with_state(state.clone(), admit));
    Router::new()
        .route("/ui/login", get(log_in).head(only_get))
        .route("/ui/style.css", get(async || assets::style()))
        .route("/ui/icon.svg", get(async || assets::icon()))
        .merge(admitted)
        .layer(from_fn(protect))
        .with_state(state)
}
