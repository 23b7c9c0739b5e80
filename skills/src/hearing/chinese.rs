//! Chinese: a wish is an order to the assistant about how it answers, or one that is to hold from now on.

use std::sync::LazyLock;

use regex::Regex;

use super::{
    facet::Facet,
    own_words::{COVER, Sentence, Task},
    rules::Rules,
};
use crate::patterns::pattern;

pub(super) struct Chinese;

/// What makes an order hold from now on. "以后" behind something is "after" unless an order follows it.
const STANDING: &str = r"(?:^|从今|从此|那|请|你|，|,)(?:以后|今后|往后|之后|日后|将来)|(?:以后|今后|往后|之后)(?:都|一律|统一|全|请|就|别|不要|不用|不许|只|用|改|要|得|省|控制|按|默认|直接|先|也|不)|从(?:现在|今天|今儿|这会儿|此)(?:起|开始|往后)|从此(?:以后)?|每次|每回|每一次|每(?:次|回).{0,16}(?:都|就|请)|一律|始终|永远|任何时候|无论(?:什么时候|如何|何时)|不管(?:什么时候|怎样|谁)|所有.{0,8}(?:都|一样)|默认|(?:别|不要|不许|不准)再|再也(?:别|不要|不许)|下次(?:开始|起|都|别|不要|请|先|再)|都(?:这样|这么|按这个|照这个|一样)|长期有效|一直(?:都)?(?:要|用|这样)|总(?:之)?(?:要|得)|凡是|只要.{1,20}[，,]?(?:就|都)";
/// The manner of an answer, or how the assistant goes about its work.
const MANNER: &str = r"简短|简洁|简明|精简|简练|短一?点|短些|长话短说|言简意赅|啰嗦|罗嗦|啰唆|废话|[一两二三四五六七八九十几\d]+(?:个)?(?:句(?:话)?|行|段(?:话)?)|字(?:以内|之内|左右)|详细|展开|长篇大论|重点|分点|列表|要点|逐条|编号|表格|markdown|加粗|标题|纯文本|星号|感叹号|格式|表情|颜文字|emoji|中文|英文|英语|汉语|普通话|粤语|广东话|日语|日文|法语|德语|韩语|繁体|简体|正式|口语|随意|礼貌|客气|敬语|称呼|语气|幽默|玩笑|严肃|道歉|抱歉|对不起|恭维|拍马屁|夸我|夸奖|套话|开场白|客套|免责|寒暄|说教|重复|公制|英制|摄氏|华氏|公里|公斤|千克|人民币|美元|单位|24 ?小时|日期|时区|大白话|白话|通俗|术语|黑话|例子|举例|比喻|来源|出处|先问|问我|问过我|确认|征求|我同意|擅自|自作主张|叫我|喊我|名字|注释|代码块|缩进|结论|先给答案|分步|一步一步|开头|结尾|您|亲|哥|姐|老师|拼音|变量名";
/// For this one answer: never a wish, whatever else is said.
const ONCE: &str = r"再.{0,6}(?:一遍|一次|一下|一版)|重新.{0,4}(?:一遍|一下)|这次|这一次|这回|这一回|本次|(?:^|[^从])今天|明天|今晚|现在先|暂时|先这样";
/// About one thing at hand: a wish only if it says that it is to hold.
const AT_HAND: &str = r"刚才(?:那|的|这)|上面(?:那|这|的)|下面(?:这|的)|这(?:笔|单|图|件|名|台|家|批|段|个|句|篇|封|条|张|份|道|本|些|首|部分|一段|一句|一篇|一封|段话|句话|封信|表|文件|题|代码|函数|bug|里)|那(?:段|个|句|篇|封|条|张|份|道|些|首)|第[一二三四五六七八九十\d]+(?:个|段|句|条|点|章|部分)|给(?:他|她|他们|老板|客户|同事|老师|妈|爸|领导|朋友|孩子|爷爷|奶奶|小孩)|(?:邮件|文章|作文|论文|报告|简历|ppt|合同|海报|文案|朋友圈|演讲稿|通知)";
/// What an order begins with, or has behind its topic.
const ORDERS: &str = r"^(?:(?:对了|还有|另外|所以|因此|那么|不过|但是|但|而且|总之|平时|那个|嗯|哦|好的?|好吧|行|谢谢|多谢|你好|喂|哎|唉|拜托|麻烦(?:你)?|请(?:你)?|你|记住|记得|注意|提醒一下|顺便说一下|顺便|再说一遍|我说过(?:了)?|跟你说|其实|我希望(?:你)?|希望(?:你)?|我想让你|我要(?:你|求你)?|能不能|可不可以|可以|能|最好|尽量|务必|一定要|必须|应该|就|都|也|只|直接|以后|今后|往后|之后|下次|每次|从现在(?:起|开始)|默认|一律|统一|永远|任何时候|不管怎样|全部|全|啊|吧|呢|，|,|\s)*)(?:回答|回复|答复|回|答|说|讲|用|写|称呼|叫|喊|给|解释|输出|列|总结|别|不要|不用|不必|不需要|无需|不许|不准|禁止|停止|避免|少|多|先|(?:简短|简洁|精简|详细|短|具体|直接|正式|随意|口语|通俗|客气|礼貌|简单)(?:一点|点|一些|些|地)|长话短说|加|附|标|引用|改用|换成|换|使用|采用|保持|提醒|确认|问|算|换算|推荐|翻译|省|跳过|按|把|在|遇到|执行|删|改|做|发|订|买|提到|涉及|控制|语气|口气|讲话|说话|推|安排|放|拿|动|备份|存|告诉|通知|提前|命名|起|选|打|记|备注|分|排|念|读|选择|忽略|当|带|跟|和|对|为|让|称|配|举|注|核|念|标注|列出|要|得)|请(?:在|把|用|给|先|都|你|务必|帮|按|直接|不要|别)|麻烦(?:都|你|请)|(?:一律|统一)\p{Han}|每(?:条|次|个|篇|句)(?:回复|回答|消息).{0,6}(?:控制|不超过|要|都|别|不要|加|用)|(?:都|一律|统一|全|全部)(?:要|用|给|得|别|不要|应该|把|按|发|写|说|回|算|放|提前|先|加|附|标|改|叫|换|省|讲|做|走|靠|以|只)|(?:别|不要|不用|不必|不许|不准|无需|少)(?:再|老|总|给|用|加|写|说|放|叫|发|讲|吞|往|超过|带|那么|这么|动不动|一次|随便|直接|擅自|出现)|要(?:先|我|用|把|经过|提前|往)|必须|一定要|务必|只(?:给|要|用|说|推|动|改|能|许|看)|用.{0,8}(?:回|说|写|讲|答|表示|就行|即可)|(?:省|免|算|去掉|删)了?吧|(?:问|确认|告诉|通知|征求|备份|展示|给我看)(?:过|一下|好|完)?(?:我)?.{0,6}(?:再|才|之后|以后)";

