//! Tests of counts by day and agent, which are kept when the turns are deleted.

use metaclaw_chat::Score;

use super::kit::{Client, new_log, open, verdict};
use crate::{DailyCounts, DayStatistics, StreamEnd, TurnKind, day_of};

const DAY_MS: u64 = 24 * 3_600 * 1_000;

#[tokio::test]
async fn counts_of_a_day_outlive_the_texts_and_go_in_their_time() {
    let (dir, log) = new_log();
    let agent = "main".parse().unwrap();
    let mut client = Client::new("a", "sys");
    let first = log.put(client.turn("one", "1")).await;
    let day = day_of(client.now_ms);
    // A try that broke off, and the one that replaced it, count as one turn, and both are paid.
    client.push(metaclaw_chat::Message::user("two"));
    let mut broken = client.request("");
    broken.meta.end = StreamEnd::Cut;
    broken.reply = None;
    log.put(broken).await;
    log.put(client.request("2")).await;
    log.judge(first, verdict(Score::Bad)).await.unwrap();
    log.overrule(first, verdict(Score::Good)).await.unwrap();
    client.now_ms += DAY_MS;
    log.put(client.turn("three", "3")).await;
    let lessons = DailyCounts {
        lessons: 1,
        learning_tokens: 40,
        ..DailyCounts::default()
    };
    log.count(&agent, client.now_ms, lessons).await.unwrap();
    log.forget(&agent, &"a".parse().unwrap()).await.unwrap();

    let expected = [
        DayStatistics {
            day,
            agent: agent.clone(),
            counts: DailyCounts {
                turns: 2,
                good: 1,
                followed: 1,
                first_replies: 1,
                first_words: 1,
                tokens_in: 300,
                tokens_cached: 192,
                tokens_out: 21,
                ..DailyCounts::default()
            },
        },
        DayStatistics {
            day: day + 1,
            agent,
            counts: DailyCounts {
                turns: 1,
                followed: 1,
                tokens_in: 100,
                tokens_cached: 64,
                tokens_out: 7,
                ..lessons
            },
        },
    ];
    log.compact().await.unwrap();
    assert_eq!(log.statistics(0).await.unwrap(), expected);
    assert_eq!(log.statistics(day + 1).await.unwrap(), expected[1..]);
    assert_eq!(log.forget_statistics_before(day + 1).await.unwrap(), 1);
    assert_eq!(log.forget_statistics_before(day + 1).await.unwrap(), 0);
    log.close().await;
    let log = open(dir.path());
    assert_eq!(log.statistics(0).await.unwrap(), expected[1..]);
}

/// A result of a tool and a client's own request say nothing about the reply before them.
#[tokio::test]
async fn a_reply_that_the_owners_words_follow_is_counted_and_the_words_of_the_first() {
    let (_dir, log) = new_log();
    let mut client = Client::new("a", "sys");
    log.put(client.turn("one", "<think>well, well</think>It is four words."))
        .await;
    log.put(client.turn("two", "2")).await;
    client.push(metaclaw_chat::Message::new("tool", "the \"user\" is known"));
    log.put(client.request("3")).await;
    client.push(metaclaw_chat::Message::user("four"));
    let mut errand = client.request("4");
    errand.meta.kind = TurnKind::Side;
    log.put(errand).await;
    let days = log.statistics(0).await.unwrap();
    let counts = days[0].counts;
    assert_eq!((counts.followed, counts.turns), (1, 3));
    assert_eq!((counts.first_replies, counts.first_words), (1, 4));
    log.close().await;
}
