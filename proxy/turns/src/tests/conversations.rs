//! Tests of the list of conversations, and of the search in them.

use metaclaw_chat::{JudgedBy, Score, Verdict};

use super::kit::{Client, new_log};
use crate::{ConversationFilter, ImportedTurn, TurnKind, TurnLog};

/// Three conversations; the first is the one that was continued last.
async fn three(log: &TurnLog) {
    let mut tea = Client::new("tea", "sys");
    tea.now_ms = 1_000;
    let bad = log
        .put(tea.turn("How do I make TEA?", "With water of 90 degrees."))
        .await;
    log.judge(bad, Verdict::new(Score::Bad, JudgedBy::Owner))
        .await
        .unwrap();
    let mut haiku = Client::new("haiku", "sys");
    haiku.agent = "writer";
    haiku.now_ms = 20_000;
    let mut turn = haiku.turn("Write a haiku about rain.", "Rain on the tin roof");
    turn.served.model = "provider-large".to_owned();
    let good = log.put(turn).await;
    log.judge(good, Verdict::new(Score::Good, JudgedBy::Llm))
        .await
        .unwrap();
    let mut title = Client::new("title", "sys");
    title.now_ms = 30_000;
    let mut own = title.turn("Make a title: tea", "Tea");
    own.meta.kind = TurnKind::Side;
    log.put(own).await;
    let mut kettle = Client::new("kettle", "sys");
    kettle.now_ms = 35_000;
    log.put(kettle.turn("Descale a kettle.", "With vinegar."))
        .await;
    tea.now_ms = 40_000;
    log.put(tea.turn("And how long?", "Two minutes.")).await;
}

#[tokio::test]
async fn conversations_are_found_by_each_condition() {
    let (_dir, log) = new_log();
    three(&log).await;
    let all = || ConversationFilter {
        limit: 50,
        ..ConversationFilter::default()
    };
    let agent = |name: &str| ConversationFilter {
        agent: Some(name.parse().unwrap()),
        ..all()
    };
    let words = |words: &str| ConversationFilter {
        words: words.to_owned(),
        ..all()
    };
    let model = |model: &str| ConversationFilter {
        model: model.to_owned(),
        ..all()
    };
    let score = |score| ConversationFilter {
        score: Some(score),
        ..all()
    };
    let cases: [(ConversationFilter, &[&str]); 14] = [
        (all(), &["tea", "kettle", "haiku"]),
        (agent("writer"), &["haiku"]),
        (agent("nobody"), &[]),
        (words("tea"), &["tea"]),
        (words("Water  MAKE"), &["tea"]),
        (words("water minutes"), &[]),
        (words("kettle"), &["kettle"]),
        (model("PROVIDER"), &["haiku"]),
        (model("demo"), &["tea", "kettle"]),
        (score(Score::Bad), &["tea"]),
        (score(Score::Unclear), &[]),
        (
            ConversationFilter {
                words: "minutes".to_owned(),
                ..score(Score::Bad)
            },
            &[],
        ),
        (
            ConversationFilter {
                since_ms: 30_000,
                ..all()
            },
            &["tea", "kettle"],
        ),
        (ConversationFilter { limit: 1, ..all() }, &["tea"]),
    ];
    for (filter, expected) in cases {
        let page = log.conversations(filter.clone()).await.unwrap();
        let found: Vec<&str> = page
            .conversations
            .iter()
            .map(|talk| talk.last.session.as_str())
            .collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    log.close().await;
}

#[tokio::test]
async fn a_conversation_is_summed_up_and_the_match_is_shown() {
    let (_dir, log) = new_log();
    three(&log).await;
    let filter = ConversationFilter {
        words: "degrees".to_owned(),
        limit: 1,
        ..ConversationFilter::default()
    };
    let page = log.conversations(filter).await.unwrap();
    let talk = &page.conversations[0];
    assert_eq!(talk.asked.as_deref(), Some("How do I make TEA?"));
    assert_eq!((talk.n_turns, talk.n_good, talk.n_bad), (2, 0, 1));
    assert_eq!((talk.prompt_tokens, talk.completion_tokens), (200, 14));
    assert_eq!(talk.last.ended_ms, 41_900);
    assert_eq!(talk.matched.seq, 0, "the turn that has the word");
    let excerpt = talk.excerpt.as_deref();
    assert_eq!(excerpt, Some("With water of 90 degrees."));
    log.close().await;
}

#[tokio::test]
async fn each_conversation_is_on_one_page_of_a_list() {
    let (_dir, log) = new_log();
    three(&log).await;
    let mut filter = ConversationFilter {
        limit: 1,
        ..ConversationFilter::default()
    };
    let mut listed = Vec::new();
    loop {
        let page = log.conversations(filter.clone()).await.unwrap();
        listed.extend(
            page.conversations
                .into_iter()
                .map(|talk| talk.last.session.to_string()),
        );
        filter.before = page.older;
        if page.older.is_none() {
            break;
        }
    }
    assert_eq!(listed, ["tea", "kettle", "haiku"]);
    log.close().await;
}

#[tokio::test]
async fn a_search_that_finds_nothing_reads_a_limited_number_of_turns() {
    let (_dir, log) = new_log();
    let one = |n: u32| ImportedTurn {
        turn: Client::new(&format!("s{n}"), "sys").turn("q", "a"),
        verdict: None,
    };
    log.import((0..2_300).map(one).collect()).await.unwrap();
    let filter = ConversationFilter {
        words: "absent".to_owned(),
        limit: 1,
        ..ConversationFilter::default()
    };
    let page = log.conversations(filter.clone()).await.unwrap();
    assert_eq!((page.n_read, page.conversations.len()), (2_000, 0));
    let rest = ConversationFilter {
        before: page.older,
        ..filter
    };
    let page = log.conversations(rest).await.unwrap();
    assert_eq!((page.n_read, page.older), (300, None));
    log.close().await;
}