static STANDS: LazyLock<Regex> = LazyLock::new(|| pattern(STANDING));
static BEGINS_LASTING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:另外|还有|对了|请|你|，|,|\s)*(?:以后|今后|往后|从现在(?:起|开始)|从今(?:天|以后|往后)|每次|默认|下次)",
    )
});
static ABOUT_MANNER: LazyLock<Regex> = LazyLock::new(|| pattern(MANNER));
static IS_ONCE: LazyLock<Regex> = LazyLock::new(|| pattern(ONCE));
static IS_AT_HAND: LazyLock<Regex> = LazyLock::new(|| pattern(AT_HAND));
static ORDER: LazyLock<Regex> = LazyLock::new(|| pattern(ORDERS));
/// Sentences that only say that what came before is to hold.
static HOLDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:这是|当成|就当|这|这条|这个)?(?:以后|今后|往后|每次|一直|永远)?(?:都)?(?:这样|这么办|这么做|如此|照此|按这个来|这么来|一样|长期有效|规矩|规则|要求|习惯)(?:吧|了|哦|啊)?[。.!！]*$|^(?:以后|今后|每次|一律|永远)(?:都|都是|都一样)?[。.!！]*$",
    )
});
static IS_QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"[?？]\s*$|吗[\s。]*$|为什么|为啥|怎么|什么(?:意思|是|叫|时候|原因)|哪(?:个|些|里|家|种)|多少|几点|是不是|有没有|如何|谁",
    )
});
static ASKS_POLITELY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"能不能|可不可以|(?:可以|能).{0,24}吗|好吗|行吗|好不好|行不行"));
/// Somebody else does it, or it is told and not asked for.
static TELLS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(?:我|我们|咱们|他|她|它|他们|公司|孩子|小孩|大家|员工|学生|老公|老婆|爸|妈|这(?:个|件|种)?(?:事|人|东西)?|那)(?:家|妈|爸|们)?(?:以后|今后|每次|总是?|一直|永远|从此|从来|从不|也|都|就|老)|(?:以后|今后|每次|总是|一直|永远|从此|下次)[\s,，]*(?:我(?:会|想|要去|打算|得|就|也|还|来|再|不|都)|我们|他|她|它|他们|公司|孩子|大家|员工|学生)|(?:以后|今后)(?:想|打算|准备|有机会|会|再说|再聊|见|有空)|说不定|别(?:人|的|墅|扭|担心|急|客气|着急|忘)|^不用(?:了|谢|客气|管|麻烦)|^不(?:是|对|会|能|行)|^算了|^你?(?:做|写|说|用|给|看|改|查|讲|答|回|解释|翻译)(?:得|的|完|好|了|过)",
    )
});
static TAKES_BACK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?:不用|不必|不需要)再.{1,16}了|到此为止|^(?:(?:算了|好吧|好的?|那|嗯|不对|哦)[\s,，。]*)*(?:(?:忘掉|忘了|忘记|取消|撤销|撤回|删掉|删除|去掉|作废|收回)(?:吧)?(?:刚才|上次|之前|前面|我说的|我|那个|那条|这条|最后|上一)*.{0,12}(?:规则|要求|偏好|习惯|设定|约定|那条|这条|愿望|说的|学的|学到的|的话)|(?:又)?可以(?:再|重新|继续)?(?:用|加|发|写|说|叫).{0,12}了|恢复(?:原样|原来|正常|默认|之前)|(?:不用|不必|不需要)再.{0,14}了[\s。！!]*$|还是(?:像|按|照)(?:以前|原来|之前))|(?:不用|不必|不需要)再.{1,16}了|到此为止|当我没说|不算数了|作废|不用(?:守|管|遵守|理)了|别(?:守|管)了",
    )
});

