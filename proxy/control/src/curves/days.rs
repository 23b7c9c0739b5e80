//! Curves over days, from the log's counts. They outlive the texts of turns.

use std::collections::BTreeMap;

use jiff::civil::Date;
use metaclaw_turns::{DailyCounts, LogError, TurnLog};

use super::{Curve, CurveAxis, CurveLine, CurvePoint, CurveUnit, CurvesWanted, wilson};
use crate::figures::{CountedDays, Period, Share, begin_ms, chat_tokens, date_of, verdicts};

const NO_TOKENS: &str = "No upstream has reported a number of tokens in these days.";

type CountsByDay = BTreeMap<Date, DailyCounts>;

/// Returns the curves of the days up to `now_ms`. Without a log they have no points.
///
/// # Errors
/// Returns the log's.
pub(crate) async fn by_day(
    log: Option<&TurnLog>,
    wanted: &CurvesWanted,
    now_ms: u64,
) -> Result<Vec<Curve>, LogError> {
    let n_days = wanted.days.clamp(1, CurvesWanted::MAX_DAYS);
    let period = Period::until(date_of(now_ms), n_days);
    let days = match log {
        Some(log) => CountedDays::read(log, period, wanted.agent.as_ref())
            .await?
            .by_day(),
        None => CountsByDay::new(),
    };
    Ok(vec![
        pass_rate(&days),
        prompts(&days),
        spend(&days, wanted.agent.is_none()),
        cache_share(&days),
    ])
}

fn pass_rate(days: &CountsByDay) -> Curve {
    let share = |counts: &DailyCounts| share_of(verdicts(counts).pass_rate());
    Curve {
        id: "pass_rate".to_owned(),
        title: "Pass rate of verdicts".to_owned(),
        about: "The share of a day's judged turns whose verdict is good (+1), with its 95 % interval. Days are days of UTC."
            .to_owned(),
        empty: "No turn of these days has a verdict yet.".to_owned(),
        unit: CurveUnit::Share,
        axis: CurveAxis::Days,
        lines: vec![line("good of the judged", days, share)],
    }
}

/// Prompts have a drawing of their own, because they are ten to a hundred times as long as replies.
fn prompts(days: &CountsByDay) -> Curve {
    Curve {
        id: "prompts".to_owned(),
        title: "Prompt tokens a day".to_owned(),
        about: "The tokens of a day's prompts as the upstreams count them, and the part that a provider read from its cache.".to_owned(),
        empty: NO_TOKENS.to_owned(),
        unit: CurveUnit::Tokens,
        axis: CurveAxis::Days,
        lines: vec![
            line("all", days, |counts| amount(chat_tokens(counts).prompt)),
            line("from the cache", days, |counts| amount(chat_tokens(counts).cached)),
        ],
    }
}

/// The tokens of learning are counted for all agents together only.
fn spend(days: &CountsByDay, of_all: bool) -> Curve {
    let replies = |counts: &DailyCounts| amount(chat_tokens(counts).completion);
    let mut lines = vec![line("replies", days, replies)];
    if of_all {
        lines.push(line("learning", days, |counts| {
            amount(counts.learning_tokens)
        }));
    }
    Curve {
        id: "spend".to_owned(),
        title: "Tokens of replies and of learning a day".to_owned(),
        about: "The tokens of a day's replies, and what learning used, in and out: judging, writing skills, embeddings. Learning is counted for all agents together."
            .to_owned(),
        empty: NO_TOKENS.to_owned(),
        unit: CurveUnit::Tokens,
        axis: CurveAxis::Days,
        lines,
    }
}

fn cache_share(days: &CountsByDay) -> Curve {
    let share = |counts: &DailyCounts| {
        let mut point = share_of(chat_tokens(counts).cache_share())?;
        // The tokens of a prompt are cached together, so they are no independent draws.
        point.interval = None;
        Some(point)
    };
    Curve {
        id: "cache_share".to_owned(),
        title: "Prompt tokens from the provider's cache".to_owned(),
        about: "The share of a day's prompt tokens that the provider read from its cache, which costs a fraction. A session whose beginning changes loses it."
            .to_owned(),
        empty: NO_TOKENS.to_owned(),
        unit: CurveUnit::Share,
        axis: CurveAxis::Days,
        lines: vec![line("cached of all prompt tokens", days, share)],
    }
}

fn line(
    name: &str,
    days: &CountsByDay,
    value: impl Fn(&DailyCounts) -> Option<CurvePoint>,
) -> CurveLine {
    let point = |(day, counts): (&Date, &DailyCounts)| {
        let at = begin_ms(*day);
        value(counts).map(|point| CurvePoint { at, ..point })
    };
    CurveLine::new(name.to_owned(), days.iter().filter_map(point).collect())
}

