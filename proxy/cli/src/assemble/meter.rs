//! What was asked of a training server that takes money: counted in tokens, kept over a restart, told with the prices that
//! the owner wrote down.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use metaclaw_chat::now_ms;
use metaclaw_learner::LearnerConfig;
use metaclaw_settings::write_private;
use metaclaw_settings::{Backend, Loaded};
use metaclaw_trainer_api::tinker::client::{TinkerTokens, TinkerUsage};
use metaclaw_turns::{DailyCounts, LogError, TurnLog, day_of};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{cloud::CloudSide, plan::Plan};

/// How often the counts are written down; a kill forgets that much.
const EVERY: Duration = Duration::from_secs(30);
const MILLION: f64 = 1e6;
/// Days that an estimate looks back.
const DAYS: u32 = 7;

/// Tokens of a day of UTC, and of all days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Counted {
    /// Days since 1970.
    day: u32,
    today: TinkerTokens,
    total: TinkerTokens,
}

/// What a million tokens cost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prices {
    train: f64,
    read: f64,
    sample: f64,
    currency: String,
}

/// What was used of the training server, for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CloudSpend {
    pub today: TinkerTokens,
    pub total: TinkerTokens,
    /// What today cost, as in `1.25 USD`; none without prices.
    pub cost_today: Option<String>,
    pub cost_total: Option<String>,
}

/// Counts on from what was written down.
#[derive(Debug)]
pub(crate) struct Meter {
    usage: Arc<TinkerUsage>,
    file: PathBuf,
    prices: Option<Prices>,
    /// What was counted, and up to where of `usage`.
    counted: Mutex<(Counted, TinkerTokens)>,
}

// === impl Prices ===

impl Prices {
    /// Those of the settings; none where one of them is missing.
    pub(crate) fn of(backend: &Backend) -> Option<Self> {
        Some(Self {
            train: backend.price_train?,
            read: backend.price_read?,
            sample: backend.price_sample?,
            currency: backend.price_currency.clone(),
        })
    }

    /// What so many tokens cost.
    pub(crate) fn cost(&self, tokens: TinkerTokens) -> String {
        let of = |n: u64, price: f64| n as f64 / MILLION * price;
        let cost = of(tokens.trained, self.train)
            + of(tokens.read, self.read)
            + of(tokens.sampled, self.sample);
        format!("{cost:.2} {}", self.currency)
    }
}

// === impl Meter ===

impl Meter {
    /// Goes on from what stands in `file`. What cannot be read there counts as nothing.
    pub(crate) fn open(usage: Arc<TinkerUsage>, file: PathBuf, prices: Option<Prices>) -> Self {
        let counted = read(&file).unwrap_or_default();
        let counted = Mutex::new((counted, usage.now()));
        Self {
            usage,
            file,
            prices,
            counted,
        }
    }

    /// What was used so far.
    pub(crate) fn spend(&self, now_ms: u64) -> CloudSpend {
        in_words(self.count(now_ms), self.prices.as_ref())
    }

    fn count(&self, now_ms: u64) -> Counted {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.usage.now();
        let more = now - counted.1;
        let day = day_of(now_ms);
        if counted.0.day != day {
            (counted.0.day, counted.0.today) = (day, TinkerTokens::default());
        }
        counted.0.today += more;
        counted.0.total += more;
        counted.1 = now;
        counted.0
    }

    fn save(&self) -> io::Result<()> {
        write_private(&self.file, &serde_json::to_vec(&self.count(now_ms()))?)
    }

    /// Writes the counts down until `ending`, and once more.
    pub(super) async fn run(self: Arc<Self>, ending: CancellationToken) {
        while ending
            .run_until_cancelled(tokio::time::sleep(EVERY))
            .await
            .is_some()
        {
            self.try_save();
        }
        self.try_save();
    }

    fn try_save(&self) {
        if let Err(error) = self.save() {
            warn!(%error, file = %self.file.display(), "what the training server was asked for is not written down");
        }
    }
}

fn read(file: &Path) -> Option<Counted> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

fn in_words(counted: Counted, prices: Option<&Prices>) -> CloudSpend {
    CloudSpend {
        today: counted.today,
        total: counted.total,
        cost_today: prices.map(|it| it.cost(counted.today)),
        cost_total: prices.map(|it| it.cost(counted.total)),
    }
}

/// Reads the spend from its file, for a proxy that may not run. None if nothing was used.
pub(crate) fn kept(file: &Path, backend: &Backend, now_ms: u64) -> Option<CloudSpend> {
    let mut counted = read(file)?;
    if counted.day != day_of(now_ms) {
        counted.today = TinkerTokens::default();
    }
    Some(in_words(counted, Prices::of(backend).as_ref()))
}

