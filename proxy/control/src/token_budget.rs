//! Limits the cost of model requests for learning to a budget, and keeps the count over a restart.

use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures_util::future::BoxFuture;
use metaclaw_chat::{AgentId, lock, now_ms};
use metaclaw_llm::{Budget, BudgetConfig, Spent};
use metaclaw_turns::{DailyCounts, LogError, TurnLog};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    figures::{CountedDays, Period, Share, date_of},
    home::write_private,
};

/// The interval at which the count is written; a kill loses at most this much.
const EVERY: Duration = Duration::from_secs(30);

/// The tokens that learning may spend each day, and those that it has spent.
#[derive(derive_more::Debug)]
#[debug("TokenBudget({:?})", self.spend(now_ms()))]
pub struct TokenBudget {
    budget: Mutex<Budget>,
    file: PathBuf,
    log: TurnLog,
}

/// What was spent today (UTC), in tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    #[serde(flatten)]
    pub spent: Spent,
    /// The most that learning may spend.
    pub limit: u64,
}

// === impl Spend ===

impl Spend {
    /// Returns the number of tokens that learning may still spend today.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent.learning)
    }

    /// Returns what learning used today as a share of what the chat used, or `None` if no chat was counted.
    pub fn learning_share(&self) -> Option<String> {
        let (n, of) = (self.spent.learning, self.spent.chat);
        Share { n, of }.text()
    }
}

// === impl TokenBudget ===

impl TokenBudget {
    /// Creates the budget. The number of tokens spent today is read from `file`, and is 0 if the file cannot be read.
    pub fn open(config: BudgetConfig, file: PathBuf, log: TurnLog) -> Self {
        let read = fs::read(&file).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        let spent = read.unwrap_or_else(|error: io::Error| {
            if error.kind() != io::ErrorKind::NotFound {
                warn!(file = %file.display(), %error, "what was spent today is not known: it counts as nothing");
            }
            Spent::default()
        });
        Self {
            budget: Mutex::new(Budget::new(config, spent)),
            file,
            log,
        }
    }

    /// Reads from the log what the chat has used on the day of `now_ms`, and what learning used before a kill. Returns
    /// the log's counts of that day.
    ///
    /// # Errors
    /// Returns the log's errors; then the earlier count stays.
    pub fn update(&self, now_ms: u64) -> BoxFuture<'_, Result<DailyCounts, LogError>> {
        Box::pin(async move {
            let today = Period::until(date_of(now_ms), 1);
            let today = CountedDays::read(&self.log, today, None).await?.sum();
            let mut budget = self.budget();
            let n_turns = today.turns + today.side_turns;
            budget.chat_is(now_ms, today.tokens_in + today.tokens_out, n_turns);
            budget.learning_is_at_least(now_ms, today.learning_tokens);
            Ok(today)
        })
    }

    /// Counts the tokens of an answered request, for today and permanently in the log.
    pub fn answered(&self, tokens: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let now_ms = now_ms();
            self.budget().answered(now_ms, tokens);
            let counts = DailyCounts {
                learning_tokens: tokens,
                ..DailyCounts::default()
            };
            // The judge and the evolver do not report which agent they work for.
            let everyone = AgentId::shared();
            if let Err(error) = self.log.count(&everyone, now_ms, counts).await {
                warn!(%error, tokens, "tokens of learning are missing in the counts of their day");
            }
        })
    }

    pub fn spend(&self, now_ms: u64) -> Spend {
        let (spent, limit) = self.budget().state(now_ms);
        Spend { spent, limit }
    }

    /// Returns whether another request may be sent today, as far as the chat is counted.
    pub fn allows(&self) -> bool {
        self.budget().allows(now_ms())
    }

    /// Returns whether another request may be sent today. If not, the chat is counted once more.
    pub async fn may_ask(&self) -> bool {
        if !self.allows()
            && let Err(error) = self.update(now_ms()).await
        {
            warn!(%error, "what the chat used today is not known");
        }
        self.allows()
    }

    /// Counts a question that was not answered.
    pub fn failed(&self) {
        self.budget().failed(now_ms());
    }

    fn save(&self) -> io::Result<()> {
        let bytes = serde_json::to_vec(&self.spend(now_ms()).spent)?;
        write_private(&self.file, &bytes)
    }

    /// A panic elsewhere leaves usable counts, because each change is one call.
    fn budget(&self) -> MutexGuard<'_, Budget> {
        lock(&self.budget)
    }
}

/// Updates the chat's use and writes down what was spent, until `ending`.
pub fn run(budget: Arc<TokenBudget>, ending: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let work = async {
            let mut saved = budget.spend(now_ms());
            loop {
                tokio::time::sleep(EVERY).await;
                match budget.update(now_ms()).await {
                    Ok(_) => {}
                    Err(LogError::Closed) => return,
                    Err(error) => warn!(%error, "what the chat used today is not known"),
                }
                let spend = budget.spend(now_ms());
                if spend != saved {
                    save(&budget).await;
                    saved = spend;
                }
            }
        };
        ending.run_until_cancelled(work).await;
        save(&budget).await;
    })
}

/// This runs on a blocking thread, because the file system may be slow.
async fn save(budget: &Arc<TokenBudget>) {
    let budget = Arc::clone(budget);
    let saved = tokio::task::spawn_blocking(move || budget.save()).await;
    match saved {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(%error, "what was spent today was not written down"),
        Err(error) => warn!(%error, "writing down what was spent panicked"),
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_turns::TurnsConfig;

    use super::*;

    fn log(folder: &tempfile::TempDir) -> TurnLog {
        TurnLog::open(&folder.path().join("turns"), &TurnsConfig::default()).unwrap()
    }

    fn budget(folder: &tempfile::TempDir, tokens_per_day: u64, log: &TurnLog) -> Arc<TokenBudget> {
        let config = BudgetConfig {
            share: 0.05,
            tokens_per_day,
            ..BudgetConfig::default()
        };
        let file = folder.path().join("spend.json");
        Arc::new(TokenBudget::open(config, file, log.clone()))
    }

    #[tokio::test]
    async fn what_was_spent_is_read_again_and_a_damaged_file_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        let before = budget(&folder, 100, &log);
        before.budget().answered(now_ms(), 60);
        before.budget().chat_is(now_ms(), 10_000, 1);
        before.save().unwrap();
        let after = budget(&folder, 100, &log);
        assert_eq!(after.spend(now_ms()), before.spend(now_ms()));
        assert_eq!(after.spend(now_ms()).limit, 500);
        fs::write(&after.file, "{").unwrap();
        assert_eq!(budget(&folder, 100, &log).spend(now_ms()).spent.learning, 0);
        log.close().await;
    }

    #[tokio::test]
    async fn what_a_question_used_is_counted_once_and_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        let before = budget(&folder, 100, &log);
        before.answered(40).await;
        before.answered(2).await;
        before.update(now_ms()).await.unwrap();
        assert_eq!(before.spend(now_ms()).spent.learning, 42);
        let days = log.statistics(0).await.unwrap();
        let counted: u64 = days.iter().map(|day| day.counts.learning_tokens).sum();
        assert_eq!(counted, 42);
        // After a kill, the file does not contain it.
        let after = budget(&folder, 100, &log);
        assert_eq!(after.spend(now_ms()).spent.learning, 0);
        after.update(now_ms()).await.unwrap();
        assert_eq!(after.spend(now_ms()).spent.learning, 42);
        log.close().await;
    }
}