/// Something to be made or told, which the manner is of.
static IS_DEED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?:讲|说|介绍|解释|对比|比较|分析|列|写|画|算|查|找|翻译|总结|描述)(?:一下|讲|说|出|个|下)|给我(?:讲|说|写|列|找|来|[一二三四五六七八九十两几\d]+(?:个|条|句|段|点))|叫我(?:起床|吃|去|回|做|睡|上|出)",
    )
});

/// What is complained of, and what is wished for by it.
const COMPLAINTS: [(Facet, &str, &str); 8] = [
    (
        Facet::Length,
        "回答要简短。",
        r"太长|太啰嗦|太罗嗦|太啰唆|好长|这么长|那么长|又是一大[堆段篇]|一大[堆段篇]|长篇大论|看不完|懒得看|太多字|字太多|说重点|废话(?:太多|真多|好多|连篇)|裹脚布|^\W*(?:再)?(?:短|简短|精简)(?:一)?点(?:吧|儿)?\W*$",
    ),
    (
        Facet::Length,
        "回答要详细。",
        r"太短|太简略|太简单了|不够(?:详细|具体)|(?:就|才)(?:这|一句)",
    ),
    (
        Facet::Emoji,
        "不要用表情符号。",
        r"(?:这么多|那么多|太多|一堆|满屏|又是|老是|怎么(?:又|都|总)是?|全是).{0,4}(?:表情|emoji|颜文字)|(?:表情|emoji|颜文字).{0,6}(?:太多|好多|真多|烦)",
    ),
    (
        Facet::Lists,
        "不要用列表。",
        r"(?:这么多|那么多|太多|一堆|满屏|又是|老是|怎么(?:又|都|总)是?|全是).{0,4}(?:列表|要点|分点|项目符号)",
    ),
    (
        Facet::Filler,
        "不要客套和道歉。",
        r"(?:又|老是|总是|一直|别老|怎么(?:又|老|总)).{0,6}(?:道歉|对不起|抱歉|客套|夸我|恭维|说教)",
    ),
    (
        Facet::Words,
        "用通俗的话说。",
        r"(?:太|好|这么)(?:专业|复杂|难懂|深奥|绕)|听不懂|看不懂|术语(?:太多|好多)|说人话|当我是(?:专家|博士|程序员)",
    ),
    (
        Facet::Tone,
        "语气随意一点。",
        r"太(?:正式|官方|严肃|生硬|客气)",
    ),
    (Facet::Tone, "语气正式一点。", r"太(?:随便|随意|轻浮)"),
];

static COMPLAINT: LazyLock<Vec<Regex>> =
    LazyLock::new(|| COMPLAINTS.iter().map(|(_, _, it)| pattern(it)).collect());

// === impl Rules ===

impl Rules for Chinese {
    fn wish(sentence: &Sentence<'_>) -> bool {
        let said = plain(&sentence.masked);
        if sentence.is_reported || IS_ONCE.is_match(&said) {
            return false;
        }
        if IS_QUESTION.is_match(&said) && !ASKS_POLITELY.is_match(&said) {
            return false;
        }
        if sentence.task == Task::Here && said.contains(['：', ':']) {
            return false;
        }
        let clauses: Vec<&str> = clauses(&said).collect();
        let is_order = |clause: &&&str| ORDER.is_match(clause) && !TELLS.is_match(clause);
        let mut orders = clauses.iter().filter(is_order).peekable();
        if orders.peek().is_none() {
            return false;
        }
        // Within a task "永远" is mostly what the task is about.
        let governs = |clause: &&str| {
            let stands = if sentence.task == Task::Here {
                &BEGINS_LASTING
            } else {
                &STANDS
            };
            stands.is_match(clause) && !TELLS.is_match(clause)
        };
        let is_whole =
            sentence.task == Task::Nowhere && STANDS.is_match(&said) && !TELLS.is_match(&said);
        if sentence.holds || is_whole || clauses.iter().any(governs) {
            return true;
        }
        sentence.task == Task::Nowhere
            && !IS_DEED.is_match(&said)
            && orders.any(|order| ABOUT_MANNER.is_match(order) && !IS_AT_HAND.is_match(order))
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

fn plain(text: &str) -> String {
    text.trim().replace(COVER, "")
}

fn clauses(sentence: &str) -> impl Iterator<Item = &str> {
    let parts = sentence.split(['，', ',', '：', ':', '；', ';', '（', '）', '—']);
    parts.map(str::trim).filter(|clause| !clause.is_empty())
}
