//! Decides what a sentence is: a wish, a complaint, or the withdrawal of a wish.

use regex::Regex;

use super::{
    cue::{Certainty, Cue, Cues},
    facet::Facet,
    lexicon::Lexicon,
    own_words::{Sentence, Task, Voice},
};

#[derive(Debug)]
pub(super) struct Language {
    /// The words of each cue.
    pub(super) lexicon: Lexicon,
    /// Normalises a sentence for the patterns.
    pub(super) plain: fn(&str) -> String,
    pub(super) clauses: fn(&str) -> Vec<&str>,
    /// Subjects of complaints, the wish that each implies, and the words.
    pub(super) complaints: [(Facet, &'static str, Regex); 8],
    /// Sentences that withdraw a wish.
    pub(super) takes_back: Regex,
    /// A sentence that only says that the previous one should apply permanently.
    pub(super) holds: Regex,
}

// === impl Language ===

impl Language {
    /// Returns how certain it is that a sentence is a wish. Somebody else's words are never a wish.
    pub(super) fn wish(&self, sentence: &Sentence<'_>) -> Option<Certainty> {
        if sentence.voice != Voice::Owner {
            return None;
        }
        self.cues(sentence).certainty(sentence.is_in_long)
    }

    /// Returns the complaint of a sentence about the previous reply.
    pub(super) fn complaint(&self, sentence: &Sentence<'_>) -> Option<(Facet, &'static str)> {
        let passes = |cue| self.cues(sentence).has(cue);
        if sentence.voice != Voice::Owner
            || sentence.is_in_long
            || passes(Cue::Task)
            || passes(Cue::Once)
        {
            return None;
        }
        let said = (self.plain)(&sentence.masked);
        let mut complaints = self.complaints.iter();
        complaints
            .find(|(.., words)| words.is_match(&said))
            .map(|(facet, wish, _)| (*facet, *wish))
    }

    /// Returns whether a sentence withdraws a wish.
    pub(super) fn takes_back(&self, sentence: &Sentence<'_>) -> bool {
        sentence.voice == Voice::Owner && self.takes_back.is_match(&(self.plain)(&sentence.masked))
    }

    /// Returns whether it says that the previous sentence should apply permanently.
    pub(super) fn holds(&self, sentence: &Sentence<'_>) -> bool {
        self.holds.is_match(&(self.plain)(&sentence.masked))
    }

    fn cues(&self, sentence: &Sentence<'_>) -> Cues {
        let said = (self.plain)(&sentence.masked);
        let mut cues = self.lexicon.cues(&said, &(self.clauses)(&said));
        match sentence.task {
            Task::Nowhere => {}
            Task::Beside => cues.insert(Cue::TaskBeside),
            Task::Here => cues.insert(Cue::Task),
        }
        if said.contains([':', '：']) {
            cues.insert(Cue::Colon);
        }
        if sentence.holds {
            cues.insert(Cue::Lasting);
        }
        let stands = [Cue::Lasting, Cue::Constant, Cue::Case];
        // "Always .. in the letter" may be meant for letters in general. "Make the letter shorter" is not.
        if cues.has_any(&stands) {
            cues.remove(Cue::AtHand);
        }
        // "Call me at five" gives no name.
        if cues.has(Cue::Once) {
            cues.remove(Cue::Name);
        }
        // "Could you stop apologising?" is an order, and "can you remember this from now on?" is a question.
        let orders = cues.has_any(&stands) || cues.has_any(&[Cue::Forbids, Cue::YourWork]);
        if cues.has(Cue::Polite) && orders && !cues.has(Cue::Recalls) {
            cues.remove(Cue::Question);
        }
        // "Whenever you translate for me, add .." does not order a translation now.
        if cues.has(Cue::CaseFirst) && cues.has(Cue::Case) {
            cues.remove(Cue::Task);
            cues.remove(Cue::TextWork);
        }
        cues
    }
}
