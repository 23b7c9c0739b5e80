//! English: a wish is an order to the assistant about how it answers, or one that is to hold from now on.

use std::sync::LazyLock;

use regex::Regex;

use super::{
    facet::Facet,
    own_words::{COVER, Sentence, Task},
    rules::Rules,
};
use crate::patterns::pattern;

pub(super) struct English;

/// What a clause may begin with before it says anything. Apostrophes are gone already.
const LEAD: &str = r"^(?:(?:and|but|so|also|oh|ok|okay|hey|hi|hello|well|hmm+|ugh+|argh|no|nope|yes|yeah|look|listen|btw|by the way|fyi|one (?:more |last )?thing|another thing|(?:new |general |house |standing )?(?:rule|note|request|thing|reminder|preference)(?: for (?:you|the future|next time))?|thanks|thank you|great|good|nice|perfect|actually|again|seriously|honestly|guys|dude|man|i said|like i said|as i said|as always|i told you(?: before| already)?(?: to)?|please|pls|plz|kindly|just|maybe|then|sorry|for me|if possible|if you can|even|especially|(?:can|could|would|will) you|would you mind|do you mind|you (?:should|must|may|have to|need to|ought to|had better)|you(?:d| would) better|(?:i|we) (?:want|need|expect|ask|would like|wish) (?:for )?you to|id (?:like|love|prefer|want) (?:it if you|you to|if you|that you)|i (?:really )?(?:would )?(?:like|love|prefer|appreciate)(?: it)?(?: if you| when you| that you)|(?:its|it is|it would be|itd be) (?:better|nicer|nice|great|good|best|easier) if you|make sure (?:that )?(?:you|to)|try to|be sure to|remember to|remember that you|remember|make it a (?:habit|rule) to|feel free to|lets|let us|only|simply|ever|kinda|really|strictly|generally|instead|you|because|since)[\s,:.!-]+)*";
/// What makes an order hold from now on.
const STANDING: &str = r"(?:from now on(?:wards?)?|from (?:today|here|this point|this moment|this day)(?: on| onwards?| forward)?|going forward|moving forward|in (?:the )?future|henceforth|always|never|every (?:\w+ )?time|each time|whenever|as a (?:general )?(?:rule|default)|by default|until (?:i say otherwise|further notice|i tell you otherwise)|in general|generally|for all future \w+|make it a (?:habit|rule)|any ?more|ever again|the next time|permanently|at all times|without exceptions?|only ever|every day|for ?ever|for good|for everything|across the board|no matter what|in our (?:chats?|conversations?))";
/// All that the assistant says or makes: an order about that holds by itself.
const SCOPE: &str = r"(?:(?:all|every|each|any)(?: of)?(?: single)?(?: your| my)? (?:future )?(?:answers?|repl(?:y|ies)|responses?|messages?|explanations?|commit messages?|summar(?:y|ies))|(?:your|my) (?:answers|replies|responses|messages|explanations)|(?:every|each|all|any) (?:\w+ ){1,3}(?:that |which )?you (?:ever )?(?:\w+)|(?:all|every|each|any)(?: of)? our \w+|(?:every|all) (?:later|future|other) \w+|in our (?:chats?|conversations?)|(?:whenever|every time|each time|any time) (?:you|i|we)|when(?:ever)? you (?:explain|answer|reply|recommend|suggest|write|give|list|quote|mention|talk|send))";
/// The manner of an answer, or how the assistant goes about its work.
const MANNER: &str = r"\b(?:short(?:er)?|brief(?:er|ly)?|concise(?:ly)?|terse(?:ly)?|succinct(?:ly)?|crisp|compact|wordy|verbose|lengthy|longer|long[- ]winded|ramble|rambling|detail(?:s|ed)?|thorough(?:ly)?|in[- ]depth|sentences?|paragraphs?|bullets?|bullet[- ]points?|lists|listicles?|tables|markdown|headings?|headers?|bold|italics?|emojis?|emoticons?|smileys?|asterisks?|exclamation (?:marks?|points?)|em[- ]dash(?:es)?|all caps|lower ?case|plain text|prose|latex|formatting|numbered|english|german|french|spanish|italian|chinese|mandarin|japanese|korean|portuguese|dutch|polish|russian|spelling|formal(?:ly|ity)?|informal(?:ly)?|casual(?:ly)?|polite(?:ly|ness)?|friendly|friendlier|sarcas(?:m|tic)|humou?r|jokes?|joking|puns?|tone|enthusias(?:m|tic)|cheerful|blunt(?:ly)?|direct(?:ly)?|straight|serious(?:ly)?|slang|swear(?:ing)?|apologi[sz](?:e|ing)|apologies|sorry|prais(?:e|ing)|flatter(?:y|ing)?|compliments?|disclaimers?|warnings?|caveats?|preambles?|intros?|introductions?|filler|pleasantries|small ?talk|sign-?offs?|lectur(?:e|es|ing)|morali[sz](?:e|ing)|preach(?:ing|y)?|hedg(?:e|ing)|repeat(?:ing)?|restat(?:e|ing)|recaps?|summar(?:y|ies|ize|ise)|metric|imperial|celsius|fahrenheit|kilomet(?:er|re)s?|kilos?|grams?|24[- ]?h(?:ou)?rs?|am/pm|iso(?:[- ]?8601)?|date format|currency|euros?|dollars?|units|time ?zones?|jargon|simple words|plain english|plain language|technical terms?|laymans? terms|buzzwords?|analog(?:y|ies)|sources?|citations?|references|step[- ]by[- ]step|call(?:ing)? me|address(?:ing)? me|first name|nicknames?|sir|maam|comments|type hints|tabs|docstrings?|code blocks?|commit messages?|follow-?up questions?|one-?liners?|\d+ words|words|lines|answer first|conclusion first|bottom line|to the point|ask(?:ing)? me|ask first|ask before|check(?:ing)? with me|confirm(?:ing|ation)?|permission|my (?:ok|okay|approval|go-ahead|consent)|guess(?:ing)?|making (?:things|stuff) up|without (?:asking|showing|telling|checking|confirming|my)|the answer|the conclusion|great question|as an ai|gendered?|pronouns?|they/them|oxford comma)\b";
/// For this one answer: never a wish, whatever else is said.
const ONCE: &str = r"\b(?:this time|this once|just (?:this )?once|for now|for once|this one|that one|these ones|the last one|that last|right now|tonight|todays?|tomorrows?|for (?:this|that|the|my|his|her|their|our) (?:\w+ )?(?:tweet|email|mail|letter|post|report|slides?|deck|essay|article|card|caption|ad|paper|talk|speech|meeting|call|one|question|answer|summary|video|blog|presentation|review|client|boss|kids?|team))\b";
/// About one thing at hand: a wish only if it says that it is to hold.
const AT_HAND: &str = r"\b(?:this|that|these|those|the|my|his|her|their|our|a|an|another) (?:\w+ )?(?:paragraph|sentence|text|email|e-mail|mail|letter|message|code|file|function|table|list|page|doc|document|question|answer|reply|response|essay|article|post|tweet|report|slides?|poem|story|summary|draft|recipe|bug|tests?|image|picture|section|chapter|version|caption|title|subject|line|invoice|cv|resume|speech|toast|song|script|class|chart|plot|query|error|meeting|event|trip|order|ticket|paper|proposal|plan|idea|word|book|movie|film|thing|part|second|first|third|last|email|intro|introduction|conclusion|spreadsheet|bio|ad|card|note|notes|headline|slogan|joke|quiz|itinerary)s?\b|\bit (?:in|into|as|to)\b|\bthat (?:in|into|as)\b|\bthem (?:in|into|as)\b|\b(?:make|turn|put|translate|shorten|rewrite|rephrase|expand|trim|cut) (?:it|that|this|them)\b";
/// Orders about answers as such: with a manner they are a wish by themselves. "Explain recursion in simple words" is
/// about recursion.
const ANSWER: &str = r"(?:(?:dont|do not|no|no more|stop|quit|avoid|skip|drop|cut|lose|omit|leave out|less|fewer|enough|never|always)\b|keep (?:it|them|things|everything|answers|replies|responses|explanations|messages|your)\b|be (?:\w+ ){0,3}?(?:short|brief|concise|terse|succinct|direct|blunt|formal|informal|casual|polite|friendly|honest|serious|detailed|thorough|specific|critical|professional)\w*|(?:answer|reply|respond|talk|speak|write back)(?: back)?(?: to)?(?: me| us)?(?: only| just)? (?:in|with|using|like|as|more|less|without|briefly|shortly|concisely|formally|informally|casually|directly)\b|(?:answer|talk|speak|write|reply)(?: to)? me\b|(?:use|stick to|prefer) |(?:call|address) me |(?:explain|write|give me|tell me|show me|say|put) (?:things|everything|stuff|it all|(?:me )?(?:short|shorter|brief|briefer|concise|simple|simpler|plain|straight|direct)\w*|your|answers|only)\b|(?:start|begin|end|finish|open|close) (?:your|every|each|all|with)\b|lead with\b|(?:ask|check|confirm)(?: with)? (?:me|first|before)\b|(?:include|cite|add|show|give|link|name)(?: me)?(?: your| the)? (?:sources?|references?|citations?)\b|get to the point|round )";
/// A thing to be done that begins like one.
const DEED: &str = r"\bcall me (?:at|on|in|when|if|back|later|now|tomorrow|after|before|a)\b|\b(?:reply|respond|talk|speak|write|answer) to (?:the|my|this|that|him|her|them|his|their|our|\w+ (?:in|with))\b|\bask me (?:for|about|a|an|some|\w+ questions)\b|\b(?:for|about|on) (?:the|my|this|that|our)\b";
/// Verbs that an order begins with.
const VERBS: &str = r"(?:dont|do not|never|always|no|no more|stop|quit|avoid|skip|drop|cut|lose|omit|leave|less|fewer|more|enough|answer|reply|respond|talk|speak|write|text|explain|say|tell|give|keep|be|stay|use|stick|prefer|include|exclude|add|put|start|begin|open|end|finish|close|format|call|address|ask|check|confirm|show|cite|link|mention|spell|round|convert|make|sound|refer|lead|assume|treat|suggest|recommend|limit|cap|warn|remind|wait|let|sort|name|sign|save|back|run|test|commit|push|comment|delete|send|book|order|schedule|buy|pay|plan|list|quote|translate|repeat|think|do|go|get|set|take|read|turn|pick|choose|count|measure|track|follow|respect|provide|offer|present|return|print|post|share|remove|replace|rename|change|update|create|draft|propose|break|split|group|highlight|capitali[sz]e|hold|consider|focus|help|pretend|max|maximum|at most|up to|use)\b";

