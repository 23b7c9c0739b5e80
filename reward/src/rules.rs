//! Judges by configured rules, without a model; and by words alone, whether a person's next message may be a complaint about
//! the reply before.
//!
//! A vote of a judge model costs hundreds of tokens. If verdicts are needed for skills alone, the judge is used only if the
//! verdict may be bad. Most messages continue with something else, and words distinguish most of those.

use std::sync::LazyLock;

use metaclaw_chat::{JudgedBy, Score, Verdict, Vote, count_words};
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use crate::{evidence::Evidence, patterns::pattern};

/// Words of objection, repetition and repair, and of retelling what was just done ("you booked four").
const ENGLISH: &str = r"\b(?:no|nope|nah|not|never mind|wrong|incorrect|mistakes?|errors?|again|still|twice|instead|actually|meant|i (?:said|asked|told|wanted|never)|stop|worse|useless|broken|fails?|failed|missing|missed|forgot|forgotten|redo|undo|too \w+|shorter|longer|less|ugh|argh|hm+|huh|off by|mixed up|last year|should (?:be|have)|supposed to|thought|thats|that['’]s|that was|it['’]s spelled|you (?:wrote|booked|put|said|gave|used|sent|did|called|made|added|left|deleted|moved|changed)|you['’]ve|404)\b|n['’]?t\b|\?\?|!!";
const CHINESE: &str = r"不(?:对|是|行|要|用|该|能|好|准|像|叫|应|在|上)|没(?:有|让|说|叫|问|用|变|办)|错|又|还是|还在|太|别|反了|旧|重(?:新|来|写|做|算)|再(?:来|写|试|查|看|算)|改(?:一|成|回|下|到)|漏|忘|我(?:要|说|问|指|想要)的|应该|搞|弄|才对|怎么(?:又|还|会|变|是)|为(?:什么|啥)(?:又|还)|咋|看不懂|听不懂|烦|失败|报错|换(?:一|成|个)|去掉|写成|记成|你(?:这个|那个)?(?:写|发|算|看|记|给|把|说|选|用|少|多)";

static COMPLAINT: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("(?i){ENGLISH}|{CHINESE}")));

/// Returns whether it may be a complaint. It is often true for other messages, and rarely false for complaints.
pub fn may_complain(text: &str) -> bool {
    COMPLAINT.is_match(text)
}

static PLAIN: LazyLock<[(Score, Regex); 2]> = LazyLock::new(|| {
    [
        (
            Score::Good,
            plain(include_str!("../data/thanks.tsv"), "thanks"),
        ),
        (
            Score::Bad,
            plain(include_str!("../data/complaints.tsv"), "plain"),
        ),
    ]
});

/// Returns the pattern of a text that has nothing but the phrases of a table, and at least one of this kind.
fn plain(table: &str, kind: &str) -> Regex {
    let phrases = |kind: &str| {
        let of_kind = table
            .lines()
            .filter_map(|line| line.strip_prefix(kind)?.strip_prefix('\t'));
        let phrases: Vec<String> = of_kind
            .flat_map(|line| line.split(" / "))
            .map(regex::escape)
            .collect();
        phrases.join("|")
    };
    let (said, beside) = (phrases(kind), phrases("beside"));
    pattern(&format!(
        "^(?:(?:{beside}) ?)*(?:{said})(?: ?(?:{said}|{beside}))*$"
    ))
}

/// Returns the verdict of a message that needs no judge: good if it is nothing but thanks or praise, bad if it is nothing
/// but a complaint, in one of the languages of `data`.
pub fn plain_verdict(text: &str) -> Option<Score> {
    if text.contains(['?', '？']) {
        return None;
    }
    let small = text.to_lowercase().replace(['\'', '’'], "");
    let words: Vec<&str> = small
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let said = words.join(" ");
    let verdict = PLAIN.iter().find(|(_, words)| words.is_match(&said));
    verdict.map(|(score, _)| *score)
}

/// The largest compiled pattern in bytes, so that a pattern in a configuration cannot use up the memory.
const MAX_PATTERN: usize = 1 << 20;

/// One rule of `judge.rules`. All of its conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The text that it looks at.
    pub on: On,
    /// A regular expression that the text must match somewhere, regardless of case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The largest number of words of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_words: Option<usize>,
    /// The smallest number of words of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_words: Option<usize>,
    /// The score of a turn that matches: -1, 0 or 1.
    pub score: Score,
}

/// The text that a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// The reply's text without its thinking.
    Reply,
    /// The messages after the reply: the owner's words and tool results.
    Next,
}

