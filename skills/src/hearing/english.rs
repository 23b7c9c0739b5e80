//! English: the beginnings of sentences, the words of each cue, complaints, and how a wish is withdrawn.

use std::sync::LazyLock;

use regex::Regex;

use super::{
    cue::Cue,
    facet::Facet,
    language::Language,
    lexicon::{Lexicon, Place, Script},
    own_words::COVER,
};
use crate::patterns::pattern;

/// Words with which a clause may begin before its content. Apostrophes have been removed already.
const LEADS: &str = r"
    and / but / so / also / oh / ok / okay / hey / hi / hello / morning / well / hm+ / ugh+ / argh
    whoa / no / nope / yes / yeah / right / look / listen / btw / by the way / fyi
    one (?:more |last )?(?:thing|request|rule) / another thing / thanks / thank you / thx / great
    good / nice / perfect / actually / again / seriously / honestly / please / pls / plz / kindly
    just / maybe / then / sorry / for me / if possible / if you can / even / especially
    in our chats? / (?:can|could|would|will) you / would you mind / do you mind
    (?:you|u) (?:should|must|may|have to|need to|ought to|had better|can) / you(?:d| would) better
    (?:i|we) (?:want|need|expect|ask|would like|wish) (?:for )?you to
    id (?:like|love|prefer|want|rather) (?:it if you|you to|if you|that you|you)
    i (?:really )?(?:would )?(?:like|love|prefer|appreciate)(?: it)?(?: if you| when you| that you)
    (?:its|it is|it would be|itd be) (?:better|nicer|nice|great|good|best|easier) if you
    make sure (?:that )?(?:you|to) / try to / be sure to / remember to / remember that you
    remember / feel free to / lets / let us / make it a (?:habit|rule|point) (?:to|of) / dont
    do not / only / simply / ever / kinda / really / strictly / you / u / because / since
    in general / generally / from now on / from here on / going forward / moving forward
    in (?:the )?future / in our conversations / as a (?:general )?rule / always / from today
    too long!* / instead / as always / i said / in every \w+ / every \w+ / for all \w+ / for \w+
";

