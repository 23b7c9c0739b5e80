//! Separates thinking from the reply.
//!
//! Reasoning models write `<think> .. </think>` before their answer. A client gets the former as `reasoning_content`
//! and the latter as `content`. Only thinking at the beginning of a reply counts. A later `<think>` is ordinary text
//! about it.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ReplyPiece {
    pub(crate) reasoning: String,
    pub(crate) content: String,
}

/// Splits a text that arrives in pieces. The result does not depend on how the text is cut.
#[derive(Debug)]
pub(crate) struct ThinkSplitter {
    state: State,
    /// Text that may still be part of a tag, or white space that may still come before one.
    held: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Only white space so far.
    Start,
    /// Inside the tag. White space at the start of the thinking is left out until other text follows.
    Thinking { begun: bool },
    /// After `</think>`. White space is left out until other text follows.
    Closed,
    /// Plain text up to the end.
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
    /// Makes a splitter for a reply to `prompt`, which may itself end in an open `<think>`, as some templates do.
    pub(crate) fn new(prompt: &str) -> Self {
        let state = if prompt.trim_end().ends_with(OPEN) {
            State::Thinking { begun: false }
        } else {
            State::Start
        };
        let held = String::new();
        Self { state, held }
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
            State::Reply => {
                piece.content.push_str(&self.held);
                self.held.clear();
                false
            }
        }
    }

    fn start(&mut self) -> bool {
        let begins = self.held.trim_start();
        if let Some(after) = begins.strip_prefix(OPEN) {
            self.held = after.to_owned();
            self.state = State::Thinking { begun: false };
            return true;
        }
        if OPEN.starts_with(begins) {
            return false;
        }
        self.state = State::Reply;
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
        if let Some(at) = self.held.find(CLOSE) {
            piece.reasoning.push_str(self.held[..at].trim_end());
            self.held.drain(..at + CLOSE.len());
            self.state = State::Closed;
            return true;
        }
        let keep_from = tail_to_hold(&self.held);
        piece.reasoning.push_str(&self.held[..keep_from]);
        self.held.drain(..keep_from);
        false
    }
}

fn tail_to_hold(text: &str) -> usize {
    let mut lengths = (1..CLOSE.len()).rev().filter(|n| text.len() >= *n);
    let part = lengths.find(|n| text.ends_with(&CLOSE[..*n]));
    let tag = text.len() - part.unwrap_or(0);
    text[..tag].trim_end().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(prompt: &str, text: &str) -> (String, String) {
        let run = |parts: &[&str]| {
            let mut splitter = ThinkSplitter::new(prompt);
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
    }
}
