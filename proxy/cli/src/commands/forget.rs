//! `metaclaw forget`: what was said goes, and what was learned from it.

use clap::Args;
use metaclaw_chat::{AgentId, SessionId, Span, now_ms, whole_ms};
use metaclaw_control::forgetting::{Forget, Forgotten};

use super::{calling::call, context::Context};
use crate::out;

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct ForgetArgs {
    /// The session, as `metaclaw turns list` names it.
    #[arg(group = "which")]
    session: Option<SessionId>,
    /// All sessions with a message in the last hours or days, for example "2 h" or "3 d".
    #[arg(long, group = "which")]
    since: Option<Span>,
    /// Only sessions of this agent.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl ForgetArgs ===

impl ForgetArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let what = Forget {
            agent: self.agent,
            session: self.session,
            since_ms: self.since.map(|it| now_ms().saturating_sub(whole_ms(it.0))),
        };
        let forgotten = call(context, "forget", what).await?;
        Ok(out::answer(&forgotten, self.json, text)?)
    }
}

fn text(forgotten: &Forgotten) -> String {
    let Forgotten {
        n_sessions,
        n_turns,
        n_lessons,
        adapters,
    } = forgotten;
    if *n_sessions == 0 {
        return "nothing that is kept was said then".to_owned();
    }
    let count = |n: usize, thing: &str| out::count(n.try_into().unwrap_or(u64::MAX), thing);
    let text = format!(
        "forgotten: {} of {}, and {} from there; nothing of that is on the disk any more",
        out::count(*n_turns, "turn"),
        count(*n_sessions, "session"),
        count(*n_lessons, "lesson"),
    );
    if adapters.is_empty() {
        return text;
    }
    let adapters = adapters.join(", ");
    format!("{text}\nweights that were trained on some of them are still there: {adapters}")
}
