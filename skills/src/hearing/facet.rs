//! The subject of a wish. Of two wishes about the same subject, the newer one applies.

use std::sync::LazyLock;

use regex::RegexSet;
use serde::{Deserialize, Serialize};

use crate::patterns::pattern_set;

/// One subject of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facet {
    /// The length of answers.
    Length,
    /// Their language.
    Language,
    /// Emoji and similar signs.
    Emoji,
    /// Lists and bullet points.
    Lists,
    Tables,
    /// Headings, bold type, or any Markdown.
    Markup,
    /// Formality and friendliness.
    Tone,
    /// Apologies, praise, disclaimers, introductions.
    Filler,
    /// The owner's name or form of address.
    Name,
    /// Metric or not, Celsius, currency.
    Units,
    /// The format of times and dates.
    Time,
    /// The simplicity of the words.
    Words,
    /// Whether the assistant asks the owner before it acts.
    Asking,
    Sources,
    /// The style and comments of code.
    Code,
    Examples,
    /// What comes first and what last.
    Order,
}

/// The subjects in the order of the search. If several match, the first one counts.
const FACETS: [(Facet, &str); 17] = [
    (
        Facet::Emoji,
        r"emoji|emoticon|smil(?:ey|ies)|kaomoji|表情|颜文字",
    ),
    (
        Facet::Name,
        r"\b(?:call(?:ing)?|address(?:ing)?) me\b|\bmy (?:first |last |full )?name\b|\b(?:sir|ma'am|madam)\b|(?:叫|称呼|喊)我|我的名字",
    ),
    (
        Facet::Units,
        r"\bmetric\b|\bimperial\b|celsius|fahrenheit|kilomet|\bmiles\b|\bkm\b|\bkilos?\b|\bkg\b|\bpounds?\b|\bgrams?\b|\bounces?\b|\bcups?\b|\beuros?\b|\bdollars?\b|\bcurrenc|\bunits?\b|公制|英制|摄氏|华氏|公里|千克|公斤|人民币|美元|欧元|单位",
    ),
    (
        Facet::Time,
        r"\b24[- ]?h(?:ou)?rs?\b|\b12[- ]?h(?:ou)?rs?\b|\bam/pm\b|\b24h\b|\biso(?:[- ]?8601)?\b|\bdates?\b|\btime ?zones?\b|\bdd[./-]mm|\byyyy\b|24 ?小时|日期|时区|时间格式",
    ),
    (Facet::Tables, r"\btables?\b|表格"),
    (
        Facet::Lists,
        r"\bbullets?\b|\blists?\b|\bnumbered\b|\bnumber (?:the|your|each)\b|\benumerat|列表|要点|分点|逐条|编号|列点|项目符号|一条一条",
    ),
    (
        Facet::Markup,
        r"\bmarkdown\b|\bbold\b|\bitalics?\b|\bheadings?\b|\bheaders?\b|\basterisks?\b|\bplain text\b|\bformatting\b|\ball caps\b|\blower ?case\b|\bem[- ]dash|\bexclamation|\blatex\b|\bhtml\b|加粗|标题|纯文本|格式|星号|感叹号|大写",
    ),
    (
        Facet::Code,
        r"\bcomments? in (?:the |your )?code\b|\bcode\b.*\bcomments?\b|\bcomments?\b.*\bcode\b|\btype hints?\b|\btabs\b|\bindent|\bsnake_?case\b|\bcamel ?case\b|\bcode blocks?\b|\bcommit messages?\b|\bdocstrings?\b|\bpython\b|\btypescript\b|\brust\b|注释|代码|缩进|命名",
    ),
    (
        Facet::Sources,
        r"\bsources?\b|\bcit(?:e|es|ing|ations?)\b|\breferences?\b|\blinks?\b|\burls?\b|来源|出处|引用|链接|参考文献",
    ),
    (
        Facet::Asking,
        r"\bask(?:ing)? (?:me |first|before|for (?:my )?(?:permission|confirmation))|\bcheck(?:ing)? with me\b|\bconfirm|\bpermission\b|\bwithout (?:asking|my|telling|checking)|\bmy (?:ok|okay|approval|go-ahead|permission|consent)\b|先问|问(?:过|一下)?我|先确认|跟我确认|和我确认|征求|经过我|我同意|擅自|自作主张|批准",
    ),
    (
        Facet::Language,
        r"\b(?:in|into|speak|use|using|to|with|of) (?:\w+ )?(?:english|german|french|spanish|italian|chinese|mandarin|cantonese|japanese|korean|portuguese|dutch|polish|russian|turkish|arabic|hindi|swedish)\b|\b(?:british|american) (?:english|spelling)\b|\benglish\b|\bgerman\b|\bfrench\b|\bchinese\b|\bspanish\b|中文|英文|英语|汉语|普通话|粤语|广东话|日语|日文|法语|德语|韩语|繁体|简体",
    ),
    (
        Facet::Filler,
        r"\bapolog|\bsorry\b|\bprais|\bflatter|\bcompliment|\bdisclaimers?\b|\bpreambles?\b|\bintro(?:duction)?s?\b|\bgreat question|\bas an ai\b|\bfiller|\bpleasantries\b|\bsign[- ]?offs?\b|\bgreetings?\b|\blectur|\bmorali[sz]|\bwarnings?\b|\bcaveats?\b|\bhedg|\brepeat(?:ing)?\b|\brestat|\bsmall ?talk\b|\bfollow-?up questions?\b|\bsummary at the end\b|\bconclusions?\b|道歉|抱歉|对不起|恭维|拍马屁|夸我|夸奖|套话|开场白|客套|废话|免责|重复我|重复问题|寒暄|结尾|说教|总结陈词",
    ),
    (
        Facet::Words,
        r"\bsimple (?:words|english|language|terms)\b|\bplain (?:english|language|words)\b|\bjargon\b|\btechnical terms?\b|\blayman|\bbig words\b|\bbuzzwords?\b|\beasy words\b|大白话|通俗|术语|黑话|简单的?(?:话|语言|词)|白话",
    ),
    (
        Facet::Length,
        r"\b(?:short|brief|concise|terse|succinct|long|lengthy|wordy|verbose|detail|thorough|elaborat|in[- ]depth|ramble|rambling|crisp|compact)\w*|\b(?:one|two|three|four|five|\d+|a (?:single|few|couple of)|fewer|few) (?:short |simple |full |single )?(?:sentences?|words?|lines?|paragraphs?|bullets?|chars|characters)\b|\bto the point\b|\btl;?dr\b|\bwall of text\b|\bword count\b|\bone[- ]liners?\b|\bkeep it (?:simple|down)\b|\btoo much (?:text|information|detail)|\bget to the point\b|简短|简洁|精简|短一?点|短些|长话短说|啰嗦|罗嗦|啰唆|[一两二三四五六七八九十几\d]+(?:句|行|段)|字(?:以内|之内|左右)|详细|展开|太长|太短|重点|言简意赅|长篇大论|篇幅|多说|少说",
    ),
    (
        Facet::Examples,
        r"\bexamples?\b|\banalog(?:y|ies)\b|例子|举例|比喻",
    ),
    (
        Facet::Order,
        r"\b(?:answer|conclusion|result|summary|bottom line|code) first\b|\bstart (?:your |every |each |with)|\bbegin (?:your |every |each |with)|\bend (?:your |every |each |with)|\bstep[- ]by[- ]step\b|先(?:说|给|放|讲)(?:结论|答案|结果)|结论(?:先|放)|开头|最后加|一步一步|分步",
    ),
    (
        Facet::Tone,
        r"\b(?:formal|informal|casual|polite|friendly|friendlier|sarcas|humou?r|jok|tone|enthusias|cheerful|blunt|direct|straight|honest|serious|warm|professional|slang|swear|chatty|cheesy)\w*|语气|正式|口语|随意|礼貌|客气|敬语|幽默|玩笑|毒舌|直接|严肃|撒娇|您",
    ),
];

static PATTERNS: LazyLock<RegexSet> =
    LazyLock::new(|| pattern_set(FACETS.iter().map(|(_, pattern)| *pattern)));

// === impl Facet ===

impl Facet {
    /// Returns the subject of a sentence in lower case.
    pub(super) fn of(sentence: &str) -> Option<Self> {
        let first = PATTERNS.matches(sentence).iter().next()?;
        FACETS.get(first).map(|(facet, _)| *facet)
    }

    /// Returns whether only one of two wishes about it can apply. For other subjects both can, such as "type hints" and
    /// "tabs" for code.
    pub fn is_exclusive(self) -> bool {
        matches!(
            self,
            Self::Length | Self::Language | Self::Name | Self::Emoji
        )
    }

    /// Returns the subject of a wish.
    pub fn of_wish(wish: &str) -> Option<Self> {
        Self::of(&wish.to_lowercase())
    }
}
