//! Wishes and skills: what is on disk, what of it fits a request, and how it is written into one.
//!
//! A *skill* is a SKILL.md file that is retrieved when the owner's message asks for it; a *wish* is
//! one line of WISHES.md that always stands. Everything here works on files and text; nothing asks a
//! model or the network.

mod config;
mod file;
mod library;
mod render;
mod retrieve;
mod scan;
mod skill;
mod wishes;
mod words;

pub use self::{
    config::{Refresh, SkillsConfig, WishPlace, WishesConfig},
    file::read_text,
    library::{Lessons, Library, SkillRef},
    scan::{SkillFault, SkillWarning},
    skill::{NameError, Skill, SkillError, SkillName},
    wishes::{Wish, WishError},
};
