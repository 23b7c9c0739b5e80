//! Whether a memory matters for a request, by rules: by words in common, by a topic in common, and by how firmly it was
//! said. "I'm allergic to nuts" matters for each meal, and "I sometimes bake" only for a request about baking.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, LazyLock, Mutex},
};

use regex::Regex;

use crate::words::{Table, is_cjk, pattern, terms};

/// Words that a memory which only holds sometimes must share with a request about its topic.
const WORDS_IN_COMMON: usize = 2;

static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::read(include_str!("../../data/recall.tsv")));
static TOPICS: LazyLock<Topics> = LazyLock::new(|| Topics::read(&TABLE));
static SILENT: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| TABLE.list("silent").iter().copied().collect());
static LIMIT: LazyLock<Regex> = LazyLock::new(|| any("limit"));
static MUST: LazyLock<Regex> = LazyLock::new(|| any("must"));
static HEDGE: LazyLock<Regex> = LazyLock::new(|| any("hedge"));
static ALWAYS: LazyLock<Regex> = LazyLock::new(|| any("always"));
static ASKS: LazyLock<Regex> = LazyLock::new(|| any("asks"));
static GREETS: LazyLock<Regex> = LazyLock::new(|| any("greets"));
static LOOKS_UP: LazyLock<Regex> = LazyLock::new(|| any("looks_up"));

fn any(kind: &str) -> Regex {
    let words = TABLE.list(kind).join("|").replace('\'', "['’]");
    pattern(&format!("(?i){words}"))
}

/// The most texts that are kept. Beyond it, all are read again.
const MAX_TEXTS: usize = 20_000;
/// So few words say nothing of what follows.
const WORDS_OF_OPENING: usize = 2;

/// How firmly a memory was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Firmness {
    /// Its owner cannot or will not have something.
    Limit,
    Plain,
    /// It holds sometimes.
    Hedged,
}

/// A memory's text that was read, because many requests are compared with it.
#[derive(Debug)]
pub(super) struct Text {
    words: BTreeSet<String>,
    topics: u64,
    firmness: Firmness,
    /// Whether it matters for each request.
    is_always: bool,
}

/// The texts of memories that were read before.
#[derive(Debug, Default)]
pub(super) struct Texts(Mutex<HashMap<String, Arc<Text>>>);

/// The words of each topic. A set of topics is a number with a bit for each.
struct Topics {
    of_word: HashMap<String, u64>,
    /// Each topic, with those that belong to it.
    around: Vec<u64>,
}

/// A request that was read, so that many memories can be compared with it.
#[derive(Debug)]
pub(super) struct Request {
    words: BTreeSet<String>,
    topics: u64,
    around: u64,
    kind: RequestKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    /// It looks something up, or works on a text.
    LooksUp,
    /// It says nothing of what follows, as a greeting does and a question does not.
    Opening,
    Other,
}

// === impl Request ===

impl Request {
    pub(super) fn new(text: &str) -> Self {
        let words = terms(text);
        let topics = TOPICS.of(text, &words);
        let says_little = topics == 0 && words.len() <= WORDS_OF_OPENING;
        let kind = if LOOKS_UP.is_match(text) {
            RequestKind::LooksUp
        } else if says_little && (GREETS.is_match(text) || !ASKS.is_match(text)) {
            RequestKind::Opening
        } else {
            RequestKind::Other
        };
        Self {
            words: words.into_iter().collect(),
            topics,
            around: TOPICS.around(topics),
            kind,
        }
    }

    /// Returns the words that a memory has too.
    pub(super) fn shared(&self, memory: &Text) -> Vec<String> {
        let shared = self
            .words
            .iter()
            .filter(|word| memory.words.contains(*word));
        shared.cloned().collect()
    }

    /// Returns whether a memory that has these words too matters for this request.
    pub(super) fn needs(&self, memory: &Text, shared: &[String]) -> bool {
        if self.kind == RequestKind::Opening || memory.is_always {
            return true;
        }
        if self.kind == RequestKind::LooksUp {
            return false;
        }
        let says = |word: &&String| !SILENT.contains(word.as_str());
        let n_shared = shared.iter().filter(says).count();
        let has_topic = memory.topics & self.topics != 0;
        match memory.firmness {
            Firmness::Limit => n_shared > 0 || memory.topics & self.around != 0,
            Firmness::Plain => n_shared > 0 || has_topic,
            Firmness::Hedged => n_shared >= WORDS_IN_COMMON && has_topic,
        }
    }
}

// === impl Texts ===

impl Texts {
    pub(super) fn read(&self, text: &str) -> Arc<Text> {
        let mut known = metaclaw_chat::lock(&self.0);
        if let Some(read) = known.get(text) {
            return Arc::clone(read);
        }
        if known.len() >= MAX_TEXTS {
            known.clear();
        }
        let read = Arc::new(Text::new(text));
        known.insert(text.to_owned(), Arc::clone(&read));
        read
    }
}

// === impl Text ===

impl Text {
    fn new(text: &str) -> Self {
        let words = terms(text);
        Self {
            topics: TOPICS.of(text, &words),
            words: words.into_iter().collect(),
            firmness: firmness(text),
            is_always: ALWAYS.is_match(text),
        }
    }
}

fn firmness(memory: &str) -> Firmness {
    if MUST.is_match(memory) {
        Firmness::Limit
    } else if HEDGE.is_match(memory) {
        Firmness::Hedged
    } else if LIMIT.is_match(memory) {
        Firmness::Limit
    } else {
        Firmness::Plain
    }
}

// === impl Topics ===