/// A day on which nothing was counted has no point, because an upstream may not report tokens.
fn amount(n: u64) -> Option<CurvePoint> {
    (n > 0).then(|| CurvePoint {
        value: n as f64,
        ..CurvePoint::default()
    })
}

fn share_of(share: Share) -> Option<CurvePoint> {
    Some(CurvePoint {
        value: share.value()?,
        interval: Some(wilson(share.n, share.of)),
        n: Some(share.of),
        ..CurvePoint::default()
    })
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::AgentId;
    use metaclaw_turns::TurnsConfig;

    use super::*;

    const DAY_MS: u64 = 24 * 3_600 * 1_000;
    const NOW_MS: u64 = 100 * DAY_MS + 5;

    async fn curves(log: &TurnLog, agent: Option<&str>, days: u32) -> Vec<Curve> {
        let agent = agent.map(|agent| agent.parse().unwrap());
        let wanted = CurvesWanted { agent, days };
        by_day(Some(log), &wanted, NOW_MS).await.unwrap()
    }

    fn values(curve: &Curve) -> Vec<(String, Vec<(u64, f64)>)> {
        let points = |line: &CurveLine| {
            let points = line.points.iter();
            points.map(|one| (one.at / DAY_MS, one.value)).collect()
        };
        let lines = curve.lines.iter();
        lines
            .map(|line| (line.name.clone(), points(line)))
            .collect()
    }

    #[tokio::test]
    async fn each_day_with_counts_is_a_point() {
        let folder = tempfile::tempdir().unwrap();
        let log = TurnLog::open(folder.path(), &TurnsConfig::default()).unwrap();
        let count = async |agent: &str, day: u64, counts: DailyCounts| {
            let agent: AgentId = agent.parse().unwrap();
            log.count(&agent, day * DAY_MS, counts).await.unwrap();
        };
        let chat = DailyCounts {
            good: 3,
            bad: 1,
            tokens_in: 1_000,
            tokens_cached: 250,
            tokens_out: 10,
            ..DailyCounts::default()
        };
        count("main", 98, chat).await;
        let learning_tokens = 7;
        count(
            "_shared",
            98,
            DailyCounts {
                learning_tokens,
                ..DailyCounts::default()
            },
        )
        .await;
        count(
            "work",
            100,
            DailyCounts {
                unclear: 2,
                ..DailyCounts::default()
            },
        )
        .await;
        count("work", 90, chat).await;

        let all = curves(&log, None, 10).await;
        let [pass_rate, prompts, spend, cached] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(
            values(pass_rate),
            [(
                "good of the judged".to_owned(),
                vec![(98, 0.75), (100, 0.0)]
            )]
        );
        assert_eq!(pass_rate.lines[0].points[0].n, Some(4));
        assert_eq!(pass_rate.lines[0].points[0].interval, Some(wilson(3, 4)));
        let named = |name: &str, points| (name.to_owned(), points);
        assert_eq!(
            values(prompts),
            [
                named("all", vec![(98, 1_000.0)]),
                named("from the cache", vec![(98, 250.0)])
            ]
        );
        assert_eq!(
            values(spend),
            [
                named("replies", vec![(98, 10.0)]),
                named("learning", vec![(98, 7.0)])
            ]
        );
        assert_eq!(values(cached)[0].1, [(98, 0.25)]);
        let of_work = curves(&log, Some("work"), 10).await;
        assert_eq!(values(&of_work[0])[0].1, [(100, 0.0)]);
        assert_eq!(of_work[2].lines.len(), 1, "learning is nobody's");
        assert!(of_work[3].is_empty());
        let today = curves(&log, None, 0).await;
        assert_eq!(values(&today[0])[0].1, [(100, 0.0)]);
        let ever = curves(&log, None, u32::MAX).await;
        assert_eq!(values(&ever[0])[0].1.len(), 3);
        log.close().await;
    }

    #[tokio::test]
    async fn without_a_log_the_curves_are_empty() {
        let wanted = CurvesWanted {
            agent: None,
            days: 7,
        };
        let curves = by_day(None, &wanted, NOW_MS).await.unwrap();
        assert!(
            curves
                .iter()
                .all(|curve| curve.is_empty() && !curve.empty.is_empty())
        );
        let json = serde_json::to_string(&curves).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Curve>>(&json).unwrap(), curves);
    }
}
