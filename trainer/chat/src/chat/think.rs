//! Separates thinking from the reply.
//!
//! Reasoning models write `<think> .. </think>` before their answer. A client gets the former as `reasoning_content`
//! and the latter as `content`. Only thinking at the beginning of a reply counts. A later `<think>` is ordinary text
//! about it.
//!
//! Gemma 4 writes `<|channel>thought .. <channel|>`. These marks are special tokens and no text about them, so they
//! count wherever they stand.

use metaclaw_trainer_terms::gemma;

/// The mark that opens thinking, the word that may follow it, and the mark that closes thinking.
type Marks = [&'static str; 3];

const TAGS: Marks = ["<think>", "", "</think>"];
const CHANNELS: Marks = [gemma::CHANNEL, "thought", gemma::CHANNEL_END];

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ReplyPiece {
    pub(crate) reasoning: String,
    pub(crate) content: String,
}

/// Splits a text that arrives in pieces. The result does not depend on how the text is cut.
#[derive(Debug)]
pub(crate) struct ThinkSplitter {
    marks: Marks,
    state: State,
    /// Text that may still be part of a tag, or white space that may still come before one.
    held: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Only white space so far.
    Start,
    /// After the mark that opens thinking.
    Opened,
    /// Inside the marks. White space at the start of the thinking is left out until other text follows.
    Thinking { begun: bool },
    /// After the mark that closes it. White space is left out until other text follows.
    Closed,
    /// Plain text, which tags do not end any more.
    Reply,
}

// === impl ReplyPiece ===

impl ReplyPiece {
    pub(crate) fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.content.is_empty()
    }

    pub(crate) fn push(&mut self, next: &Self) {
        self.reasoning.push_str(&next.reasoning);
        self.content.push_str(&next.content);
    }
}

// === impl ThinkSplitter ===

impl ThinkSplitter {
    /// Makes a splitter for a reply to `prompt`, which may itself end with open thinking, as with some templates. The
    /// marks are channels or tags.
    pub(crate) fn new(prompt: &str, has_channels: bool) -> Self {
        let marks = if has_channels { CHANNELS } else { TAGS };
        let [open, label, _] = marks;
        let opened = prompt.trim_end().strip_suffix(label);
        let state = if opened.is_some_and(|opened| opened.ends_with(open)) {
            State::Thinking { begun: false }
        } else {
            State::Start
        };
        let held = String::new();
        Self { marks, state, held }
    }

    pub(crate) fn push(&mut self, text: &str) -> ReplyPiece {
        self.held.push_str(text);
        let mut piece = ReplyPiece::default();
        while self.step(&mut piece) {}
        piece
    }

    pub(crate) fn finish(&mut self) -> ReplyPiece {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Opened => ReplyPiece::default(),
            State::Thinking { .. } => ReplyPiece {
                reasoning: held.trim_end().to_owned(),
                content: String::new(),
            },
            State::Start | State::Closed | State::Reply => ReplyPiece {
                reasoning: String::new(),
                content: held,
            },
        }
    }

    /// Processes held text. Returns whether there may be more to do.
    fn step(&mut self, piece: &mut ReplyPiece) -> bool {
        match self.state {
            State::Start => self.start(),
            State::Opened => self.opened(),
            State::Thinking { begun } => self.think(begun, piece),
            State::Closed => {
                let kept = self.held.trim_start();
                if kept.is_empty() {
                    self.held.clear();
                    return false;
                }
                self.held = kept.to_owned();
                self.state = State::Reply;
                true
            }
            State::Reply => self.reply(piece),
        }
    }

    fn start(&mut self) -> bool {
        let [open, ..] = self.marks;
        let begins = self.held.trim_start();
        if let Some(after) = begins.strip_prefix(open) {
            self.held = after.to_owned();
            self.state = State::Opened;
            return true;
        }
        if open.starts_with(begins) {
            return false;
        }
        self.state = State::Reply;
        true
    }

    /// Leaves out the word after the mark.
    fn opened(&mut self) -> bool {
        let [_, label, _] = self.marks;
        if label.starts_with(&self.held) && self.held != label {
            return false;
        }
        if self.held.starts_with(label) {
            self.held.drain(..label.len());
        }
        self.state = State::Thinking { begun: false };
        true
    }

    fn reply(&mut self, piece: &mut ReplyPiece) -> bool {
        let [open, _, close] = self.marks;
        let is_special = self.marks == CHANNELS;
        let marks: &[&str] = if is_special { &[open, close] } else { &[] };
        let found = marks
            .iter()
            .filter_map(|mark| Some((self.held.find(mark)?, *mark)));
        let Some((at, mark)) = found.min() else {
            let sure = marks.iter().map(|mark| before_tail(&self.held, mark));
            let sure = sure.min().unwrap_or(self.held.len());
            piece.content.extend(self.held.drain(..sure));
            return false;
        };
        piece.content.push_str(&self.held[..at]);
        self.held.drain(..at + mark.len());
        if mark == open {
            self.state = State::Opened;
        }
        true
    }

    fn think(&mut self, begun: bool, piece: &mut ReplyPiece) -> bool {
        if !begun {
            let kept = self.held.trim_start();
            if kept.is_empty() {
                self.held.clear();
                return false;
            }
            self.held = kept.to_owned();
            self.state = State::Thinking { begun: true };
        }
        let [.., close] = self.marks;
        if let Some(at) = self.held.find(close) {
            piece.reasoning.push_str(self.held[..at].trim_end());
            self.held.drain(..at + close.len());
            self.state = State::Closed;
            return true;
        }
        let sure = &self.held[..before_tail(&self.held, close)];
        let keep_from = sure.trim_end().len();
        piece.reasoning.push_str(&self.held[..keep_from]);
        self.held.drain(..keep_from);
        false
    }
}