impl Topics {
    fn read(table: &Table) -> Self {
        let lists = || {
            (table.0.iter()).filter_map(|(kind, words)| Some((kind.strip_prefix("topic ")?, words)))
        };
        let bit = |topic: &str| {
            let place = lists().position(|(name, _)| name == topic);
            place.map_or(0, |place| 1 << place)
        };
        let mut of_word = HashMap::<String, u64>::new();
        let mut around = Vec::new();
        for (topic, words) in lists() {
            for word in words.iter().flat_map(|word| terms(word)) {
                *of_word.entry(word).or_default() |= bit(topic);
            }
            let beside = table.list(&format!("touches {topic}")).iter();
            around.push(beside.fold(bit(topic), |all, beside| all | bit(beside)));
        }
        Self { of_word, around }
    }

    fn of(&self, text: &str, words: &[String]) -> u64 {
        let of_words = words.iter().filter_map(|word| self.of_word.get(word));
        let mut topics = of_words.fold(0, |all, topics| all | topics);
        let mut buffer = [0; 4];
        for c in text.chars().filter(|c| is_cjk(*c)) {
            let of_character = self.of_word.get(&*c.encode_utf8(&mut buffer));
            topics |= of_character.copied().unwrap_or_default();
        }
        topics
    }

    fn around(&self, topics: u64) -> u64 {
        let places = self.around.iter().enumerate();
        let touched = places.filter(|(place, _)| topics & (1 << place) != 0);
        touched.fold(topics, |all, (_, around)| all | around)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Asked {
        request: String,
        get: Vec<String>,
        leave: Vec<String>,
        half: String,
    }

    fn needs(request: &str, memory: &str) -> bool {
        let (request, memory) = (Request::new(request), Text::new(memory));
        request.needs(&memory, &request.shared(&memory))
    }

    /// A half was not looked at while the tables were written.
    #[test]
    fn a_request_gets_what_matters_for_it_and_little_else() {
        let lines = include_str!("../../testdata/recalled.jsonl").lines();
        let asked: Vec<Asked> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
        for half in ["tune", "held_out"] {
            let cases = asked.iter().filter(|asked| asked.half == half);
            let (mut n, mut n_got) = ([0, 0], [0, 0]);
            for asked in cases {
                for (at, memories) in [&asked.get, &asked.leave].into_iter().enumerate() {
                    n[at] += memories.len();
                    let got = memories
                        .iter()
                        .filter(|memory| needs(&asked.request, memory));
                    n_got[at] += got.count();
                }
            }
            println!(
                "{half}: got {} of {}, and {} of {} others",
                n_got[0], n[0], n_got[1], n[1]
            );
            assert!(n_got[0] * 10 >= n[0] * 9, "{half}: {n_got:?} of {n:?}");
            assert!(n_got[1] * 10 <= n[1], "{half}: {n_got:?} of {n:?}");
        }
    }

    #[test]
    fn a_limit_matters_wherever_its_topic_is_touched_and_a_mild_liking_only_where_it_is_named() {
        for (request, memory, expected) in [
            (
                "What could we have for lunch?",
                "I'm allergic to nuts.",
                true,
            ),
            ("Plan a trip to Lisbon.", "I'm allergic to nuts.", true),
            ("Plan a trip to Lisbon.", "I sometimes bake bread.", false),
            (
                "Which bread should I bake?",
                "I sometimes bake bread.",
                true,
            ),
            (
                "What could we have for lunch?",
                "I sometimes bake bread.",
                false,
            ),
            ("How do you say lunch in Latin?", "My name is Ada.", true),
            (
                "Translate \"lunch\" into Latin.",
                "I'm allergic to nuts.",
                false,
            ),
            ("Good morning!", "I'm allergic to nuts.", true),
            ("How are you today?", "I'm allergic to nuts.", true),
            ("Hi, what's up?", "I'm allergic to nuts.", true),
            ("你好吗？", "我对花生过敏。", true),
            ("How do I get a refund?", "I'm allergic to nuts.", false),
            ("Is glass a liquid?", "I'm allergic to nuts.", false),
            (
                "Who was Ramanujan?",
                "We use Postgres 16 in the shop.",
                false,
            ),
            ("玻璃是液体吗", "我对花生过敏。", false),
            ("Who was Ramanujan?", "My name is Ada.", true),
            (
                "Should we take our boy to the fireworks?",
                "My son Leo is autistic.",
                true,
            ),
            ("推荐一道宫保鸡丁的做法", "我对花生过敏", true),
            ("午饭吃什么？", "我对花生过敏。", true),
            ("午饭吃什么？", "我喜欢爵士乐。", false),
            ("午饭吃什么？", "我偶尔烤面包。", false),
        ] {
            assert_eq!(needs(request, memory), expected, "{request} {memory}");
        }
    }

    #[test]
    fn each_topic_has_a_bit_and_what_belongs_to_it_is_a_topic() {
        let topics: Vec<&str> = (TABLE.0.iter())
            .filter_map(|(kind, _)| kind.strip_prefix("topic "))
            .collect();
        assert!(topics.len() <= 64);
        for (kind, beside) in TABLE
            .0
            .iter()
            .filter(|(kind, _)| kind.starts_with("touches "))
        {
            let named = kind
                .strip_prefix("touches ")
                .into_iter()
                .chain(beside.iter().copied());
            for name in named {
                assert!(topics.contains(&name), "{name} is no topic");
            }
        }
        let kinds = [
            "limit", "must", "hedge", "always", "silent", "looks_up", "asks", "greets",
        ];
        assert!(kinds.iter().all(|kind| !TABLE.list(kind).is_empty()));
    }
}