/// What counts the tokens of a training server that takes money; none where there is none.
pub(super) fn of(plan: &Plan, cloud: Option<&CloudSide>) -> Option<Arc<Meter>> {
    let usage = Arc::clone(&cloud?.usage);
    let prices = Prices::of(&plan.loaded.config.rl);
    let meter = Meter::open(usage, plan.home.cloud_spend(), prices);
    Some(Arc::new(meter))
}

/// The estimate of what a day costs, which the start prints before the server is asked for anything.
pub(super) async fn told(plan: &Plan, meter: Option<&Arc<Meter>>, log: &TurnLog) -> Option<String> {
    meter?;
    of_a_day(&plan.loaded, log).await
}

/// About what a day will take at the training server of these settings; none where the log has no last days.
pub(crate) async fn of_a_day(loaded: &Loaded, log: &TurnLog) -> Option<String> {
    let prices = Prices::of(&loaded.config.rl);
    let learner = &loaded.config.learner;
    let told = estimate(log, learner, prices.as_ref(), now_ms()).await;
    told.ok().flatten()
}

/// About what a day will take, by what the chats of the last days were, in words; none where there were none.
///
/// Every turn is taken for one that is learned from: its prompt is read for the chat and by the teacher for each draw, each
/// draw is scored after three prompts, and what is taught is trained on in each epoch. What the gate asks for each adapter
/// hangs on the number of steps, and is left out.
///
/// # Errors
/// The log's.
async fn estimate(
    log: &TurnLog,
    learner: &LearnerConfig,
    prices: Option<&Prices>,
    now_ms: u64,
) -> Result<Option<String>, LogError> {
    let today = day_of(now_ms);
    let first = today.saturating_sub(DAYS);
    let mut counts = DailyCounts::default();
    let counted = log.statistics(first).await?;
    for it in counted {
        counts += it.counts;
    }
    let (read, sampled) = (counts.tokens_in, counts.tokens_out);
    if read + sampled == 0 {
        return Ok(None);
    }
    let n_days = u64::from(DAYS);
    let draws = u64::from(learner.rl.draws);
    let epochs = learner.rl.epochs.unwrap_or(2);
    let tokens = TinkerTokens {
        read: (read + draws * read + 3 * draws * (read + sampled)) / n_days,
        sampled: (sampled + draws * sampled) / n_days,
        trained: epochs * (read + sampled) / n_days,
    };
    let cost = prices.map_or_else(
        || {
            "its price is not known without rl.price_train, rl.price_read and rl.price_sample"
                .to_owned()
        },
        |prices| format!("about {}", prices.cost(tokens)),
    );
    Ok(Some(format!(
        "by the chats of the last {DAYS} days, an average day at the training server takes about {} tokens read, {} sampled and {} trained ({cost}), and the tests of each new adapter come on top",
        tokens.read, tokens.sampled, tokens.trained
    )))
}

// === impl CloudSpend ===

impl CloudSpend {
    pub(crate) fn line(&self) -> String {
        let of = |tokens: TinkerTokens, cost: &Option<String>| {
            let cost = cost.as_ref();
            let cost = cost.map_or_else(String::new, |it| format!(", about {it}"));
            format!(
                "{} trained, {} read, {} sampled{cost}",
                tokens.trained, tokens.read, tokens.sampled
            )
        };
        let prices = match &self.cost_today {
            Some(_) => "",
            None => " (no prices: set rl.price_train, rl.price_read and rl.price_sample)",
        };
        format!(
            "tokens today {}; in all {}{prices}",
            of(self.today, &self.cost_today),
            of(self.total, &self.cost_total)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_over_a_restart_and_a_day_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tinker.json");
        let tokens = |trained| TinkerTokens {
            trained,
            read: 2_000_000,
            sampled: 0,
        };
        let before = Counted {
            day: day_of(0),
            today: tokens(1_000_000),
            total: tokens(3_000_000),
        };
        fs::write(&file, serde_json::to_vec(&before).unwrap()).unwrap();
        let backend = Backend {
            price_train: Some(1.5),
            price_read: Some(0.25),
            price_sample: Some(4.0),
            ..Backend::default()
        };
        let meter = Meter::open(Arc::default(), file.clone(), Prices::of(&backend));
        insta::assert_snapshot!(meter.spend(0).line(), @"tokens today 1000000 trained, 2000000 read, 0 sampled, about 2.00 USD; in all 3000000 trained, 2000000 read, 0 sampled, about 5.00 USD");
        let next_day = meter.spend(24 * 3_600_000);
        assert_eq!(next_day.today, TinkerTokens::default());
        assert_eq!(next_day.total, tokens(3_000_000));
        let unpriced = kept(&file, &Backend::default(), 0).unwrap();
        assert!(unpriced.line().contains("no prices"), "{unpriced:?}");
    }
}
