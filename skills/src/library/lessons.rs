//! The lessons of one request.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::SenderId;

use crate::{
    config::{WishPlace, WishesConfig},
    render,
    skill::{Skill, SkillName},
    wishes::Wish,
};

/// A skill that was used, in its version at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRef {
    pub name: SkillName,
    /// Its version. Equal texts have equal versions.
    pub version: String,
}

/// The lessons that are added to a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lessons {
    /// Text for the end of the system prompt, without surrounding blank lines.
    pub system_block: Option<String>,
    /// One line for the end of each of the owner's messages.
    pub user_line: Option<String>,
    /// The line for the end of each message of a person beside the owner, by her id: her own wishes.
    pub sender_lines: Arc<BTreeMap<SenderId, String>>,
    /// The skills in `system_block`, best first.
    pub skills: Vec<SkillRef>,
    /// The version of the wishes in `system_block` or `user_line`.
    pub wishes_version: Option<String>,
    /// The id of each of those wishes: [`Wish::id`].
    pub wish_ids: Vec<String>,
    /// The variant for an adapter whose weights have learned some of the wishes.
    pub of_weights: Option<Box<OfWeights>>,
}

/// The lessons for an adapter whose weights have learned some of the wishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfWeights {
    pub adapter: String,
    /// The lessons without the lines of those wishes.
    pub lessons: Lessons,
}

// === impl Lessons ===

impl Lessons {
    pub(crate) fn new(skills: &[Arc<Skill>], wishes: &[Wish], config: &WishesConfig) -> Self {
        let wishes = if config.enabled {
            render::newest_within_budget(wishes, config.max_tokens)
        } else {
            &[]
        };
        let (in_system, after_user) = match config.place {
            WishPlace::System => (wishes, &[][..]),
            WishPlace::User => (&[][..], wishes),
        };
        Self {
            system_block: render::system_block(skills, in_system),
            user_line: render::user_line(after_user),
            sender_lines: Arc::default(),
            skills: skills.iter().map(|skill| SkillRef::new(skill)).collect(),
            wishes_version: render::user_line(wishes).map(|text| version(&text)),
            wish_ids: wishes.iter().map(Wish::id).collect(),
            of_weights: None,
        }
    }

    /// Returns these lessons with a text before those in the system prompt, for every adapter.
    #[must_use]
    pub fn behind(mut self, text: Option<&str>) -> Self {
        let Some(text) = text else {
            return self;
        };
        self.of_weights = self.of_weights.map(|mut of_weights| {
            of_weights.lessons = of_weights.lessons.behind(Some(text));
            of_weights
        });
        self.system_block = Some(match self.system_block {
            Some(block) => format!("{text}\n\n{block}"),
            None => text.to_owned(),
        });
        self
    }

    /// Returns the lessons if this adapter answers. `None` is the base model, or a model of another upstream.
    pub fn where_answers(&self, adapter: Option<&str>) -> &Self {
        match &self.of_weights {
            Some(of_weights) if Some(of_weights.adapter.as_str()) == adapter => &of_weights.lessons,
            Some(_) | None => self,
        }
    }
}

// === impl SkillRef ===

impl SkillRef {
    fn new(skill: &Skill) -> Self {
        Self {
            name: skill.name.clone(),
            version: skill.version.clone(),
        }
    }
}

fn version(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}
