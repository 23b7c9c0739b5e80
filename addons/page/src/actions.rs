//! What forms do: one operation each, and then back to where the person was.

use axum::{
    Form,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use metaclaw_chat::{AgentId, Score, SessionId, TurnId};
use metaclaw_control::replies::StepReport;
use metaclaw_control::{
    adapters::AdapterChoice,
    forgetting::{Forget, Forgotten},
    lessons::{SkillChange, WishChange},
    operations::{
        turns::RateReply,
        weights::{RollBack, TrainStep},
    },
    privacy::{SwitchChange, off_text},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    elements::{count, without_command},
    failure::PageFailure,
    query::encoded,
    state::PageState,
};

type FormReply = Result<Response, PageFailure>;

/// The page to which a form leads back: one of ours, else the first one. It is checked before anything is done.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Back(String);

#[derive(Debug, Deserialize)]
pub(crate) struct WishForm {
    /// A lesson's number, read apart: all other fields of a form are text.
    n: Option<u64>,
    back: Back,
    #[serde(flatten)]
    change: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SkillForm {
    #[serde(flatten)]
    change: SkillChange,
    back: Back,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RateForm {
    turn: TurnId,
    score: ScoreGiven,
    #[serde(default)]
    text: String,
    back: Back,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScoreGiven {
    Good,
    Unclear,
    Bad,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ForgetForm {
    agent: Option<AgentId>,
    session: Option<SessionId>,
    hours: Option<u64>,
    back: Back,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SwitchForm {
    off: bool,
    agent: Option<AgentId>,
    back: Back,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AgentForm {
    agent: AgentId,
    back: Back,
}

/// Which adapter is to serve; without one, the base model.
#[derive(Debug, Deserialize)]
pub(crate) struct AdapterForm {
    agent: Option<AgentId>,
    adapter: Option<String>,
    back: Back,
}

pub(crate) async fn wish(State(state): State<PageState>, Form(form): Form<WishForm>) -> FormReply {
    let to = form.back.clone();
    let done = state.ask(form.change()?).await?;
    Ok(back(&to, without_command(&done)))
}

pub(crate) async fn skill(
    State(state): State<PageState>,
    Form(form): Form<SkillForm>,
) -> FormReply {
    let done = state.ask(form.change).await?;
    Ok(back(&form.back, without_command(&done)))
}

pub(crate) async fn rate(State(state): State<PageState>, Form(form): Form<RateForm>) -> FormReply {
    let score = match form.score {
        ScoreGiven::Good => Score::Good,
        ScoreGiven::Unclear => Score::Unclear,
        ScoreGiven::Bad => Score::Bad,
    };
    let text = form.text.trim();
    let rated = state.ask(RateReply {
        turn: form.turn,
        score,
        text: (!text.is_empty()).then(|| text.to_owned()),
    });
    let done = if rated.await?.overruled {
        "Your verdict stands in place of the one before."
    } else {
        "Your verdict stands."
    };
    Ok(back(&form.back, done))
}

pub(crate) async fn forget(
    State(state): State<PageState>,
    Form(form): Form<ForgetForm>,
) -> FormReply {
    let now_ms = metaclaw_chat::now_ms();
    let since_ms = form
        .hours
        .map(|hours| now_ms.saturating_sub(hours.saturating_mul(3_600_000)));
    if form.session.is_none() && since_ms.is_none() {
        let message = "Neither a session nor a time says what is to be forgotten.";
        return Err(PageFailure::bad_request(message));
    }
    let what = Forget {
        agent: form.agent,
        session: form.session,
        since_ms,
    };
    let done = state.ask(what).await?;
    Ok(back(&form.back, &forgotten(&done)))
}

pub(crate) async fn switch(
    State(state): State<PageState>,
    Form(form): Form<SwitchForm>,
) -> FormReply {
    let change = SwitchChange {
        off: form.off,
        agent: form.agent,
    };
    let now = state.ask(change).await?;
    let done = off_text(&now).unwrap_or_else(|| "on again for every agent".to_owned());
    Ok(back(&form.back, without_command(&done)))
}

/// Trains one batch of an agent now. A step takes minutes, so the view shows how it goes.
pub(crate) fn train(state: &PageState, form: AgentForm) -> Response {
    let label = format!("A training step of {}", form.agent);
    state.begin(label, TrainStep(Some(form.agent)), |steps| {
        steps_told(&steps)
    });
    back(&form.back, "asked for a training step")
}

/// Serves with another adapter. The gate may test it first, which takes minutes.
pub(crate) fn adapter(state: &PageState, form: AdapterForm) -> Response {
    let choice = AdapterChoice {
        agent: form.agent,
        adapter: form.adapter,
    };
    let name = choice.adapter.clone();
    let name = name.unwrap_or_else(|| "the base model".to_owned());
    let told = format!("{name} serves from the next request on");
    state.begin(format!("Serving with {name}"), choice, move |_| told);
    back(&form.back, &format!("asked to serve with {name}"))
}

pub(crate) async fn roll_back(
    State(state): State<PageState>,
    Form(form): Form<AgentForm>,
) -> FormReply {
    let agent = form.agent;
    let choice = state.ask(RollBack(Some(agent.clone()))).await?;
    let now = choice.adapter.as_deref().unwrap_or("the base model");
    let done = format!("{agent} is served with {now} from its next request on");
    Ok(back(&form.back, &done))
}

fn steps_told(steps: &[StepReport]) -> String {
    if steps.is_empty() {
        return "there was nothing to train on".to_owned();
    }
    let told = |step: &StepReport| {
        let what = if step.serves {
            "serves now"
        } else {
            "does not serve"
        };
        format!("{} {what}, after {:.0} s", step.adapter, step.seconds)
    };
    let told: Vec<String> = steps.iter().map(told).collect();
    told.join("; ")
}

/// Sends the browser back, with what was done in the address. Only addresses of the page are gone to.
pub(crate) fn back(Back(to): &Back, done: &str) -> Response {
    let (path, fragment) = to.split_once('#').unwrap_or((to, ""));
    let is_ours = path == "/ui" || path.starts_with("/ui/") || path.starts_with("/ui?");
    let path = if is_ours { path } else { "/ui" };
    let joint = if path.contains('?') { '&' } else { '?' };
    let fragment = if is_ours && !fragment.is_empty() {
        format!("#{fragment}")
    } else {
        String::new()
    };
    Redirect::to(&format!("{path}{joint}done={}{fragment}", encoded(done))).into_response()
}

fn forgotten(done: &Forgotten) -> String {
    if done.n_sessions == 0 {
        return "nothing that is kept was said then".to_owned();
    }
    let n = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let told = format!(
        "forgotten: {} of {}, and {} from there",
        count(done.n_turns, "turn"),
        count(n(done.n_sessions), "session"),
        count(n(done.n_lessons), "lesson"),
    );
    if done.adapters.is_empty() {
        return told;
    }
    let adapters = done.adapters.join(", ");
    format!("{told}; weights that were trained on some of them are still there: {adapters}")
}

// === impl Back ===

impl TryFrom<String> for Back {
    type Error = &'static str;

    /// A header cannot contain a line's end.
    fn try_from(to: String) -> Result<Self, Self::Error> {
        if to.contains(char::is_control) {
            return Err(
                "back: a control character is not allowed: give an address of the page, as /ui/lessons",
            );
        }
        Ok(Self(to))
    }
}

// === impl WishForm ===

impl WishForm {
    fn change(mut self) -> Result<WishChange, PageFailure> {
        self.change.insert("n".to_owned(), self.n.into());
        let change = serde_json::from_value(self.change.into());
        change.map_err(|error| {
            PageFailure::bad_request(format!("The form is no change of a wish: {error}."))
        })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;

    #[test]
    fn a_form_leads_back_to_a_page_of_ours_only() {
        let to = |given: &str| {
            let response = back(&Back(given.to_owned()), "undone: a & b");
            response.headers()[header::LOCATION]
                .to_str()
                .unwrap()
                .to_owned()
        };
        let done = "done=undone%3A%20a%20%26%20b";
        assert_eq!(
            to("/ui/lessons?agent=a#n3"),
            format!("/ui/lessons?agent=a&{done}#n3")
        );
        assert_eq!(to("/ui"), format!("/ui?{done}"));
        for other in [
            "https://example.org/ui",
            "//example.org",
            "/uix",
            "",
            "/status",
        ] {
            assert_eq!(to(other), format!("/ui?{done}"), "{other}");
        }
    }
}
