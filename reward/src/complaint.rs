//! Detects whether a person's next message may be a complaint about the reply before.
//!
//! A vote of a judge model costs hundreds of tokens. If verdicts are needed for skills alone, the judge is used only if
//! the verdict may be bad. Most messages continue with something else, and words distinguish most of those.

use std::sync::LazyLock;

use regex::Regex;

/// Words of objection, repetition and repair, and of retelling what was just done ("you booked four").
const ENGLISH: &str = r"\b(?:no|nope|nah|not|never mind|wrong|incorrect|mistakes?|errors?|again|still|twice|instead|actually|meant|i (?:said|asked|told|wanted|never)|stop|worse|useless|broken|fails?|failed|missing|missed|forgot|forgotten|redo|undo|too \w+|shorter|longer|less|ugh|argh|hm+|huh|off by|mixed up|last year|should (?:be|have)|supposed to|thought|thats|that['’]s|that was|it['’]s spelled|you (?:wrote|booked|put|said|gave|used|sent|did|called|made|added|left|deleted|moved|changed)|you['’]ve|404)\b|n['’]?t\b|\?\?|!!";
const CHINESE: &str = r"不(?:对|是|行|要|用|该|能|好|准|像|叫|应|在|上)|没(?:有|让|说|叫|问|用|变|办)|错|又|还是|还在|太|别|反了|旧|重(?:新|来|写|做|算)|再(?:来|写|试|查|看|算)|改(?:一|成|回|下|到)|漏|忘|我(?:要|说|问|指|想要)的|应该|搞|弄|才对|怎么(?:又|还|会|变|是)|为(?:什么|啥)(?:又|还)|咋|看不懂|听不懂|烦|失败|报错|换(?:一|成|个)|去掉|写成|记成|你(?:这个|那个)?(?:写|发|算|看|记|给|把|说|选|用|少|多)";

#[expect(
    clippy::expect_used,
    reason = "it stands in the code, and a test compiles it: no input reaches it"
)]
static COMPLAINT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!("(?i){ENGLISH}|{CHINESE}")).expect("a pattern of ours"));

/// Returns whether it may be a complaint. It is often true for other messages, and rarely false for complaints.
pub fn may_complain(text: &str) -> bool {
    COMPLAINT.is_match(text)
}

#[cfg(test)]
mod tests {
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
}
