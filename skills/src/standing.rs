//! What is in force of the history of lessons, and how the history and WISHES.md come to agree.
//!
//! WISHES.md decides which wishes are in force, because people edit it too. The history says where they come from. A
//! change is first written into the history, then made in the file. After a kill in between, it is made at the next
//! start. A line of the file without an entry in the history gets one, so that it can be undone.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use metaclaw_chat::{AgentId, SenderId, one_line, unix_ms};

use crate::{
    hearing::Facet,
    holder::Holder,
    journal::{Journal, Lesson, LessonState, Origin},
    learn::LearnError,
    library::Library,
};

/// What a start found and mended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettledLessons {
    /// Changes of WISHES.md that a kill had interrupted, and that are made now.
    pub n_finished: usize,
    /// Wishes in force that had no entry in the history, and have one now.
    pub found: Vec<Lesson>,
}

// === impl Library ===

impl Library {
    /// Finishes what a kill interrupted, and gives wishes without an entry in the history one. It
    /// accesses the file system.
    ///
    /// # Errors
    /// Returns [`LearnError`] if a file cannot be read or written.
    pub fn settle_lessons(&self) -> Result<SettledLessons, LearnError> {
        let _lock = self.lock_lessons()?;
        let mut journal = Journal::read(self.dir())?;
        let n_finished = self.finish(&mut journal)?;
        let found = self.enter_unknown(&mut journal);
        if n_finished > 0 || !found.is_empty() {
            journal.write(self.dir())?;
        }
        Ok(SettledLessons { n_finished, found })
    }

    /// Changes the history, and then the files of wishes as it says. If this fails, the history is as it was. `change`
    /// returns the number of the changed lesson, or `None` if nothing changes.
    pub(crate) fn change_lessons(
        &self,
        change: impl FnOnce(&mut Journal) -> Result<Option<u64>, LearnError>,
    ) -> Result<Option<Lesson>, LearnError> {
        let _lock = self.lock_lessons()?;
        let mut journal = Journal::read(self.dir())?;
        self.finish(&mut journal)?;
        self.enter_unknown(&mut journal);
        let mut before = journal.clone();
        let Some(n) = change(&mut journal)? else {
            return Ok(None);
        };
        journal.write(self.dir())?;
        match self.finish(&mut journal) {
            Ok(0) => {}
            Ok(_) => journal.write(self.dir())?,
            Err(error) => {
                before.write(self.dir())?;
                return Err(error);
            }
        }
        Ok(journal.newest(|journal| journal.n == n).cloned())
    }

    /// Sets the state of each lesson that the history has as in force, as WISHES.md decides it.
    pub(crate) fn decide_states(&self, lessons: &mut [Lesson]) {
        let mut files: HashMap<(AgentId, Option<SenderId>), HashSet<String>> = HashMap::new();
        let mut replaced_by = HashMap::new();
        for lesson in lessons.iter_mut().rev() {
            if lesson.state != LessonState::InForce {
                continue;
            }
            let Origin { agent, sender, .. } = &lesson.origin;
            let holder = (agent.clone(), sender.clone());
            let replaced: Vec<_> = lesson
                .replaced
                .iter()
                .map(|old| (holder.clone(), one_line(old)))
                .collect();
            let wishes = files.entry(holder.clone()).or_insert_with(|| {
                let wishes = self.own_wishes(lesson.origin.holder()).into_iter();
                wishes.map(|wish| wish.text).collect()
            });
            let wish = one_line(&lesson.wish);
            if !wishes.contains(&wish) && !lesson.unfinished {
                lesson.state = match replaced_by.get(&(holder, wish)) {
                    Some((by, wish)) => LessonState::Replaced {
                        by: *by,
                        by_wish: String::clone(wish),
                    },
                    None => LessonState::Undone,
                };
            }
            let by = (lesson.n, lesson.wish.clone());
            replaced_by.extend(replaced.into_iter().map(|old| (old, by.clone())));
        }
    }

    fn finish(&self, journal: &mut Journal) -> Result<usize, LearnError> {
        let mut n_finished = 0;
        for lesson in journal.lessons.iter_mut().filter(|le| le.unfinished) {
            let holder = lesson.origin.holder();
            if lesson.state == LessonState::InForce {
                self.add_wish(holder, &lesson.wish)?;
                for old in &lesson.replaced {
                    self.remove_wish(holder, old)?;
                }
            } else {
                for old in &lesson.replaced {
                    self.add_wish(holder, old)?;
                }
                self.remove_wish(holder, &lesson.wish)?;
            }
            lesson.unfinished = false;
            if lesson.state == LessonState::Forgotten {
                lesson.forget();
            }
            n_finished += 1;
        }
        Ok(n_finished)
    }

    fn enter_unknown(&self, journal: &mut Journal) -> Vec<Lesson> {
        let mut known: HashMap<_, u64> = HashMap::new();
        for lesson in journal
            .lessons
            .iter()
            .filter(|lesson| lesson.state == LessonState::InForce)
        {
            let Origin { agent, sender, .. } = &lesson.origin;
            let wish = (agent.clone(), sender.clone(), one_line(&lesson.wish));
            known.insert(wish, lesson.in_force_ms());
        }
        let mut found = Vec::new();
        for agent in self.agents().into_iter().chain([AgentId::shared()]) {
            let people = self.people(&agent).into_iter().map(Some);
            for sender in std::iter::once(None).chain(people) {
                let holder = Holder {
                    agent: &agent,
                    sender: sender.as_ref(),
                };
                let mut at_ms = self.edited_ms(holder);
                let wishes = self.own_wishes(holder).into_iter().rev();
                let mut unknown = Vec::new();
                for wish in wishes.map(|wish| wish.text) {
                    // A wish is added as the last line, so an earlier line is older.
                    let key = (agent.clone(), sender.clone(), wish);
                    match known.get(&key) {
                        Some(since_ms) => at_ms = at_ms.min(since_ms.saturating_sub(1)),
                        None => unknown.push((key.2, at_ms)),
                    }
                }
                for (wish, at_ms) in unknown.into_iter().rev() {
                    let origin = Origin {
                        agent: agent.clone(),
                        session: None,
                        turn: None,
                        sender: sender.clone(),
                        at_ms,
                    };
                    let lesson = journal.add(origin, &wish, &wish, Facet::of_wish(&wish));
                    lesson.state = LessonState::InForce;
                    found.push(lesson.clone());
                }
            }
        }
        found
    }

    /// Returns when a file of wishes was written last, in Unix milliseconds, or 0 if that is not known.
    fn edited_ms(&self, holder: Holder<'_>) -> u64 {
        let edited = fs::metadata(self.wishes_file(holder)).and_then(|file| file.modified());
        edited.map_or(0, unix_ms)
    }
}

#[cfg(test)]
mod tests;