/// A case that comes again and again, for which something is ordered.
const CASE: &str = r"^(?:and |but |even |so )?(?:when(?:ever)?|if|every time|each time) (?:you|i|we)(?:re| are)? (?:not sure|unsure|in doubt|dont know|do not know|cannot|cant|write|type|ask|suggest|answer|reply|recommend|talk|mention|say|explain|give|send|translate|quote|plan|book|make|edit|change|run|create|code|review|search|cite|show|describe|chat|speak|need to|have to|want to|use)\b";

static ORDER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"{LEAD}(?:{STANDING}[\s,:-]+)?(?:(?:{CASE_AGAIN}.{{0,60}}?|(?:for|in|with) (?:\w+ ){{0,6}}\w+)[\s,])?{LEAD_AGAIN}{VERBS}",
        CASE_AGAIN = CASE.trim_start_matches('^'),
        LEAD_AGAIN = LEAD.trim_start_matches('^'),
    ))
});
static ANSWERS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"{LEAD}(?:{STANDING}[\s,:-]+)?(?:{CASE_AGAIN}.{{0,60}}?[\s,])?{LEAD_AGAIN}{ANSWER}",
        CASE_AGAIN = CASE.trim_start_matches('^'),
        LEAD_AGAIN = LEAD.trim_start_matches('^'),
    ))
});
static IS_DEED: LazyLock<Regex> = LazyLock::new(|| pattern(DEED));
/// What is wanted, by its name alone: "short answers please", "metric only".
static TERSE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"{LEAD}(?:(?:short|shorter|brief|briefer|concise|simple|simpler|plain|longer|formal|informal|casual|straight|direct|one[- ]line|one[- ]sentence)(?: and \w+)? (?:answers|replies|responses|explanations|messages|sentences|text|english|words|language)\b|(?:(?:in )?(?:one|two|three|a single|\d+) (?:short )?(?:sentences?|lines?|words?|paragraphs?)|metric(?: units)?|celsius|plain text|bullet points|prose|(?:in )?(?:english|german|french|spanish|chinese|italian|japanese|dutch)|shorter|briefer|simpler)(?: (?:only|max|tops|at most|is enough|are enough))*,? (?:please|pls|only)[\s.!]*$)"
    ))
});
/// It begins with what makes it hold, and somebody may tell a story that way.
static LASTING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"{LEAD}(?:from now on(?:wards?)?|from (?:today|here|this point)(?: on| onwards?| forward)|going forward|moving forward|in (?:the )?future|henceforth|as a (?:general )?rule|by default|until further notice)\b[\s,:-]*"
    ))
});
/// What is wanted, as a thing: it needs to be said that it holds.
static WANTS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"{LEAD}(?:i (?:only |really |never |dont |dont ever |really dont |do not )?(?:want|need|prefer|expect|like)|id (?:like|prefer|rather have)) (?:\w+)|{LEAD}(?:keeping|using|writing|answering|giving|adding|putting|leaving|skipping|speaking|replying|not \w+ing)\b"
    ))
});
static WANTS_OTHER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(?:want|need|prefer|expect|like)s? (?:to|a|an|the|my|this|that|it|him|her|them|some|more|another)\b",
    )
});
/// "Dates as YYYY-MM-DD from here on": a thing, and that it holds.
static HELD: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(?:from now on|from here on|going forward|in (?:the )?future|by default)(?:[\s,]+(?:please|pls|thanks|thank you))*[\s.!]*$",
    )
});
static NARRATES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:ill|i|im|we|well|he|she|they|it|its|the|there|my|our|his|her|people|is|are|will|would|what|how|why|who|where|when|if)\b|^$",
    )
});
/// The order is to hold: it says so before or behind what it says.
static GOVERNS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"{LEAD}(?:(?:for|in|with) (?:\w+ ){{1,3}})?{LEAD_AGAIN}{STANDING}\b|\b{SCOPE}\b|\b{STANDING}(?:[\s,]+(?:please|pls|thanks|thank you|ok|okay))*[\s.!]*$|{CASE}|^(?:always )?before (?:you|doing|deleting|sending|making|running|changing|booking|buying|editing)\b|\bwithout (?:first )?(?:asking|showing|telling|checking|confirming|my)\b",
        LEAD_AGAIN = LEAD.trim_start_matches('^'),
    ))
});
/// The sentence begins with what makes it hold.
static BEGINS: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"{LEAD}{STANDING}\b|{CASE}")));
/// It is about what the assistant itself says or makes.
static ITS_OWN: LazyLock<Regex> = LazyLock::new(|| pattern(&format!(r"\b{SCOPE}\b")));
/// Sentences that only say that what came before is to hold.
static HOLDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"^(?:and )?(?:(?:i mean|and i mean|make) (?:that|this|it) (?:as )?|(?:that|this|it) (?:goes|holds|applies|counts|is meant) (?:for )?|(?:thats|this is|consider (?:that|this)) )?(?:please )?(?:{STANDING}|(?:a|my) (?:general |standing )?(?:rule|default|preference)|(?:to |for )?(?:everything|all (?:of )?(?:your )?\w+|every \w+)|generally)(?: please)?[\s.!]*$"
    ))
});
static ABOUT_MANNER: LazyLock<Regex> = LazyLock::new(|| pattern(MANNER));
static IS_ONCE: LazyLock<Regex> = LazyLock::new(|| pattern(ONCE));
static IS_AT_HAND: LazyLock<Regex> = LazyLock::new(|| pattern(AT_HAND));
/// "Never mind", "always wanted to": no order, though it begins like one.
static NO_ORDER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:\w+[\s,]+){0,3}(?:always|never)\s+(?:mind|ever|gonna|heard|seen|been|did|had|has|have i|was|were|thought|knew|got|wanted|said|the|in my|understood|liked|works?|happens?)\b|^no (?:i|its|it|thats|that|not|wait|problem|worries|way|idea|need|thanks|thank|one|the|but|we|he|she|they|you|sorry|rush|hurry|more questions)\b|^(?:stop|start|end) (?:it|here|there|now|the|at)\b|^(?:one|two|three|\d+)\s+(?:more|of|for|is|was|and|or|to|in|at|on|a|\W)|^more\s+(?:of|like|than|on|about)\b|^less than\b|^do (?:you|i|we|they)\b|^plan(?:s|ned)?\s*$|^open\s*$",
    )
});
static IS_QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\?\s*$|^(?:why|what|how|who|where|which|is|are|does|did|was|were|am|have|has|do you|should i|can i|could i|whats|hows)\b",
    )
});
static ASKS_POLITELY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:(?:and|but|so|also|ok|hey|hi|please)[\s,]+)*(?:(?:can|could|would|will) you|would you mind|do you mind)\b",
    )
});
static TAKES_BACK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:(?:ok|okay|actually|hey|hmm|no|please|pls|well|sorry|and|oh|you know what)[\s,]+)*(?:(?:undo|revert|remove|delete|drop|cancel|forget|scrap|ignore|unlearn)\s+(?:about\s+)?(?:\w+\s+){0,4}(?:rules?|wish(?:es)?|preferences?|lessons?|you (?:just )?learn(?:ed|t)|i (?:said|told you|asked)|short\w*|brief\w*|emojis?|bullets?|learn(?:ed|t))\b|(?:undo|forget|scrap|unlearn) (?:that|it|this|the last one)[\s.!]*$|(?:you|u) (?:can|may)(?: now)? .*\b(?:again|after all|now)\b|never ?mind (?:about )?(?:the|that|my|what i said)|go back to (?:normal|how|the way|your|the)|(?:you|u) (?:dont|do not|no longer) (?:have|need) to (?:ask|check|confirm|show|tell|warn)\b.*)|\byou no longer (?:have|need) to\b|\b(?:dont|do not) (?:have|need) to\b.*\b(?:any ?more|any longer)\W*$",
    )
});