/// The words of each cue, separated by slashes.
const WORDS: &[(Cue, Place, &str)] = &[
    (
        Cue::Lasting,
        Place::Within,
        r"
        from now on(?:wards?)?
        from (?:today|here|this point|this moment|this day)(?: on| onwards?| forward)?
        starting (?:today|now) / going forward / moving forward / in (?:the )?future
        for the future / future \w+ / henceforth
        as a (?:general |standing |house )?(?:rule|default|habit)
        (?:new|house|general|standing|one) rule / by default
        until (?:i say otherwise|further notice|i tell you otherwise) / unless i (?:say|tell|ask)
        in general / generally / general thing / for all (?:future|later|other) \w+
        make it a (?:habit|rule|point) / ever again / next time and / permanently / at all times
        for ?ever / for good / for everything / goes for (?:every|all|any)\w* / across the board
        no matter what / in (?:all )?our (?:chats?|conversations?)
        (?:every|all) (?:later|other|future) \w+ / not (?:just|only) (?:this|that|here)
        everything not / every other day / get used to / keep to that
    ",
    ),
    (
        Cue::Constant,
        Place::Within,
        r"
        again[\s.!]*$ / always / never / every (?:single |damn )?time / each time / whenever
        any ?more / every one of (?:them|those) / dont (?:you )?ever / do not ever / ever[\s.!]*$
        only ever / all the time / without exceptions? / every day
    ",
    ),
    (
        Cue::Case,
        Place::Within,
        r"
        (?:when(?:ever)?|if|every time|each time|any time|before|after) (?:you|u|i|we)(?:re| are)? (?:not sure|unsure|in doubt|arent sure|dont know|explain|answer|reply|recommend|suggest|write|give|list|quote|mention|talk|send|ask|paste|show|say|translate|plan|book|make|edit|change|run|code|review|search|cite|describe|chat|speak|spend|delete|touch|look|state|apply|push|commit|finish)\w*
    ",
    ),
    (
        Cue::Aside,
        Place::Within,
        r"
        one (?:more |last |other )?thing / another thing / (?:and |also )?(?:by the way|btw)
        and (?:from now on|in general|in future|going forward|generally)
        also,? (?:from now on|in future|please|always|never|no) / before we start
        (?:rule|note|request|thing|preference)s? for (?:you|the future|next time|all|both|the two)
        rule for / lets agree / new rule
    ",
    ),
    (
        Cue::Preference,
        Place::Begins,
        r"
        i (?:only |really |always |never |dont |dont ever |really dont |do not |cant |cannot |absolutely )?(?:want|prefer|like|hate|dislike|stand|expect|need)
        id (?:like|prefer|rather|love) / we (?:prefer|only use|dont use)
        (?:its|it is|itd be|it would be) (?:better|good|nice|great|easier) / id appreciate
    ",
    ),
    (
        Cue::YourWork,
        Place::Within,
        r"
        (?:your|my) (?:answers?|replies|reply|responses?|messages|explanations?|recipes|summaries|emails|drafts?|paragraphs|texts|comments)
        (?:all|every|each|any)(?: \w+){0,5} (?:that |which )?(?:you|u) (?:ever )?(?:give|gave|write|make|send|show|create|suggest|recommend|work|quote|do|finish|say|put|draft|book|plan)\w*
        (?:every|each|all|any)(?: of your| single| future| of our)? (?:answers?|repl(?:y|ies)|responses?|messages?|explanations?|commit messages?|summar(?:y|ies)|chats?|dates|times|prices)
        (?:anything|everything|whatever) (?:that )?(?:you|u) (?:\w+)
        (?:code|recipes?|emails?|dates|prices|messages|texts|summaries) (?:that )?(?:you|u) (?:\w+)
        (?:suggest|recommend)(?:ing|ions?|ations?)?
    ",
    ),
    (
        Cue::You,
        Place::Within,
        r"
        you / u / your / youre
    ",
    ),
    (
        Cue::ToMe,
        Place::Within,
        r"
        (?:to|with|for|give|tell|show|ask|call|address|answer|remind|warn|send|ping|write|text|lend|spare|let) (?:me|us)
        without (?:first )?(?:asking|showing|telling|checking|confirming|my)
        my (?:ok|okay|approval|go-ahead|consent|permission) / (?:on|in) my (?:behalf|name)
        check with me / until i(?:ve)? \w+
    ",
    ),
    (
        Cue::Consent,
        Place::Within,
        r"
        ask(?:ing)? (?:me )?(?:first|before|if|when|whether) / check(?:ing)? with me
        confirm(?:ing|ation)? / permission / my (?:ok|okay|approval|go-ahead|consent)
        without (?:first )?(?:asking|showing|telling|checking|confirming|my)
        before (?:you|touching|deleting|sending|doing|booking|changing|running|applying)
        until i(?:ve)? (?:said|say|seen|approve|agreed?)
        tell me (?:which|what|how long|why|where|before|first) / show me
    ",
    ),
    (
        Cue::Manner,
        Place::Within,
        r"
        be (?:\w+ ){0,2}(?:brief|short|concise|terse|direct|blunt|honest|polite|formal|informal|casual|serious)
        keep (?:it|them|answers|your \w+) (?:short|brief|simple|concise) / listicles? / formatting
        tone / concise(?:ly)? / terse(?:ly)? / wordy / verbose / informal(?:ly)? / formally
        plain text / prose / slang / step[- ]by[- ]step / answer(?:s|ing)? / repl(?:y|ies)
        replying / respon(?:d|se|ses) / explanations?
        explain(?:ing)? (?:\w+ ){0,3}(?:to me|things|stuff|everything) / talk(?:ing)?(?: to)?
        speak(?:ing)?(?: to)? / write (?:to )?(?:me|us) / call(?:ing)? me / address(?:ing)? me
        first name / nicknames? / warnings / cheerful\w* / sum up
        plain (?:english|language|words|text) / speak plainly
        technical (?:terms|words|stuff|things) / simple words / laymans? terms / say so
        to the point / bottom line / answer first / small words / straight / honest / blunt(?:ly)?
        the word / long[- ]winded / rambl\w+
    ",
    ),
    (
        Cue::Convention,
        Place::Within,
        r"
        committing / push(?:ing)? / lint(?:er)? / fmt / run (?:the |all )?tests? / test suite
        new code / main branch / english / german / french / spanish / italian / chinese / mandarin
        japanese / korean / portuguese / dutch / polish / russian / welsh / swedish / turkish
        spelling / metric / imperial / celsius / fahrenheit / kilomet(?:er|re)s? / miles / kilos?
        grams? / cups / ounces / pounds / 24[- ]?h(?:ou)?rs? / 24 hour clock / 24h / am/pm / iso
        dates? / times / day\.month / currency / euros? / dollars? / francs? / vat / tax / prices?
        units / time ?zones? / type hints / tabs / spaces / docstrings? / code blocks? / comments?
        commit messages? / commits? / diffs? / conventional commits / typescript / python
    ",
    ),
    (
        Cue::Forbids,
        Place::Within,
        r"
        dont / do not / no more / stop / quit / avoid / skip / drop / spare me / never / leave out
        tone down / lose the / cut (?:out )?the / less / fewer / enough / no need to
        (?:dont|do not) (?:need|have) (?:to|you to)
    ",
    ),
    (
        Cue::Order,
        Place::Begins,
        r"
        answer / reply / respond / talk / speak / write / explain / say / tell / give / keep / be
        stay / use / stick / prefer / include / exclude / add / put / start / begin / open / end
        finish / close / format / call / address / ask / check / double.?check / confirm / show
        cite / link / mention / spell / round / convert / make / sound / refer / lead / treat
        suggest / recommend / limit / cap / warn / remind / wait / let / sort / name / sign / save
        run / test / commit / push / comment / delete / send / book / order / schedule / quote
        translate / repeat / do / go / get / set / take / pick / choose / count / follow / provide
        offer / present / return / print / post / share / remove / replace / change / update / draft
        propose / break / split / group / highlight / assume / number / tone / drop / skip / cut
        lose / omit / leave / default to / favou?r / spare / quit / stop / avoid / never / no
        fewer / less / max / at most / up to
    ",
    ),
    (
        Cue::AtHand,
        Place::Within,
        r"
        (?:this|that|these|those|the|a|an|another|my|our|his|her|their) (?:\w+ )?(?:paragraph|sentence|text|email|e-mail|mail|letter|message|code|file|function|method|class|table|list|page|doc|document|question|essay|article|post|tweet|report|slides?|poem|story|draft|recipe|bug|tests?|image|picture|section|chapter|version|caption|title|subject|line|invoice|cv|resume|speech|toast|song|script|chart|plot|query|error|meeting|event|trip|ticket|paper|proposal|plan|idea|word|book|movie|film|part|second|first|third|last|intro|introduction|spreadsheet|bio|ad|card|note|headline|slogan|joke|quiz|itinerary|button|field|menu|header|footer|form|app|bot|site|website|dialog|column|row|cell|login|log|logger|logs|config|contract|brochure|flyer|poster|sign|label|timer|dough|cake|sauce|soup|thing|one|other|heading|api|endpoint|database|server|program|game|variable|loop|url|domain|icon|logo|colou?r|left|right|top|bottom|cover|schedule|calendar|budget|minutes|notice|policy|rules)s?
        \b(?:make|turn|put|translate|shorten|rewrite|rephrase|expand|trim|cut) (?:it|that|this|them)
        (?:it|that|them) (?:in|into|as|to)
    ",
    ),
    (
        Cue::Role,
        Place::Within,
        r"
        pretend / role-?play / you are (?:a|an|my|the|now) / youre (?:a|an|my|now)
        be (?:my|a|an) \w+ / act (?:as|like) / play (?:the|a|my) / lets play / imagine you / quiz me
        test me on / in character / i guess / interview me
    ",
    ),
    (
        Cue::Third,
        Place::Begins,
        r"
        (?:it|he|she|they|the \w+(?: \w+)?|my \w+|our \w+|this \w+|that \w+|people|everyone|everybody|staff|users|kids|children) (?:should|must|has to|have to|needs to|need to|ought to|always|never|is to|are to|stays?|shall|will|cant|cannot|may)
    ",
    ),
    (
        Cue::Others,
        Place::Within,
        r"
        he / she / they / him / them / his / their / people / everyone / customers? / guests?
        tenants? / employees? / staff / pupils? / students? / kids? / children / son / daughter
        intern / colleagues? / users? / visitors? / dogs? / cats? / wife / husband / boss / teacher
        doctor / client / players? / members? / parents / mum / mom / dad / landlord / neighbou?rs?
        team / cleaners? / waiters?
    ",
    ),
    (
        Cue::Once,
        Place::Within,
        r"
        (?:call|ask) me (?:at|in|on|when|if|back|later|now|tomorrow|after|before|a|an|for|about|some)
        this time / this once / just (?:this )?once / for now / for once / right now / tonight
        todays / today only / ^today\b / (?:just|for) today / tomorrows?
        for (?:the )?next (?:\w+ )?(?:minutes?|hours?|days?|weeks?|messages?|questions?|answers?|reply|few)
        for a (?:bit|while|moment|minute)
        for (?:this|that|the|my|his|her|their|our) (?:\w+ )?(?:tweet|email|mail|letter|post|report|slides?|deck|essay|article|card|caption|ad|paper|talk|speech|meeting|call|one|question|answer|summary|video|blog|presentation|review|client|boss|kids?|team|file|project|chapter|poem|job|app|task)
        only for
        until (?:the|my|we|tomorrow|tonight|then|monday|tuesday|wednesday|thursday|friday|saturday|sunday|noon|\d)
        while (?:my|the|we|im|i am|he|she|they) / just for / when im done / when i am done
        until im done / this one / that one / the last one / these ones
        in this (?:chat|conversation|session|thread|game|email|mail|document|text|file)
    ",
    ),
    (
        Cue::TextWork,
        Place::Within,
        r"
        (?:points?|words|sentences|questions|facts|jokes?|examples?|lines) (?:about|on) / translate
        translation / proof-?read / engrav\w+ / print / sign for / sign that / sign saying / poster
        t-?shirt / tattoo / banner / card / label / caption / slogan / motto / haiku / poem / lyrics
        chorus / verse / rhyme / title / font / summari[sz]e / rewrite / rephrase / reword / shorten
        spell-?check / grammar / how do (?:you|i) say / whats .* in (?:french|german|latin|spanish)
        in latin / pronounce / draft / notice / policy / house rules / system prompt / prompt for
        exercise / fill in / conjugate / prove / proof / discuss / essay / quote / says: / called
        engraving / inscription / headline
    ",
    ),
    (
        Cue::Correction,
        Place::Within,
        r"
        (?:you|u) (?:wrote|said|put|forgot|missed|misspelled|misspelt|mixed|got|gave|called|swapped|left|meant)
        i (?:said|meant)
        (?:thats|its|it is|it was|that was) (?:not|wrong|spelled|spelt|written|still|actually)
        wrong / not like that
    ",
    ),
    (
        Cue::Praise,
        Place::Within,
        r"
        (?:youre|you are|u r) (?:always )?(?:so|such|the best|a) / bless / pleasure / never fail
        fail to / amaz\w+ / dull moment / thank\w* / thx / cheers / love it / love how / perfect
        great job / good job / well done / brilliant / awesome / lol / haha / hehe / legend / star
        lifesaver / keep it up / good work / never been so / you always / you never
        dont (?:ever )?change / as always / happy / glad / :\)
    ",
    ),
    (
        Cue::Thing,
        Place::Within,
        r"
        ^(?:error|warn\w*) / --\w+ / \w=\w / button / field / menu / header / footer / list view
        app / application / website / web ?site / page / form / function / method / class / script
        cron / filter / timer / logger / logs? / log file / validation / widget / dialog / popup
        modal / bot / chatbot / endpoint / api / query / sql / regex / column / row / cell / sheet
        spreadsheet / formula / template / contract / clause / dough / sauce / oven / recipe so
        cake / sprinkler / thermostat / alarm / lights? / door / gate / game / quiz / plugin
        server / compose / docker / service / cache / scroll\w* / click\w* / upload\w* / null / json
        string / default(?:s|ed)? to / return(?:s|ed)? (?:null|none|true|false|an?) / config
        setting / settings / parser / loop / thread / test case / unit tests?
    ",
    ),
    (
        Cue::Question,
        Place::Within,
        r"
        \?\s*$
        ^(?:is|are|do (?:you|i|we|they)|does|did|can i|could i|should|shall|why|what|where|how|who|which|was|were|would it|has|have (?:you|i|we)|am i|when (?:is|are|do|does|did|can|should|will|was))\b
    ",
    ),
    (
        Cue::Irony,
        Place::Within,
        r"
        oh (?:great|wonderful|nice|brilliant|perfect) / yeah right / sure\W / why dont you
        who needs / i love it / thanks for nothing / wow
    ",
    ),
    (
        Cue::Habit,
        Place::Within,
        r"
        emojis? / emoticons? / smileys? / smilies / exclamation (?:marks?|points?) / asterisks?
        markdown / apologi[sz](?:e|ing) / apologies / sorry / prais(?:e|ing) / flatter(?:y|ing)?
        compliment(?:s|ing)? / disclaimers? / caveats? / preambles? / filler / pleasantries
        small ?talk / sign-?offs? / lectur(?:e|es|ing) / morali[sz](?:e|ing) / preach(?:ing|y)?
        hedg(?:e|ing) / great question / as an ai / cheerleading / recaps? / jargon / swear(?:ing)?
        guess(?:ing)? / making (?:things|stuff) up / let me know / my question / spoilers?
        bullets?(?:[- ]points?)? / sir / maam / bold / italics? / em[- ]dash(?:es)? / headings?
    ",
    ),
    (
        Cue::Name,
        Place::Within,
        r"
        (?:call|calling|address|addressing) me / first name / nicknames? / my name is
    ",
    ),
    (
        Cue::Polite,
        Place::Within,
        r"
        (?:can|could|would|will) you / do you mind
    ",
    ),
    (
        Cue::Recalls,
        Place::Within,
        r"
        (?:can|do|will) you (?:\w+ )?(?:remember|know|forget)
    ",
    ),
    (
        Cue::CaseFirst,
        Place::Within,
        r"
        ^(?:(?:and|but|even|so|also|\W)\W*)*(?:when(?:ever)?|if|every time|each time|any time|before|after) (?:you|u|i|we)
    ",
    ),
];

