//! Curves over days, from the log's counts. They outlive the texts of turns.

use std::collections::BTreeMap;

use jiff::civil::Date;
use metaclaw_turns::{DailyCounts, LogError, TurnLog};

use super::{Curve, CurveAxis, CurveLine, CurveMark, CurvePoint, CurveUnit, CurvesWanted};
use crate::{
    figures::{
        COMPLAINTS_IN, CountedDays, JudgingFigures, Period, Verdicts, begin_ms, chat_tokens,
        date_of, verdicts,
    },
    shares::wilson,
};

type CountsByDay = BTreeMap<Date, DailyCounts>;

/// Returns the curves of the days up to `now_ms`, with the lessons of these days as marks. Without a log they have no
/// points.
///
/// # Errors
/// Returns the log's.
pub(crate) async fn by_day(
    log: Option<&TurnLog>,
    wanted: &CurvesWanted,
    lessons: &[CurveMark],
    judging: JudgingFigures,
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
    let mut curves = vec![
        complaints(&days, judging),
        first_replies(&days),
        pass_rate(&days, judging),
        prompts(&days),
    ];
    for curve in &mut curves {
        curve.range = Some((begin_ms(period.first), begin_ms(period.last)));
    }
    let within = lessons.iter().filter(|lesson| period.has(lesson.at));
    let marks: Vec<CurveMark> = within
        .map(|lesson| CurveMark {
            at: begin_ms(date_of(lesson.at)),
            ..lesson.clone()
        })
        .collect();
    for curve in curves.iter_mut().take(3) {
        curve.marks.clone_from(&marks);
    }
    Ok(curves)
}

fn complaints(days: &CountsByDay, judging: JudgingFigures) -> Curve {
    let id = if judging.by_model {
        "complaints"
    } else {
        "plain_complaints"
    };
    Curve::new(
        id,
        CurveUnit::Amount,
        CurveAxis::Days,
        vec![of_verdicts("complaints", days, judging, |verdicts| {
            let share = verdicts.complaints()?;
            Some(CurvePoint {
                value: share.value()? * COMPLAINTS_IN as f64,
                n: Some(share.of),
                ..CurvePoint::default()
            })
        })],
    )
}

fn first_replies(days: &CountsByDay) -> Curve {
    let words = |counts: &DailyCounts| {
        (counts.first_replies > 0).then(|| CurvePoint {
            value: counts.first_words as f64 / counts.first_replies as f64,
            n: Some(counts.first_replies),
            ..CurvePoint::default()
        })
    };
    Curve::new(
        "first_replies",
        CurveUnit::Amount,
        CurveAxis::Days,
        vec![line("words", days, words)],
    )
}

fn pass_rate(days: &CountsByDay, judging: JudgingFigures) -> Curve {
    Curve::new(
        "pass_rate",
        CurveUnit::Share,
        CurveAxis::Days,
        vec![of_verdicts(
            "good of the judged",
            days,
            judging,
            |verdicts| {
                let share = verdicts.pass_rate()?;
                Some(CurvePoint {
                    value: share.value()?,
                    interval: Some(wilson(share)),
                    n: Some(share.of),
                    ..CurvePoint::default()
                })
            },
        )],
    )
}

/// Returns the line of a share of verdicts. A point covers its day and as many days before it as make 20 answered
/// turns, because a share of few turns varies by chance. Turns that wait for a verdict count for the last day.
fn of_verdicts(
    name: &str,
    days: &CountsByDay,
    judging: JudgingFigures,
    share: impl Fn(&Verdicts) -> Option<CurvePoint>,
) -> CurveLine {
    let mut points = Vec::new();
    let last = days.keys().last();
    for (day, counts) in days {
        let judging = if last == Some(day) {
            judging
        } else {
            judging.settled()
        };
        let mut sum = DailyCounts::default();
        for (_, before) in days.range(..=day).rev() {
            sum += *before;
            if verdicts(&sum, judging).answered() >= COMPLAINTS_IN {
                break;
            }
        }
        let of_sum = verdicts(&sum, judging);
        let has_own = verdicts(counts, judging).answered() > 0;
        if has_own && of_sum.answered() >= COMPLAINTS_IN {
            let at = begin_ms(*day);
            points.extend(share(&of_sum).map(|point| CurvePoint { at, ..point }));
        }
    }
    CurveLine::new(name.to_owned(), points)
}