/// What is complained of, and what is wished for by it.
const COMPLAINTS: [(Facet, &str, &str); 8] = [
    (
        Facet::Length,
        "Keep answers short.",
        r"\b(?:too|so|way|far|very|really|thats|again) (?:too )?(?:long|wordy|verbose|lengthy|much (?:text|to read|detail|information))\b|\bwall of text\b|\btl;?dr\b|\b(?:cant|wont|didnt|did not|dont) (?:want to |have time to |gonna )?read (?:all|through) (?:of )?(?:that|this|it)\b|\b(?:rambling|an essay|a novel|a lecture|whole book|war and peace)\b|^\W*(?:shorter|briefer)\b.{0,12}$|\bget to the point\b",
    ),
    (
        Facet::Length,
        "Give more detail.",
        r"\btoo (?:short|brief|terse|vague)\b|\bnot (?:enough|much) detail\b|\bmore detail,? please\b",
    ),
    (
        Facet::Emoji,
        "Use no emoji.",
        r"\b(?:so many|too many|all (?:the|these|those)|with (?:the|all the|these)|again with the|enough|another) emojis?\b|\bwhats with the .*\bemoji",
    ),
    (
        Facet::Lists,
        "Use no bullet points.",
        r"\b(?:so many|too many|all (?:the|these|those)|again with the|enough|more) (?:bullet ?points?|bullets|lists)\b",
    ),
    (
        Facet::Filler,
        "No introductions, praise or apologies.",
        r"\b(?:so many|too many|all (?:the|these|those)) (?:apologies|disclaimers|warnings|caveats|compliments)\b",
    ),
    (
        Facet::Words,
        "Use simple words.",
        r"\btoo (?:complicated|technical|complex)\b|\b(?:so much|too much|all (?:this|that|the)) jargon\b|\bi dont (?:understand|get) (?:half|any) of (?:that|this|these words)\b",
    ),
    (
        Facet::Tone,
        "Be less formal.",
        r"\b(?:too|so) (?:formal|stiff)\b",
    ),
    (
        Facet::Tone,
        "Be more formal.",
        r"\btoo (?:casual|informal|chatty|chummy)\b",
    ),
];