/// Words that, as a separate sentence, make an order permanent.
const STANDING: &str = r"(?:from now on(?:wards?)?|from (?:today|here|this point|this moment|this day)(?: on| onwards?| forward)?|going forward|moving forward|in (?:the )?future|henceforth|always|never|every (?:\w+ )?time|each time|whenever|as a (?:general )?(?:rule|default)|by default|until (?:i say otherwise|further notice|i tell you otherwise)|in general|generally|for all future \w+|make it a (?:habit|rule)|any ?more|ever again|the next time|permanently|at all times|without exceptions?|only ever|every day|for ?ever|for good|for everything|across the board|no matter what|in our (?:chats?|conversations?))";

/// Sentences that only say that the previous one should apply permanently.
static HOLDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"^(?:and )?(?:(?:i mean|and i mean|make) (?:that|this|it) (?:as )?|(?:that|this|it) (?:goes|holds|applies|counts|is meant) (?:for )?|(?:thats|this is|consider (?:that|this)) )?(?:please )?(?:{STANDING}|(?:a|my) (?:general |standing )?(?:rule|default|preference)|(?:to |for )?(?:everything|all (?:of )?(?:your )?\w+|every \w+)|generally)(?: please)?[\s.!]*$"
    ))
});
/// Sentences that withdraw a wish.
static TAKES_BACK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:(?:ok|okay|actually|hey|hmm|no|please|pls|well|sorry|and|oh|you know what)[\s,]+)*(?:(?:undo|revert|remove|delete|drop|cancel|forget|scrap|ignore|unlearn)\s+(?:about\s+)?(?:\w+\s+){0,4}(?:rules?|wish(?:es)?|preferences?|lessons?|you (?:just )?learn(?:ed|t)|i (?:said|told you|asked)|short\w*|brief\w*|emojis?|bullets?|learn(?:ed|t))\b|(?:undo|forget|scrap|unlearn) (?:that|it|this|the last one)[\s.!]*$|(?:you|u) (?:can|may)(?: now)? .*\b(?:again|after all|now|any ?more)\b|i (?:hereby )?take back|(?:lets )?(?:scrap|cancel|drop|forget|undo|remove|delete) (?:about )?(?:my|the|that|this) (?:[\w-]+ ){0,4}(?:rule|wish|ban|limit|thing)\b|never ?mind (?:about )?(?:the|that|my|what i said)|go back to (?:normal|how|the way|your|the)|(?:you|u) (?:dont|do not|no longer) (?:have|need) to (?:ask|check|confirm|show|tell|warn)\b.*)|\b(?:rule|wish|ban|thing)\b.*(?:scrap it|forget it|cancelled|canceled)|\byou no longer (?:have|need) to\b|\b(?:dont|do not) (?:have|need) to\b.*\b(?:any ?more|any longer)\W*$",
    )
});

/// The subjects of complaints, the words, and the wish that each implies.
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

pub(super) static ENGLISH: LazyLock<Language> = LazyLock::new(|| Language {
    lexicon: Lexicon::new(Script::Words, LEADS, WORDS),
    plain,
    clauses,
    complaints: COMPLAINTS.map(|(facet, wish, words)| (facet, wish, pattern(words))),
    takes_back: TAKES_BACK.clone(),
    holds: HOLDS.clone(),
});

/// Removes apostrophes, because people leave them out.
fn plain(text: &str) -> String {
    text.trim()
        .replace(['\'', '’', COVER], "")
        .replace("  ", " ")
}

fn clauses(sentence: &str) -> Vec<&str> {
    let parts = sentence.split([',', ':', '–', '—', '(', ')', ';']);
    let parts = parts
        .flat_map(|part| part.split(" so "))
        .flat_map(|part| part.split(" but "))
        .flat_map(|part| part.split(" and "));
    parts.map(str::trim).filter(|it| !it.is_empty()).collect()
}
