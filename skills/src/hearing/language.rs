//! What is made of a sentence: a wish, a complaint, or that a wish is taken back.

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
    /// A sentence as the patterns expect it.
    pub(super) plain: fn(&str) -> String,
    pub(super) clauses: fn(&str) -> Vec<&str>,
    /// What is complained of, what is wished for by it, and in which words.
    pub(super) complaints: [(Facet, &'static str, Regex); 8],
    /// A wish is taken back.
    pub(super) takes_back: Regex,
    /// A sentence that only says that the one before it is to hold.
    pub(super) holds: Regex,
}

// === impl Language ===

impl Language {
    /// How sure it is that a sentence is a wish. What somebody else says is none.
    pub(super) fn wish(&self, sentence: &Sentence<'_>) -> Option<Certainty> {
        if sentence.voice != Voice::Owner {
            return None;
        }
        self.cues(sentence).certainty(sentence.is_in_long)
    }

    /// What a sentence complains of in the reply before.
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

    /// A wish is taken back.
    pub(super) fn takes_back(&self, sentence: &Sentence<'_>) -> bool {
        sentence.voice == Voice::Owner && self.takes_back.is_match(&(self.plain)(&sentence.masked))
    }

    /// It says of the sentence before it that it is to hold.
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
        // "Always .. in the letter" may be meant of letters; "make the letter shorter" is not.
        if cues.has_any(&stands) {
            cues.remove(Cue::AtHand);
        }
        // "Call me at five" names nobody.
        if cues.has(Cue::Once) {
            cues.remove(Cue::Name);
        }
        // "Could you stop apologising?" orders, "can you remember this from now on?" asks.
        let orders = cues.has_any(&stands) || cues.has_any(&[Cue::Forbids, Cue::YourWork]);
        if cues.has(Cue::Polite) && orders && !cues.has(Cue::Recalls) {
            cues.remove(Cue::Question);
        }
        // "Whenever you translate for me, add .." orders no translation now.
        if cues.has(Cue::CaseFirst) && cues.has(Cue::Case) {
            cues.remove(Cue::Task);
            cues.remove(Cue::TextWork);
        }
        cues
    }
}
