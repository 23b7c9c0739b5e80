//! Applies detected wishes: lessons are learned, undone, reviewed and forgotten.
//!
//! Undoes the newest lesson, a wish or a learned skill.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use metaclaw_chat::{AgentId, one_line};

use crate::{
    evolve::{EvolveError, Proposal},
    file::JournalError,
    guard::{Suspicion, suspicions},
    hearing::{Certainty, Facet, Heard},
    holder::Holder,
    journal::{Journal, Lesson, LessonState, Origin},
    library::Library,
    wishes::{self, WishError},
};

/// The longest time between two complaints about the same subject that make a wish: a month.
const COMPLAINTS_WITHIN_MS: u64 = 30 * 24 * 3_600 * 1_000;

/// How many people beside the owner may have wishes about one agent.
const MAX_PEOPLE: usize = 200;

/// Why a lesson could not be learned or undone.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The file with the wishes could not be changed.
    #[error(transparent)]
    Wish(#[from] WishError),
    /// The newest lesson was a skill, and undoing it failed.
    #[error(transparent)]
    Skill(#[from] EvolveError),
    /// No lesson has this number.
    #[error("there is no lesson {0}: `metaclaw wishes list` shows those there are")]
    Unknown(u64),
    /// No lesson can be undone.
    #[error("there is nothing to undo")]
    Nothing,
    /// A public channel may have any number of people.
    #[error("{MAX_PEOPLE} people have wishes about {agent}, and no more can have any")]
    TooManyPeople { agent: AgentId },
    /// Another wish took its place.
    #[error(
        "lesson {n} was replaced by lesson {by} ({wish}), so nothing changed: `metaclaw undo {by}` brings it back"
    )]
    Replaced { n: u64, by: u64, wish: String },
    /// The change was made before, or is not possible.
    #[error("lesson {n} is {is}")]
    Settled { n: u64, is: &'static str },
}

#[derive(Debug, Clone, Copy)]
struct Worded<'h> {
    said: &'h str,
    wish: &'h str,
    facet: Option<Facet>,
}

// === impl Library ===

impl Library {
    /// Returns all lessons of all agents, in the order of learning, with their present states. It accesses the file
    /// system.
    ///
    /// # Errors
    /// Returns [`JournalError`] if the journal cannot be read.
    pub fn journal(&self) -> Result<Vec<Lesson>, JournalError> {
        let mut lessons = Journal::read(self.dir())?.lessons;
        self.decide_states(&mut lessons);
        Ok(lessons)
    }

    /// Applies a detected wish, complaint or withdrawal. Returns the resulting lesson, or `None` if nothing changes. It
    /// accesses the file system.
    ///
    /// # Errors
    /// Returns [`LearnError`]. Except for what the error says, nothing has changed.
    pub fn learn(&self, heard: &Heard, origin: Origin) -> Result<Option<Lesson>, LearnError> {
        self.change_lessons(|journal| match heard {
            Heard::Wish {
                said,
                wish,
                facet,
                certainty,
            } => {
                let wish = Worded {
                    said,
                    wish,
                    facet: *facet,
                };
                self.hear_wish(journal, origin, wish, *certainty)
            }
            Heard::Complaint { facet, wish, text } => {
                self.hear_complaint(journal, origin, *facet, wish, text)
            }
            Heard::TakenBack { facet } => Ok(self.take_back(journal, &origin, *facet)),
        })
    }

    /// Applies what was detected in one message, as [`Library::learn`] does, except for what was applied before: a process
    /// that is killed before it noted that it had heard a message hears it again. Returns the resulting lessons.
    ///
    /// # Errors
    /// Returns [`LearnError`]. What was applied before it stays.
    pub fn learn_new(&self, heard: &[Heard], origin: &Origin) -> Result<Vec<Lesson>, LearnError> {
        let before = Journal::read(self.dir())?;
        let mut lessons = Vec::new();
        for heard in heard
            .iter()
            .filter(|heard| !was_learned(&before, heard, origin))
        {
            lessons.extend(self.learn(heard, origin.clone())?);
        }
        Ok(lessons)
    }