fn prompts(days: &CountsByDay) -> Curve {
    Curve::new(
        "prompts",
        CurveUnit::Tokens,
        CurveAxis::Days,
        vec![
            line("all", days, |counts| amount(chat_tokens(counts).prompt)),
            line("from the cache", days, |counts| {
                amount(chat_tokens(counts).cached)
            }),
        ],
    )
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

#[cfg(test)]
mod tests {
    use metaclaw_chat::AgentId;
    use metaclaw_turns::TurnsConfig;

    use super::*;

    const DAY_MS: u64 = 24 * 3_600 * 1_000;
    const NOW_MS: u64 = 100 * DAY_MS + 5;
    const BY_MODEL: JudgingFigures = JudgingFigures {
        by_model: true,
        waiting: 0,
    };

    async fn curves(log: &TurnLog, agent: Option<&str>, days: u32) -> Vec<Curve> {
        let agent = agent.map(|agent| agent.parse().unwrap());
        let wanted = CurvesWanted { agent, days };
        let lessons = [(95, "Be brief."), (80, "too old")].map(|(day, name)| CurveMark {
            at: day * DAY_MS + 7,
            name: name.to_owned(),
        });
        by_day(Some(log), &wanted, &lessons, BY_MODEL, NOW_MS)
            .await
            .unwrap()
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
            good: 30,
            bad: 10,
            followed: 40,
            first_replies: 2,
            first_words: 90,
            tokens_in: 1_000,
            tokens_cached: 250,
            tokens_out: 10,
            ..DailyCounts::default()
        };
        count("main", 98, chat).await;
        count(
            "work",
            100,
            DailyCounts {
                unclear: 20,
                followed: 20,
                ..DailyCounts::default()
            },
        )
        .await;
        count("work", 90, chat).await;

        let all = curves(&log, None, 10).await;
        let [complaints, words, pass_rate, prompts] = &all[..] else {
            panic!("{all:?}")
        };
        let complained = values(complaints)[0].1.clone();
        assert_eq!(complained, [(98, 5.0), (100, 0.0)]);
        assert!(
            complaints.lines[0]
                .points
                .iter()
                .all(|point| point.interval.is_none())
        );
        let named = |name: &str, points| (name.to_owned(), points);
        assert_eq!(values(words), [named("words", vec![(98, 45.0)])]);
        let good = named("good of the judged", vec![(98, 0.75), (100, 0.0)]);
        assert_eq!(values(pass_rate), [good]);
        assert_eq!(pass_rate.lines[0].points[0].n, Some(40));
        assert!(pass_rate.lines[0].points[0].interval.is_some());
        assert_eq!(
            values(prompts),
            [
                named("all", vec![(98, 1_000.0)]),
                named("from the cache", vec![(98, 250.0)])
            ]
        );
        let marked = |curve: &Curve| {
            let marks = curve.marks.iter();
            let marks: Vec<_> = marks.map(|mark| (mark.at / DAY_MS, &*mark.name)).collect();
            marks == [(95, "Be brief.")]
        };
        assert_eq!(
            all.iter().map(marked).collect::<Vec<_>>(),
            [true, true, true, false]
        );
        assert!(
            all.iter()
                .all(|curve| curve.range == Some((91 * DAY_MS, 100 * DAY_MS)))
        );
        let of_work = curves(&log, Some("work"), 10).await;
        assert_eq!(values(&of_work[2])[0].1, [(100, 0.0)]);
        let today = curves(&log, None, 0).await;
        assert_eq!(values(&today[2])[0].1, [(100, 0.0)]);
        let ever = curves(&log, None, u32::MAX).await;
        assert_eq!(values(&ever[2])[0].1.len(), 3);
        log.close().await;
    }

    /// Of a day with three turns, one complaint would be seven of twenty.
    #[test]
    fn complaints_are_counted_over_twenty_turns_at_least() {
        let day = |n: i8, followed, bad| {
            let counts = DailyCounts {
                followed,
                bad,
                ..DailyCounts::default()
            };
            (jiff::civil::date(2026, 3, n), counts)
        };
        let days = [
            day(1, 12, 3),
            day(2, 10, 1),
            day(3, 0, 0),
            day(4, 3, 1),
            day(5, 25, 0),
        ];
        let days: CountsByDay = days.into_iter().collect();
        for (by_model, waiting, expected) in [
            (true, 0, &["3.64 of 22", "4.00 of 25", "0.00 of 25"][..]),
            // The last day has no point while verdicts wait. It has none if no model judges either, because it has no
            // plain complaint, and others may be missing.
            (true, 2, &["3.64 of 22", "4.00 of 25"]),
            (false, 0, &["3.64 of 22", "4.00 of 25"]),
        ] {
            let curve = complaints(&days, JudgingFigures { by_model, waiting });
            let points = curve.lines[0].points.iter();
            let told: Vec<_> = points
                .map(|point| format!("{:.2} of {}", point.value, point.n.unwrap()))
                .collect();
            assert_eq!(told, expected, "{by_model}, {waiting}");
            assert_eq!(curve.title.starts_with("Plain"), !by_model);
            let mut points = curve.lines[0].points.iter();
            assert!(points.all(|point| point.interval.is_none()));
        }
    }

    #[tokio::test]
    async fn without_a_log_the_curves_are_empty() {
        let wanted = CurvesWanted {
            agent: None,
            days: 7,
        };
        let curves = by_day(None, &wanted, &[], BY_MODEL, NOW_MS).await.unwrap();
        assert!(
            curves
                .iter()
                .all(|curve| curve.is_empty() && !curve.empty.is_empty())
        );
        let json = serde_json::to_string(&curves).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Curve>>(&json).unwrap(), curves);
    }
}