/// Returns where the beginning of a mark stands at the end of `text`, or the end.
fn before_tail(text: &str, mark: &str) -> usize {
    let part = (1..mark.len()).rev().find(|n| text.ends_with(&mark[..*n]));
    text.len() - part.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(prompt: &str, text: &str) -> (String, String) {
        split_with(false, prompt, text)
    }

    fn split_with(has_channels: bool, prompt: &str, text: &str) -> (String, String) {
        let run = |parts: &[&str]| {
            let mut splitter = ThinkSplitter::new(prompt, has_channels);
            let mut whole = ReplyPiece::default();
            for part in parts {
                whole.push(&splitter.push(part));
            }
            whole.push(&splitter.finish());
            (whole.reasoning, whole.content)
        };
        let whole = run(&[text]);
        let cuts = text.char_indices().map(|(at, _)| at);
        for at in cuts {
            assert_eq!(run(&[&text[..at], &text[at..]]), whole, "cut at {at}");
        }
        let chars: Vec<String> = text.chars().map(String::from).collect();
        let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
        assert_eq!(run(&chars), whole);
        whole
    }

    #[test]
    fn thinking_is_split_from_the_reply() {
        let both = |r: &str, c: &str| (r.to_owned(), c.to_owned());
        assert_eq!(
            split("", "<think>\nhm </thin> \n</think>\n\nParis."),
            both("hm </thin>", "Paris.")
        );
        assert_eq!(split("", "\n<think></think>Paris"), both("", "Paris"));
        assert_eq!(
            split("", "Paris <think>x</think>"),
            both("", "Paris <think>x</think>")
        );
        assert_eq!(split("", "  Paris"), both("", "  Paris"));
        assert_eq!(split("", "<thin"), both("", "<thin"));
        assert_eq!(split("", "<think>cut off "), both("cut off", ""));
        assert_eq!(
            split("..assistant\n<think>\n", "hm\n</think>\nYes"),
            both("hm", "Yes")
        );
        assert_eq!(split("", ""), both("", ""));
        let other = "<|channel>thought\nhm<channel|>Paris";
        assert_eq!(split("", other), both("", other));
    }

    #[test]
    fn channels_are_thinking_wherever_they_stand() {
        let both = |r: &str, c: &str| (r.to_owned(), c.to_owned());
        let empty = "<|turn>model\n<|channel>thought\n<channel|>";
        let open = "<tool_response|><|channel>thought\n";
        for (prompt, said, expected) in [
            (
                "",
                "<|channel>thought\nhm < 2 <chan\n<channel|>\nParis.",
                both("hm < 2 <chan", "Paris."),
            ),
            ("", "<|channel>thought<channel|>Paris", both("", "Paris")),
            ("", "<|channel>hm<channel|>Paris", both("hm", "Paris")),
            (
                "",
                "<|channel>though<channel|>Paris",
                both("though", "Paris"),
            ),
            (
                "",
                "  Paris <think>x</think> <",
                both("", "  Paris <think>x</think> <"),
            ),
            (
                "",
                "a <|channel>thought\nhm<channel|> b<channel|>c",
                both("hm", "a bc"),
            ),
            ("", "<channel|>Paris", both("", "Paris")),
            ("", "<|channel>thought\ncut off ", both("cut off", "")),
            ("", "<|channel>thou", both("", "")),
            (empty, "Paris", both("", "Paris")),
            (
                empty,
                "<|channel>thought\n<channel|>Paris",
                both("", "Paris"),
            ),
            (open, "hm\n<channel|>Yes", both("hm", "Yes")),
            (
                "",
                "<|channel>thought\nhm<channel|><|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>",
                both("hm", "<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>"),
            ),
        ] {
            assert_eq!(split_with(true, prompt, said), expected, "{said}");
        }
    }
}
