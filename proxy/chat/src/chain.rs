//! Identifies a conversation by a chain hash over its messages.

use memchr::{memchr3_iter, memmem};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{
    message::{Message, Role},
    utterance::{self, work::looks_at},
};

/// The hash of a conversation up to and including one message: who said what, in what order.
///
/// It covers user and tool messages (role and normalised text). It leaves out system, developer and synthetic messages,
/// and text that clients show besides the conversation, because aider's files move behind later messages. Assistant
/// messages are counted but not compared, because clients rewrite them. So a replay of the same conversation has the
/// same hash, whatever was injected or re-serialised on the way.
#[derive(derive_more::Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[debug("{}", &blake3::Hash::from_bytes(*_0).to_hex()[..12])]
pub struct ChainHash(pub [u8; 32]);

/// The contribution of one message to the hash of its conversation. It is the same at any place, so a long message that
/// is known already need not be hashed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaidHash([u8; 32]);

/// How a message enters the hash of its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Words(SaidHash),
    Reply,
    /// Files and similar text that a client shows. An assistant message after it does not count.
    Context,
    /// The message does not count.
    Nothing,
}

/// Computes the hash of a conversation message by message.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    hash: ChainHash,
    /// Whether the last message that counts in any way was [`Said::Context`].
    is_context: bool,
}

// === impl Said ===

impl Said {
    /// Classifies a message of which only the role and the text are known. The text of an assistant or a system message
    /// does not count.
    pub fn of(role: Role, text: &str) -> Self {
        match role {
            Role::User if !role.is_said(text) => Self::Nothing,
            Role::User if utterance::is_context(text) => Self::Context,
            Role::User => Self::Words(SaidHash::of_words(1, utterance::without_rules(text))),
            Role::Tool => Self::Words(SaidHash::of_words(2, text)),
            Role::Assistant => Self::Reply,
            Role::System | Role::Other => Self::Nothing,
        }
    }

    /// Classifies a message.
    pub fn of_message(message: &Message) -> Self {
        match message.role() {
            role @ (Role::User | Role::Tool) => Self::of(role, &message.text()),
            role => Self::of(role, ""),
        }
    }
}

// === impl Chain ===

impl Chain {
    /// Continues a conversation that has this hash so far.
    pub fn new(hash: ChainHash) -> Self {
        Self {
            hash,
            is_context: false,
        }
    }

    /// Adds a message and returns the hash.
    pub fn push(&mut self, said: Said) -> ChainHash {
        match said {
            Said::Nothing => {}
            Said::Context => self.is_context = true,
            Said::Reply if self.is_context => self.is_context = false,
            Said::Reply => self.hash = self.hash.then_said(SaidHash::ASSISTANT),
            Said::Words(said) => {
                self.hash = self.hash.then_said(said);
                self.is_context = false;
            }
        }
        self.hash
    }
}

// === impl SaidHash ===

impl SaidHash {
    /// The mark for an assistant message. No text has this hash.
    pub const ASSISTANT: Self = Self([3; 32]);

    fn of_words(tag: u8, text: &str) -> Self {
        looks_at(text.len());
        // The text is hashed in one piece, because many small pieces take several times as long.
        let mut said = Vec::with_capacity(2 + text.len());
        said.push(tag);
        say(&mut said, text);
        Self(*blake3::hash(&said).as_bytes())
    }
}

// === impl ChainHash ===

impl ChainHash {
    /// Returns the hash of an agent's conversation without any message.
    pub fn start(agent: &crate::AgentId) -> Self {
        Self(*blake3::hash(agent.as_str().as_bytes()).as_bytes())
    }

    /// Returns the hash after one more message. Messages that do not count do not change it.
    #[must_use]
    pub fn then(self, message: &Message) -> Self {
        Chain::new(self).push(Said::of_message(message))
    }

    /// Returns the hash after one more message that counts.
    #[must_use]
    pub fn then_said(self, said: SaidHash) -> Self {
        // This is one block of the hash function.
        let mut both = [0; 64];
        both[..32].copy_from_slice(&self.0);
        both[32..].copy_from_slice(&said.0);
        Self(*blake3::hash(&both).as_bytes())
    }

    /// Returns the hash after each message in turn. The last one is that of the whole conversation.
    pub fn chain(agent: &crate::AgentId, messages: &[Message]) -> Vec<Self> {
        let mut chain = Chain::new(Self::start(agent));
        let said = messages.iter().map(Said::of_message);
        said.map(|said| chain.push(said)).collect()
    }
}