static COMPLAINT: LazyLock<Vec<Regex>> =
    LazyLock::new(|| COMPLAINTS.iter().map(|(_, _, it)| pattern(it)).collect());

// === impl Rules ===

impl Rules for English {
    fn wish(sentence: &Sentence<'_>) -> bool {
        let said = plain(&sentence.masked);
        if sentence.is_reported || IS_ONCE.is_match(&said) {
            return false;
        }
        if IS_QUESTION.is_match(&said) && !ASKS_POLITELY.is_match(&said) {
            return false;
        }
        let clauses: Vec<&str> = clauses(&said).collect();
        // "Make a sign: always lock the door" orders a sign.
        if sentence.task == Task::Here && said.contains(':') {
            return false;
        }
        let is_order = |clause: &&&str| is_order(clause);
        let mut orders = clauses.iter().filter(is_order).peekable();
        if orders.peek().is_none() {
            return false;
        }
        // Beside a task "always" is mostly what the task is about.
        if sentence.task != Task::Nowhere {
            let begins = clauses.first().is_some_and(|first| BEGINS.is_match(first));
            return begins
                || clauses
                    .iter()
                    .any(|clause| LASTING.is_match(clause) || ITS_OWN.is_match(clause));
        }
        if sentence.holds || clauses.iter().any(|clause| GOVERNS.is_match(clause)) {
            return true;
        }
        let answers =
            |order: &str| ANSWERS.is_match(order) && !IS_DEED.is_match(order) || is_wanted(order);
        // "Answer in one word: is it raining" asks something.
        sentence.task == Task::Nowhere
            && !said.contains(':')
            && orders.any(|order| {
                answers(order) && ABOUT_MANNER.is_match(order) && !IS_AT_HAND.is_match(order)
            })
    }

