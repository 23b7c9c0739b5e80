//! Decides what a sentence is: a wish, a complaint, or the withdrawal of a wish.

use std::sync::LazyLock;

use super::{
    covered::COVER,
    cue::{Certainty, Cue, Cues, Facet},
    lexicon::{Lexicon, Script},
    own_words::{Sentence, Task, Voice, is_chinese},
};

#[derive(Debug)]
pub(super) struct Language {
    script: Script,
    lexicon: Lexicon,
}

static ENGLISH: LazyLock<Language> =
    LazyLock::new(|| Language::read(Script::Words, include_str!("../../data/english.tsv")));
static CHINESE: LazyLock<Language> =
    LazyLock::new(|| Language::read(Script::Characters, include_str!("../../data/chinese.tsv")));

// === impl Language ===

impl Language {
    fn read(script: Script, table: &'static str) -> Self {
        let lexicon = Lexicon::read(script, table);
        Self { script, lexicon }
    }

    pub(super) fn detect(sentence: &Sentence<'_>) -> &'static Self {
        if is_chinese(sentence.text) {
            &CHINESE
        } else {
            &ENGLISH
        }
    }

    /// Returns how certain it is that a sentence is a wish. Somebody else's words are never a wish.
    pub(super) fn wish(&self, sentence: &Sentence<'_>) -> Option<Certainty> {
        if sentence.voice != Voice::Owner {
            return None;
        }
        self.cues(sentence).certainty(sentence.is_in_long)
    }

    pub(super) fn complaint(&self, sentence: &Sentence<'_>) -> Option<(Facet, &'static str)> {
        let passes = |cue| self.cues(sentence).has(cue);
        if sentence.voice != Voice::Owner
            || sentence.is_in_long
            || passes(Cue::Task)
            || passes(Cue::Once)
        {
            return None;
        }
        let said = self.plain(&sentence.masked);
        let mut complaints = self.lexicon.complaints.iter();
        complaints
            .find(|(.., words)| words.is_match(&said))
            .map(|(facet, wish, _)| (*facet, *wish))
    }

    pub(super) fn takes_back(&self, sentence: &Sentence<'_>) -> bool {
        sentence.voice == Voice::Owner
            && self
                .lexicon
                .takes_back
                .is_match(&self.plain(&sentence.masked))
    }

    /// Returns whether a sentence by itself plainly says nothing about the manner of answers: small talk, numbers, "every
    /// time", or a question or a task of the moment without a hint at a wish.
    pub(super) fn says_nothing(&self, sentence: &Sentence<'_>) -> bool {
        let said = self.plain(&sentence.masked);
        let is_task = || {
            self.lexicon.passing.is_match(&said)
                && !self.cues(sentence).hint_at_wish()
                && Facet::find(&sentence.masked).is_none()
                && self.complaint(sentence).is_none()
                && !self.takes_back(sentence)
        };
        !said.contains(char::is_alphabetic)
            || self.lexicon.small_talk.is_match(&said)
            || self.holds(sentence)
            || is_task()
    }

    pub(super) fn holds(&self, sentence: &Sentence<'_>) -> bool {
        self.lexicon.holds.is_match(&self.plain(&sentence.masked))
    }

    fn cues(&self, sentence: &Sentence<'_>) -> Cues {
        let said = self.plain(&sentence.masked);
        let clauses = self.clauses(&said);
        let mut cues = self.lexicon.cues(&said, &clauses);
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
        if cues.has(Cue::Advice) && (cues.has_any(&stands) || cues.has(Cue::Forbids)) {
            cues.insert(Cue::YourWork);
        }
        // "Could you stop apologising?" is an order, and "can you remember this from now on?" is a question.
        let orders = cues.has_any(&stands) || cues.has_any(&[Cue::Forbids, Cue::YourWork]);
        if cues.has(Cue::Polite) && orders && !cues.has(Cue::Recalls) {
            cues.remove(Cue::Question);
        }
        // "Always answer in French, and what is the capital of Peru?" is more than a question.
        let asks = clauses.len() == 1 && said.ends_with(['?', '？', '吗']);
        if asks && cues.has(Cue::Question) && !cues.has(Cue::Soft) {
            cues.insert(Cue::Inquiry);
        }
        // "No emojis for me" is about answers.
        let of_answers = [Cue::Manner, Cue::Habit, Cue::Convention, Cue::YourWork];
        if cues.has_any(&of_answers) || Facet::find(&sentence.masked).is_some() {
            cues.remove(Cue::Taste);
        }
        // "Whenever you translate for me, add .." does not order a translation now.
        if cues.has(Cue::CaseFirst) && cues.has(Cue::Case) {
            cues.remove(Cue::Task);
            cues.remove(Cue::TextWork);
        }
        cues
    }

    /// Removes apostrophes, because people leave them out. Chinese has none.
    fn plain(&self, text: &str) -> String {
        let text = text.trim();
        match self.script {
            Script::Words => text.replace(['\'', '’', COVER], "").replace("  ", " "),
            Script::Characters => text.replace(COVER, ""),
        }
    }

    fn clauses<'t>(&self, sentence: &'t str) -> Vec<&'t str> {
        let parts: Vec<&str> = match self.script {
            Script::Words => sentence
                .split([',', ':', '–', '—', '(', ')', ';'])
                .flat_map(|part| part.split(" so "))
                .flat_map(|part| part.split(" but "))
                .flat_map(|part| part.split(" and "))
                .collect(),
            Script::Characters => sentence
                .split(['，', ',', '：', ':', '；', ';', '（', '）', '—'])
                .collect(),
        };
        let parts = parts.into_iter().map(str::trim);
        parts.filter(|part| !part.is_empty()).collect()
    }
}
