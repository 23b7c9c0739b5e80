//! What was asked of a training server that takes money: counted in tokens, kept over a restart, told with the prices that
//! the owner wrote down.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use metaclaw_chat::{lock, now_ms};
use metaclaw_trainer_api::tinker::client::{TinkerTokens, TinkerUsage};
use metaclaw_turns::day_of;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::home::write_private;

/// How often the counts are written down; a kill forgets that much.
const EVERY: Duration = Duration::from_secs(30);
const MILLION: f64 = 1e6;

/// Tokens of a day of UTC, and of all days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CountedTokens {
    /// Days since 1970.
    day: u32,
    today: TinkerTokens,
    total: TinkerTokens,
}

/// What a million tokens cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Prices {
    pub train: f64,
    pub read: f64,
    pub sample: f64,
    /// As in `USD`.
    pub currency: String,
}

/// What was used of the training server, for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CloudSpend {
    pub today: TinkerTokens,
    pub total: TinkerTokens,
    /// What today cost, as in `1.25 USD`; none without prices.
    pub cost_today: Option<String>,
    pub cost_total: Option<String>,
}

/// Counts on from what was written down.
#[derive(Debug)]
pub struct Meter {
    usage: Arc<TinkerUsage>,
    file: PathBuf,
    prices: Option<Prices>,
    /// What was counted, and up to where of `usage`.
    counted: Mutex<(CountedTokens, TinkerTokens)>,
}

// === impl Prices ===

impl Prices {
    /// What so many tokens cost.
    pub fn cost(&self, tokens: TinkerTokens) -> String {
        let of = |n: u64, price: f64| n as f64 / MILLION * price;
        let cost = of(tokens.trained, self.train)
            + of(tokens.read, self.read)
            + of(tokens.sampled, self.sample);
        format!("{cost:.2} {}", self.currency)
    }
}

// === impl Meter ===

impl Meter {
    /// Continues from the counts in `file`. What cannot be read there counts as nothing.
    pub fn open(usage: Arc<TinkerUsage>, file: PathBuf, prices: Option<Prices>) -> Self {
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
    pub fn spend(&self, now_ms: u64) -> CloudSpend {
        in_words(self.count(now_ms), self.prices.as_ref())
    }

    fn count(&self, now_ms: u64) -> CountedTokens {
        let mut counted = lock(&self.counted);
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
    pub fn run(self: Arc<Self>, ending: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while ending
                .run_until_cancelled(tokio::time::sleep(EVERY))
                .await
                .is_some()
            {
                self.try_save();
            }
            self.try_save();
        })
    }

    fn try_save(&self) {
        if let Err(error) = self.save() {
            warn!(%error, file = %self.file.display(), "what the training server was asked for is not written down");
        }
    }
}

fn read(file: &Path) -> Option<CountedTokens> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

fn in_words(counted: CountedTokens, prices: Option<&Prices>) -> CloudSpend {
    CloudSpend {
        today: counted.today,
        total: counted.total,
        cost_today: prices.map(|price| price.cost(counted.today)),
        cost_total: prices.map(|price| price.cost(counted.total)),
    }
}

/// Reads the spend from its file, for a proxy that may not run. None if nothing was used.
pub fn kept(file: &Path, prices: Option<&Prices>, now_ms: u64) -> Option<CloudSpend> {
    let mut counted = read(file)?;
    if counted.day != day_of(now_ms) {
        counted.today = TinkerTokens::default();
    }
    Some(in_words(counted, prices))
}

// === impl CloudSpend ===

impl CloudSpend {
    pub fn line(&self) -> String {
        let of = |tokens: TinkerTokens, cost: &Option<String>| {
            let cost = cost.as_ref();
            let cost = cost.map_or_else(String::new, |one| format!(", about {one}"));
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
        let before = CountedTokens {
            day: day_of(0),
            today: tokens(1_000_000),
            total: tokens(3_000_000),
        };
        fs::write(&file, serde_json::to_vec(&before).unwrap()).unwrap();
        let prices = Prices {
            train: 1.5,
            read: 0.25,
            sample: 4.0,
            currency: "USD".to_owned(),
        };
        let meter = Meter::open(Arc::default(), file.clone(), Some(prices));
        insta::assert_snapshot!(meter.spend(0).line(), @"tokens today 1000000 trained, 2000000 read, 0 sampled, about 2.00 USD; in all 3000000 trained, 2000000 read, 0 sampled, about 5.00 USD");
        let next_day = meter.spend(24 * 3_600_000);
        assert_eq!(next_day.today, TinkerTokens::default());
        assert_eq!(next_day.total, tokens(3_000_000));
        let unpriced = kept(&file, None, 0).unwrap();
        assert!(unpriced.line().contains("no prices"), "{unpriced:?}");
    }
}