    fn complaint(sentence: &Sentence<'_>) -> Option<(Facet, &'static str)> {
        let said = plain(&sentence.masked);
        if sentence.is_reported || sentence.task == Task::Here || IS_ONCE.is_match(&said) {
            return None;
        }
        let first = COMPLAINT.iter().position(|it| it.is_match(&said))?;
        COMPLAINTS
            .get(first)
            .map(|(facet, wish, _)| (*facet, *wish))
    }

    fn takes_back(sentence: &Sentence<'_>) -> bool {
        !sentence.is_reported && TAKES_BACK.is_match(&plain(&sentence.masked))
    }

    fn holds(sentence: &Sentence<'_>) -> bool {
        HOLDS.is_match(&plain(&sentence.masked))
    }
}

fn is_order(clause: &str) -> bool {
    let lasts = LASTING.find(clause);
    let lasts = lasts.is_some_and(|it| !NARRATES.is_match(&clause[it.end()..]));
    let is_held = HELD.is_match(clause) && !NARRATES.is_match(clause);
    let asks = lasts || is_held || is_wanted(clause) || ORDER.is_match(clause);
    asks && !NO_ORDER.is_match(clause)
}

fn is_wanted(clause: &str) -> bool {
    TERSE.is_match(clause) || WANTS.is_match(clause) && !WANTS_OTHER.is_match(clause)
}

/// Without apostrophes: people leave them out.
fn plain(text: &str) -> String {
    text.trim()
        .replace(['\'', '’', COVER], "")
        .replace("  ", " ")
}

fn clauses(sentence: &str) -> impl Iterator<Item = &str> {
    let parts = sentence.split([',', ':', '–', '—', '(', ')', ';']);
    let parts = parts
        .flat_map(|part| part.split(" so "))
        .flat_map(|part| part.split(" but "));
    parts.map(str::trim).filter(|clause| !clause.is_empty())
}