/// Why a list of rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// Every turn matches a rule.
    #[error("judge.rules[{index}] asks for nothing: give it pattern, max_words or min_words")]
    Empty {
        /// The rule's index in the list, from 0.
        index: usize,
    },
    /// No turn can match a rule.
    #[error("judge.rules[{index}] can never hold: min_words is {min} and max_words is {max}")]
    Impossible {
        /// The rule's index in the list, from 0.
        index: usize,
        /// The value of `min_words`.
        min: usize,
        /// The value of `max_words`.
        max: usize,
    },
    /// A pattern is not a valid regular expression.
    #[error("judge.rules[{index}].pattern is no regular expression: {source}")]
    Pattern {
        /// The rule's index in the list, from 0.
        index: usize,
        source: regex::Error,
    },
}

/// Compiled rules.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<Compiled>);

#[derive(Debug, Clone)]
struct Compiled {
    rule: Rule,
    pattern: Option<Regex>,
}

// === impl Rules ===

impl Rules {
    /// Checks every rule and compiles its pattern.
    ///
    /// # Errors
    ///
    /// Returns [`RuleError`], which gives the rule's index in `judge.rules`.
    pub fn compile(rules: &[Rule]) -> Result<Self, RuleError> {
        let rules = rules.iter().enumerate();
        let compiled: Result<_, _> = rules.map(|(index, rule)| compile(index, rule)).collect();
        Ok(Self(compiled?))
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether some rule calls a reply good by the reply alone.
    pub fn praise_replies(&self) -> bool {
        let mut rules = self.0.iter().map(|compiled| &compiled.rule);
        rules.any(|rule| rule.on == On::Reply && rule.score == Score::Good)
    }

    /// Returns the score of the first rule that matches the turn, or `None` if none matches.
    ///
    /// # Examples
    /// ```
    /// use metaclaw_chat::{Message, Score};
    /// use metaclaw_reward::{Evidence, On, Rule, Rules};
    ///
    /// let rule = Rule {
    ///     on: On::Next,
    ///     pattern: Some("too long".to_owned()),
    ///     max_words: None,
    ///     min_words: None,
    ///     score: Score::Bad,
    /// };
    /// let rules = Rules::compile(&[rule])?;
    /// let asked = [Message::user("What is sled?")];
    /// let next = [Message::user("Too long. One sentence.")];
    /// let evidence = Evidence::new(&asked, Message::assistant("sled is …"), &next);
    /// assert_eq!(rules.judge(&evidence).unwrap().score, Score::Bad);
    /// # Ok::<(), metaclaw_reward::RuleError>(())
    /// ```
    pub fn judge(&self, evidence: &Evidence) -> Option<Verdict> {
        let said = evidence.said();
        let next: Vec<_> = evidence.next.iter().map(|message| message.text()).collect();
        let next = next.join("\n");
        let fits = |rule: &&Compiled| match rule.rule.on {
            On::Reply => rule.fits(&said),
            On::Next => !evidence.next.is_empty() && rule.fits(&next),
        };
        let score = self.0.iter().find(fits)?.rule.score;
        Some(Verdict {
            votes: vec![Vote::new(score, None)],
            ..Verdict::new(score, JudgedBy::Rules)
        })
    }
}

fn compile(index: usize, rule: &Rule) -> Result<Compiled, RuleError> {
    match (&rule.pattern, rule.min_words, rule.max_words) {
        (None, None, None) => return Err(RuleError::Empty { index }),
        (_, Some(min), Some(max)) if min > max => {
            return Err(RuleError::Impossible { index, min, max });
        }
        _ => {}
    }
    let build = |pattern: &String| {
        RegexBuilder::new(pattern)
            .case_insensitive(true)
            .size_limit(MAX_PATTERN)
            .build()
    };
    let pattern = rule.pattern.as_ref().map(build).transpose();
    Ok(Compiled {
        rule: rule.clone(),
        pattern: pattern.map_err(|source| RuleError::Pattern { index, source })?,
    })
}

// === impl Compiled ===

impl Compiled {
    fn fits(&self, text: &str) -> bool {
        let n_words = count_words(text);
        self.rule.max_words.is_none_or(|max| n_words <= max)
            && self.rule.min_words.is_none_or(|min| n_words >= min)
            && self
                .pattern
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(text))
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;

    use super::*;

    #[test]
    fn complaints_are_told_from_what_goes_on() {
        for complaint in [
            "No, I meant Tuesday.",
            "that's wrong",
            "too long",
            "It still fails with the same error",
            "I said three adults, you booked four",
            "Doesn't compile.",
            "不对，是周二",
            "你把客厅的灯关了",
            "又错了",
            "太长了",
        ] {
            assert!(may_complain(complaint), "{complaint}");
        }
        for other in [
            "Thanks, great!",
            "And what is the capital of Peru?",
            "Perfect. Next, summarise chapter two.",
            "好的，谢谢",
            "下一个问题：光速是多少？",
            "yes please",
        ] {
            assert!(!may_complain(other), "{other}");
        }
    }