/// Adds the words of a text with one space after each, because clients trim and re-wrap the texts that they replay.
fn say(said: &mut Vec<u8>, text: &str) {
    if has_wide_blank(text) {
        for word in text.split_whitespace() {
            said.extend_from_slice(word.as_bytes());
            said.push(b' ');
        }
        return;
    }
    // First, each white-space byte is replaced without a branch. Then the few places with several of them are joined.
    let is_blank = |b: u8| matches!(b, 9..=13 | b' ');
    let blanks = |b: &u8| if is_blank(*b) { b' ' } else { *b };
    let text: Vec<u8> = text.as_bytes().iter().map(blanks).collect();
    let mut rest = text.trim_ascii();
    while let Some(at) = memmem::find(rest, b"  ") {
        said.extend_from_slice(&rest[..=at]);
        rest = rest[at..].trim_ascii_start();
    }
    if !rest.is_empty() {
        said.extend_from_slice(rest);
        said.push(b' ');
    }
}

fn has_wide_blank(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_blank = |at: usize| text[at..].starts_with(char::is_whitespace);
    let mut leads = memchr3_iter(0xc2, 0xe2, 0xe3, bytes);
    leads.any(is_blank) || memmem::find(bytes, "\u{1680}".as_bytes()).is_some()
}

/// Writes 64 hexadecimal digits.
impl Serialize for ChainHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl<'de> Deserialize<'de> for ChainHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = blake3::Hash::from_hex(&text).map_err(D::Error::custom)?;
        Ok(Self(*hash.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{AgentId, utterance::OPENCLAW_INTERNAL};

    #[test]
    fn the_chain_ignores_what_clients_rewrite_and_no_more() {
        let agent = AgentId::default_agent();
        let last = |messages: &[Message]| *ChainHash::chain(&agent, messages).last().unwrap();
        let said = [
            Message::system("a"),
            Message::user("hi  there"),
            Message::assistant("x"),
        ];
        let replayed = [Message::user("hi there "), Message::assistant("y")];
        assert_eq!(last(&said), last(&replayed));
        let every_blank: String = (0..128).map(char::from).collect();
        let words = every_blank
            .split_whitespace()
            .collect::<Vec<_>>()
            .join("\u{a0}");
        assert_eq!(
            last(&[Message::user(every_blank)]),
            last(&[Message::user(words)]),
            "read at once and letter by letter"
        );
        let synthetic = Message::user(format!("{OPENCLAW_INTERNAL}\nfacts"));
        assert_eq!(last(&said), last(&[&replayed[..], &[synthetic]].concat()));
        assert_ne!(
            last(&said),
            last(&[Message::user("hi there!"), Message::assistant("x")])
        );
        assert_ne!(last(&said), last(&said[..2]));
        let text = serde_json::to_string(&last(&said)).unwrap();
        assert_eq!(text.len(), 66, "{text}");
        assert_eq!(
            serde_json::from_str::<ChainHash>(&text).unwrap(),
            last(&said)
        );
        assert!(serde_json::from_str::<ChainHash>("\"12\"").is_err());
    }

    /// aider 0.86.2 does this. In one request its files come before the question, and in the next one after it. Its
    /// rules come after the question, and are missing in the next request.
    #[test]
    fn files_that_move_and_rules_that_go_leave_the_conversation_as_it_is() {
        let agent = AgentId::default_agent();
        let files = |text: &str| {
            let shown = "I have *added these files to the chat* so you can go ahead and edit them.";
            let ok = Message::assistant("Ok, any changes I propose will be to those files.");
            [Message::user(format!("{shown}\n\n{text}")), ok]
        };
        let asked = |text: &str| {
            let rules = "# *SEARCH/REPLACE block* Rules:\n\nEvery block must use this format:";
            [Message::user(format!("{text}\n\n{rules}"))]
        };
        let first = [&files("a.py: 1")[..], &asked("Fix it.")].concat();
        let said = [Message::user("Fix it."), Message::assistant("Done.")];
        let second = [&said[..], &files("a.py: 2"), &asked("Thanks.")].concat();
        let answered = ChainHash::chain(&agent, &first)
            .last()
            .unwrap()
            .then_said(SaidHash::ASSISTANT);
        assert_eq!(ChainHash::chain(&agent, &second)[1], answered);
        assert_ne!(ChainHash::chain(&agent, &second).last(), Some(&answered));
    }

    proptest! {
        #[test]
        fn a_text_is_its_words(
            words in proptest::collection::vec("[a-zé–\\u{1681}ー😀]{0,5}", 0..12),
            blanks in proptest::collection::vec("[ \t\n\u{b}\u{85}\u{a0}\u{1680}\u{2003}\u{2028}\u{3000}]{0,3}", 13),
        ) {
            let last = String::new();
            let between = blanks.iter().zip(words.iter().chain([&last]));
            let text: String = between.flat_map(|(blanks, word)| [blanks.as_str(), word]).collect();
            let expected: String = text.split_whitespace().flat_map(|word| [word, " "]).collect();
            let mut said = Vec::new();
            say(&mut said, &text);
            prop_assert_eq!(String::from_utf8(said).unwrap(), expected);
        }
    }
}