    /// Stores a wish that the owner wrote by hand, her own or another person's. No rule checks it. Returns `None` if it is there already.
    ///
    /// # Errors
    /// Returns [`LearnError`] if a file cannot be read or written.
    pub fn write_down<'a>(
        &self,
        holder: impl Into<Holder<'a>>,
        wish: &str,
        at_ms: u64,
    ) -> Result<Option<Lesson>, LearnError> {
        self.rewrite(holder.into(), None, Some(wish), at_ms)
    }

    /// Puts other words in the place of a wish, in one change. Returns `None` if these words are there already.
    ///
    /// # Errors
    /// Returns [`LearnError`] if a file cannot be read or written.
    pub fn reword<'a>(
        &self,
        holder: impl Into<Holder<'a>>,
        wish: &str,
        to: &str,
        at_ms: u64,
    ) -> Result<Option<Lesson>, LearnError> {
        let old = Some(wish).filter(|wish| one_line(wish) != one_line(to));
        let lesson = self.rewrite(holder.into(), old, Some(to), at_ms)?;
        Ok(lesson.filter(|lesson| lesson.state == LessonState::InForce))
    }

    /// Removes a wish from its file. Returns whether it was there. The lesson behind it is no longer in force.
    ///
    /// # Errors
    /// Returns [`LearnError`] if a file cannot be read or written.
    pub fn take_out<'a>(
        &self,
        holder: impl Into<Holder<'a>>,
        wish: &str,
    ) -> Result<bool, LearnError> {
        let taken_out = self.rewrite(holder.into(), Some(wish), None, 0);
        Ok(taken_out?.is_some())
    }

    /// Adds a wish to a file, unless it is there, and removes another one. Returns the lesson of the one that was added, else
    /// of the one that was removed.
    fn rewrite(
        &self,
        holder: Holder<'_>,
        old: Option<&str>,
        new: Option<&str>,
        at_ms: u64,
    ) -> Result<Option<Lesson>, LearnError> {
        let old = old.map(one_line);
        self.change_lessons(|journal| {
            let mut known = self.own_texts(holder);
            let mut added = None;
            if let Some(wish) = new.filter(|wish| !known.contains(&one_line(wish))) {
                self.check_place(holder)?;
                let origin = Origin::by_hand(holder.agent, holder.sender, at_ms);
                let lesson = journal.add(origin, wish, wish, Facet::of_wish(wish));
                self.put_in_force(lesson, &[])?;
                // These are removed, and come back if the new one is undone.
                known.retain(|wish| !lesson.replaced.contains(wish));
                added = Some(lesson.n);
            }
            let Some(old) = old.filter(|wish| known.contains(wish)) else {
                return Ok(added);
            };
            let is_its = |lesson: &Lesson| {
                lesson.state == LessonState::InForce
                    && lesson.origin.holder() == holder
                    && one_line(&lesson.wish) == old
            };
            let removed = journal.newest(is_its).map(|lesson| {
                // The wishes that it replaced stay as they are.
                lesson.replaced.clear();
                withdraw(lesson);
                lesson.n
            });
            Ok(added.or(removed))
        })
    }

    /// Undoes a lesson: its wish is removed, and the wishes that it had replaced are in force again.
    ///
    /// # Errors
    /// Returns [`LearnError`] if there is no such lesson, or it cannot be undone.
    pub fn undo(&self, n: u64) -> Result<Lesson, LearnError> {
        self.change(n, |_, lesson, state| match state {
            LessonState::InForce => {
                withdraw(lesson);
                Ok(())
            }
            LessonState::Review { .. } | LessonState::Noted => {
                lesson.state = LessonState::Undone;
                Ok(())
            }
            LessonState::Replaced { .. } | LessonState::Undone | LessonState::Forgotten => {
                Err(settled(n, state))
            }
        })
    }

    /// Accepts a lesson that waits for review, from `at_ms` on (Unix milliseconds).
    ///
    /// # Errors
    /// Returns [`LearnError`] if no such lesson waits.
    pub fn accept(&self, n: u64, at_ms: u64) -> Result<Lesson, LearnError> {
        self.change(n, |library, lesson, state| {
            waits(n, state)?;
            lesson.since_ms = Some(at_ms);
            library.put_in_force(lesson, &[])
        })
    }

    /// Dismisses a lesson that waits for review. A lesson that says the same is not proposed again.
    ///
    /// # Errors
    /// Returns [`LearnError`] if no such lesson waits.
    pub fn dismiss(&self, n: u64) -> Result<Lesson, LearnError> {
        self.change(n, |_, lesson, state| {
            waits(n, state)?;
            lesson.state = LessonState::Undone;
            Ok(())
        })
    }

    /// Deletes the lessons of some origins: the wishes, and their words in the journal, also where another lesson has
    /// replaced them. Returns the number of these lessons.
    ///
    /// # Errors
    /// Returns [`LearnError`] if a file cannot be read or written.
    pub fn forget_lessons(
        &self,
        is_forgotten: impl Fn(&Origin) -> bool,
    ) -> Result<usize, LearnError> {
        let mut n_forgotten = 0;
        self.change_lessons(|journal| {
            let mut last = None;
            let mut words = Vec::new();
            for lesson in &mut journal.lessons {
                if lesson.state != LessonState::Forgotten && is_forgotten(&lesson.origin) {
                    words.push(one_line(&lesson.wish));
                    lesson.forget();
                    last = Some(lesson.n);
                    n_forgotten += 1;
                }
            }
            // An undo of the wish that replaced it would bring it back. Words that were also said elsewhere stay.
            let is_kept = |lesson: &&Lesson| lesson.state != LessonState::Forgotten;
            let kept = journal.lessons.iter().filter(is_kept);
            let kept_words: HashSet<String> = kept.map(|lesson| one_line(&lesson.wish)).collect();
            words.retain(|wish| !kept_words.contains(wish));
            for lesson in &mut journal.lessons {
                lesson
                    .replaced
                    .retain(|wish| !words.contains(&one_line(wish)));
            }
            Ok(last)
        })?;
        Ok(n_forgotten)
    }

    fn hear_wish(
        &self,
        journal: &mut Journal,
        origin: Origin,
        Worded { said, wish, facet }: Worded<'_>,
        certainty: Certainty,
    ) -> Result<Option<u64>, LearnError> {
        let known = [self.wishes(&origin.agent), self.own_wishes(origin.holder())];
        let line = one_line(wish);
        if known.iter().flatten().any(|known| known.text == line) {
            return Ok(None);
        }
        self.check_place(origin.holder())?;
        let mut why = suspicions(wish);
        if certainty == Certainty::Likely {
            why.push(Suspicion::Unsure);
        }
        let from = origin.clone();
        let is_same = |lesson: &Lesson| {
            lesson.origin.holder() == from.holder() && is_same(&lesson.wish, wish)
        };
        if !why.is_empty() {
            // A lesson that waits already, or was dismissed or undone, is not proposed again.
            if journal.lessons.iter().any(is_same) {
                return Ok(None);
            }
            let lesson = journal.add(origin, said, wish, facet);
            lesson.state = LessonState::Review { why };
            return Ok(Some(lesson.n));
        }
        let waiting = journal
            .lessons
            .iter_mut()
            .filter(|lesson| matches!(lesson.state, LessonState::Review { .. }) && is_same(lesson));
        waiting.for_each(|lesson| lesson.state = LessonState::Undone);
        let beside = said_beside(journal, &origin);
        let lesson = journal.add(origin, said, wish, facet);
        self.put_in_force(lesson, &beside)?;
        Ok(Some(lesson.n))
    }

    fn hear_complaint(
        &self,
        journal: &mut Journal,
        origin: Origin,
        facet: Facet,
        wish: &str,
        text: &str,
    ) -> Result<Option<u64>, LearnError> {
        let is_same = |lesson: &Lesson| {
            lesson.state == LessonState::Noted
                && lesson.origin.holder() == origin.holder()
                && lesson.wish == wish
                && origin.at_ms.saturating_sub(lesson.origin.at_ms) <= COMPLAINTS_WITHIN_MS
        };
        let first = journal.newest(is_same).map(|first| {
            first.state = LessonState::Undone;
            first.n
        });
        if first.is_some() {
            let facet = Some(facet);
            let wish = Worded {
                said: text,
                wish,
                facet,
            };
            return self.hear_wish(journal, origin, wish, Certainty::Certain);
        }
        Ok(Some(journal.add(origin, text, wish, Some(facet)).n))
    }

    fn take_back(
        &self,
        journal: &mut Journal,
        origin: &Origin,
        facet: Option<Facet>,
    ) -> Option<u64> {
        let is_meant = |lesson: &&Lesson| {
            matches!(
                lesson.state,
                LessonState::InForce | LessonState::Review { .. }
            ) && lesson.origin.holder() == origin.holder()
                && (facet.is_none() || lesson.facet == facet)
        };
        let mut decided = journal.lessons.clone();
        self.decide_states(&mut decided);
        let n = decided.iter().rev().find(is_meant)?.n;
        let lesson = journal.newest(|lesson| lesson.n == n)?;
        lesson.taken_back_ms = Some(origin.at_ms);
        if lesson.state == LessonState::InForce {
            withdraw(lesson);
        } else {
            lesson.state = LessonState::Undone;
        }
        Some(n)
    }

    fn change(
        &self,
        n: u64,
        change: impl FnOnce(&Self, &mut Lesson, &LessonState) -> Result<(), LearnError>,
    ) -> Result<Lesson, LearnError> {
        let changed = self.change_lessons(|journal| {
            let mut decided = journal.lessons.clone();
            self.decide_states(&mut decided);
            let lesson = |n: u64| decided.iter().find(|lesson| lesson.n == n);
            let state = &lesson(n).ok_or(LearnError::Unknown(n))?.state;
            if let LessonState::Replaced { by, by_wish: wish } = state.clone() {
                return Err(LearnError::Replaced { n, by, wish });
            }
            let lesson = journal.newest(|lesson| lesson.n == n);
            let lesson = lesson.ok_or(LearnError::Unknown(n))?;
            change(self, lesson, state)?;
            Ok(Some(n))
        });
        changed?.ok_or(LearnError::Unknown(n))
    }

    /// Lets a wish replace those about the same subject except for those of the same message (`beside`).
    fn put_in_force(&self, lesson: &mut Lesson, beside: &[String]) -> Result<(), LearnError> {
        wishes::checked(&lesson.wish)?;
        let holder = lesson.origin.holder();
        let is_replaced = |text: &str| {
            lesson.facet.is_some_and(Facet::is_exclusive)
                && Facet::of_wish(text) == lesson.facet
                && !beside.iter().any(|other| other == text)
        };
        let known = self.own_texts(holder);
        let replaced: Vec<String> = known.into_iter().filter(|k| is_replaced(k)).collect();
        lesson.replaced = replaced;
        lesson.state = LessonState::InForce;
        lesson.unfinished = true;
        Ok(())
    }

    fn check_place(&self, holder: Holder<'_>) -> Result<(), LearnError> {
        let Some(sender) = holder.sender else {
            return Ok(());
        };
        let people = self.people(holder.agent);
        if people.len() < MAX_PEOPLE || people.contains(sender) {
            return Ok(());
        }
        Err(LearnError::TooManyPeople {
            agent: holder.agent.clone(),
        })
    }

    fn own_texts<'a>(&self, holder: impl Into<Holder<'a>>) -> Vec<String> {
        let wishes = self.own_wishes(holder).into_iter();
        wishes.map(|wish| wish.text).collect()
    }
}