    #[test]
    fn plain_thanks_are_told_from_thanks_with_more() {
        for thanks in [
            "Thanks!",
            "ok, thank you so much!!",
            "Perfect, that\u{2019}s exactly what I needed 🙏",
            "Vielen Dank, sehr gut.",
            "Merci beaucoup !",
            "¡Muchas gracias!",
            "Dziękuję bardzo",
            "спасибо",
            "好的，谢谢你！",
            "ありがとうございます。",
            "감사합니다",
        ] {
            assert_eq!(plain_verdict(thanks), Some(Score::Good), "{thanks}");
        }
        for other in [
            "",
            "🙏",
            "ok",
            "No thanks.",
            "Thanks, but make it shorter.",
            "Thanks. And what is the capital of Peru?",
            "Thanks?",
            "not great",
            "Danke, aber kürzer bitte",
            "谢谢，不过太长了",
            "thanksgiving",
        ] {
            assert_eq!(plain_verdict(other), None, "{other}");
        }
    }

    #[test]
    fn plain_complaints_are_told_from_complaints_with_more() {
        for complaint in [
            "That is wrong.",
            "Wrong answer!!! Too long.",
            "This is not what I asked for.",
            "No, that\u{2019}s too long. Shorter!",
            "It still doesn't work",
            "Das ist falsch.",
            "Non, ce n'est pas ça.",
            "Eso no funciona.",
            "Isso está errado!",
            "Нет, это не то",
            "不对",
            "还是不行啊",
            "いいえ、違います。",
            "아니요, 틀렸어요",
        ] {
            assert_eq!(plain_verdict(complaint), Some(Score::Bad), "{complaint}");
        }
        for other in [
            "No.",
            "Shorter!",
            "Is that wrong?",
            "You broke the build again, fix it.",
            "What is wrong with my code",
            "My code does not work, find the mistake.",
            "Not bad at all, thanks",
            "That is wrong, it is 7.",
            "Too long for a tweet",
            "badminton",
            "这个错误是什么意思",
        ] {
            assert_eq!(plain_verdict(other), None, "{other}");
        }
    }

    fn rules(json: &str) -> Result<Rules, RuleError> {
        Rules::compile(&serde_json::from_str::<Vec<Rule>>(json).unwrap())
    }

    fn evidence(reply: &str, next: &[Message]) -> Evidence {
        Evidence::new(&[Message::user("q")], Message::assistant(reply), next)
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = rules(
            r#"[{"on":"next","pattern":"too long|shorter","score":-1},
                {"on":"reply","max_words":4,"min_words":2,"score":1},
                {"on":"reply","min_words":5,"score":-1}]"#,
        )
        .unwrap();
        let score =
            |reply: &str, next: &[Message]| rules.judge(&evidence(reply, next)).map(|v| v.score);
        assert_eq!(
            score("It is Paris.", &[Message::user("Thanks.")]),
            Some(Score::Good)
        );
        assert_eq!(
            score("It is Paris.", &[Message::user("TOO LONG.")]),
            Some(Score::Bad)
        );
        assert_eq!(score("one two three four five", &[]), Some(Score::Bad));
        assert_eq!(
            score("<think>one two three four five</think>It is.", &[]),
            Some(Score::Good)
        );
        assert_eq!(score("Paris", &[]), None);
    }

    #[test]
    fn a_rule_on_what_follows_waits_until_something_does() {
        let rules = rules(r#"[{"on":"next","max_words":3,"score":1}]"#).unwrap();
        assert!(rules.judge(&evidence("x", &[])).is_none());
        assert!(
            rules
                .judge(&evidence("x", &[Message::new("tool", "ok")]))
                .is_some()
        );
    }

    #[test]
    fn rules_that_cannot_be_used_are_refused_in_words() {
        let error = |json: &str| rules(json).unwrap_err().to_string();
        insta::assert_snapshot!(error(r#"[{"on":"reply","score":1}]"#), @"judge.rules[0] asks for nothing: give it pattern, max_words or min_words");
        insta::assert_snapshot!(error(r#"[{"on":"reply","min_words":5,"max_words":2,"score":1}]"#), @"judge.rules[0] can never hold: min_words is 5 and max_words is 2");
        assert!(
            error(
                r#"[{"on":"next","pattern":"x","score":1},{"on":"reply","pattern":"(","score":1}]"#
            )
            .starts_with("judge.rules[1].pattern")
        );
        let bad = serde_json::from_str::<Rule>(r#"{"on":"reply","max_words":1,"score":2}"#);
        assert!(
            bad.unwrap_err()
                .to_string()
                .contains("score 2 is not allowed")
        );
    }
}
