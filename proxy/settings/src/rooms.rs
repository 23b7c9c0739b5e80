//! What every room reads of the settings, all together: one check for `start` and `config set`.

use metaclaw_gateway::GatewayConfig;
use metaclaw_learner::LearnerConfig;
use metaclaw_llm::BudgetConfig;
use metaclaw_reward::Rules;
use metaclaw_schedule::SchedulerConfig;
use metaclaw_skills::{SkillsConfig, WishesConfig};
use metaclaw_turns::TurnsConfig;

use super::{Layer, Loaded};

/// The settings of every room.
#[derive(Debug, PartialEq)]
pub struct Rooms {
    pub gateway: GatewayConfig,
    pub learner: LearnerConfig,
    pub turns: TurnsConfig,
    pub skills: SkillsConfig,
    pub wishes: WishesConfig,
    pub scheduler: SchedulerConfig,
    pub budget: BudgetConfig,
}

// === impl Loaded ===

impl Loaded {
    /// Reads all rooms' settings, and checks what single values cannot say.
    ///
    /// # Errors
    ///
    /// In the words of the room that refuses.
    pub fn rooms(&self) -> anyhow::Result<Rooms> {
        let mut rooms = Rooms {
            gateway: self.room()?,
            learner: self.room()?,
            turns: self.section("turns")?,
            skills: self.section("skills")?,
            wishes: self.section("wishes")?,
            scheduler: self.section("scheduler")?,
            budget: self.section("budget")?,
        };
        // It may have been changed for safety.
        rooms.gateway.proxy.host = self.config.proxy.host;
        rooms.gateway.check()?;
        rooms.turns.check()?;
        rooms.learner.rl.check()?;
        Rules::compile(&rooms.learner.judge.rules)?;
        Ok(rooms)
    }
}

/// What `start` would say of a file with this text; none where it would start.
pub(super) fn refusal(text: &str) -> Option<String> {
    let layer = match Layer::text("config.yaml".into(), text) {
        Ok(layer) => layer,
        Err(error) => return Some(error.to_string()),
    };
    let checked = Loaded::new(vec![layer])
        .map_err(anyhow::Error::from)
        .and_then(|loaded| loaded.rooms());
    checked.err().map(|error| error.to_string())
}