/// Takes a wish out of its file, and puts those back that it had replaced.
fn withdraw(lesson: &mut Lesson) {
    lesson.state = LessonState::Undone;
    lesson.unfinished = true;
}

fn was_learned(journal: &Journal, heard: &Heard, origin: &Origin) -> bool {
    journal.lessons.iter().any(|lesson| match heard {
        Heard::Wish { said, .. } | Heard::Complaint { text: said, .. } => {
            lesson.origin == *origin && lesson.heard == *said
        }
        Heard::TakenBack { facet } => {
            lesson.taken_back_ms == Some(origin.at_ms)
                && lesson.origin.holder() == origin.holder()
                && (facet.is_none() || lesson.facet == *facet)
        }
    })
}

/// Returns the wishes in force from the same message, because "One sentence, please. I read these on my watch."
/// withdraws nothing.
fn said_beside(journal: &Journal, origin: &Origin) -> Vec<String> {
    let is_beside = |lesson: &&Lesson| {
        lesson.state == LessonState::InForce
            && origin.turn.is_some()
            && lesson.origin.turn == origin.turn
    };
    let lessons = journal.lessons.iter().filter(is_beside);
    lessons.map(|lesson| lesson.wish.clone()).collect()
}

fn is_same(one: &str, other: &str) -> bool {
    let words = |text: &str| {
        text.chars()
            .filter(|c| c.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .collect::<String>()
    };
    words(one) == words(other)
}

fn waits(n: u64, state: &LessonState) -> Result<(), LearnError> {
    let waits = matches!(state, LessonState::Review { .. });
    waits.then_some(()).ok_or_else(|| settled(n, state))
}

fn settled(n: u64, state: &LessonState) -> LearnError {
    LearnError::Settled {
        n,
        is: match state {
            LessonState::InForce => "in force",
            LessonState::Replaced { .. } => "replaced",
            LessonState::Noted => "a complaint that was noted, not a wish",
            LessonState::Review { .. } => "waiting for review",
            LessonState::Undone => "undone already",
            LessonState::Forgotten => "forgotten: its words are gone",
        },
    }
}

/// The undone lesson.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenBack {
    /// A wish. The wishes that it had replaced are in force again.
    Wish(Lesson),
    /// A skill. What it had replaced is in force again.
    Skill(Proposal),
}

// === impl Library ===

impl Library {
    /// Undoes the lesson that came into force last, of any agent. A skill whose file somebody removed does not count.
    /// It accesses the file system.
    ///
    /// # Errors
    /// Returns [`LearnError`]. Except for what the error says, nothing has changed.
    pub fn undo_newest(&self) -> Result<TakenBack, LearnError> {
        let lessons = self.journal()?.into_iter();
        let wish = lessons
            .filter(|lesson| lesson.state == LessonState::InForce)
            .max_by_key(|lesson| (lesson.in_force_ms(), lesson.n));
        let skill = self.newest_skill()?.filter(|skill| {
            let is_older = |wish: &Lesson| wish.in_force_ms() < skill.in_force_ms();
            wish.as_ref().is_none_or(is_older)
        });
        if let Some(skill) = skill {
            let agent = Some(&skill.source.agent);
            return Ok(TakenBack::Skill(self.revert_skill(agent, &skill.name)?));
        }
        let wish = wish.ok_or(LearnError::Nothing)?;
        Ok(TakenBack::Wish(self.undo(wish.n)?))
    }
}
