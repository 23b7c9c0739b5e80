//! What asking models for learning costs, within a budget, and kept over a restart.

use std::{
    fmt, fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use metaclaw_chat::{AgentId, Message, Usage, now_ms};
use metaclaw_learner::{Ask, AskFailed};
use metaclaw_llm::{AskParams, Budget, BudgetConfig, ChatClient, Spent};
use metaclaw_settings::write_private;
use metaclaw_turns::{DailyCounts, LogError, TurnLog, day_of};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// How often what was spent is written down; a kill forgets that much.
const EVERY: Duration = Duration::from_secs(30);
/// Letters of a token, about, where a server does not say what it counted.
const LETTERS: usize = 4;

pub(crate) struct Purse {
    budget: Mutex<Budget>,
    file: PathBuf,
    /// Counts by day what was spent, for longer than the day.
    log: TurnLog,
}

/// What was spent today (UTC), in tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Spend {
    #[serde(flatten)]
    spent: Spent,
    /// The most that learning may spend.
    pub(crate) limit: u64,
}

/// A model that is asked within the budget.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) client: ChatClient,
    pub(super) params: AskParams,
    pub(super) purse: Arc<Purse>,
}

// === impl Spend ===

impl Spend {
    /// Tokens that learning may still spend today.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent.learning)
    }
}

// === impl Purse ===

impl Purse {
    /// The purse whose spending stands in `file`. What cannot be read there counts as nothing.
    pub(crate) fn open(config: BudgetConfig, file: PathBuf, log: TurnLog) -> Self {
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

    /// Looks up what the chat has used on the day of `now_ms`, and learning before a kill: the log counts both.
    ///
    /// # Errors
    /// The log's; what was known stands then.
    pub(crate) async fn look(&self, now_ms: u64) -> Result<(), LogError> {
        let day = day_of(now_ms);
        let mut today = DailyCounts::default();
        let counted = self.log.statistics(day).await?.into_iter();
        counted
            .filter(|it| it.day == day)
            .for_each(|it| today += it.counts);
        let mut budget = self.budget();
        budget.chat_is(now_ms, today.tokens_in + today.tokens_out);
        budget.learning_is_at_least(now_ms, today.learning_tokens);
        Ok(())
    }

    /// Counts tokens that an answered question used: today, and in the log for good.
    async fn answered(&self, tokens: u64) {
        let now_ms = now_ms();
        self.budget().answered(now_ms, tokens);
        let counts = DailyCounts {
            learning_tokens: tokens,
            ..DailyCounts::default()
        };
        // Judge and evolver do not say on whose behalf they ask.
        let everyone = AgentId::shared();
        if let Err(error) = self.log.count(&everyone, now_ms, counts).await {
            warn!(%error, tokens, "tokens of learning are missing in the counts of their day");
        }
    }

    pub(crate) fn spend(&self, now_ms: u64) -> Spend {
        let (spent, limit) = self.budget().state(now_ms);
        Spend { spent, limit }
    }

    /// Whether another question may be asked today.
    pub(super) fn allows(&self) -> bool {
        self.budget().allows(now_ms())
    }

    fn save(&self) -> io::Result<()> {
        let bytes = serde_json::to_vec(&self.spend(now_ms()).spent)?;
        write_private(&self.file, &bytes)
    }

    /// A panic elsewhere leaves counts usable: each change is one call.
    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Purse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Purse")
            .field("spend", &self.spend(now_ms()))
            .finish_non_exhaustive()
    }
}

/// Looks up what the chat used, and writes down what was spent, until `ending`.
pub(super) async fn run(purse: Arc<Purse>, ending: CancellationToken) {
    let work = async {
        let mut saved = purse.spend(now_ms());
        loop {
            tokio::time::sleep(EVERY).await;
            match purse.look(now_ms()).await {
                Ok(()) => {}
                Err(LogError::Closed) => return,
                Err(error) => warn!(%error, "what the chat used today is not known"),
            }
            let spend = purse.spend(now_ms());
            if spend != saved {
                save(&purse).await;
                saved = spend;
            }
        }
    };
    ending.run_until_cancelled(work).await;
    save(&purse).await;
}

/// The file system may be slow.
async fn save(purse: &Arc<Purse>) {
    let purse = Arc::clone(purse);
    let saved = tokio::task::spawn_blocking(move || purse.save()).await;
    match saved {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(%error, "what was spent today was not written down"),
        Err(error) => warn!(%error, "writing down what was spent panicked"),
    }
}

fn tokens(usage: &Usage) -> u64 {
    usage.prompt_tokens.saturating_add(usage.completion_tokens)
}

impl Ask for Model {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        Box::pin(async move {
            if !self.purse.budget().allows(now_ms()) {
                return Err(AskFailed {
                    why: format!(
                        "today's budget for learning is spent ({} tokens, budget.*); it begins anew at midnight UTC",
                        self.purse.spend(now_ms()).limit
                    ),
                });
            }
            let answer = self.client.ask(messages, self.params.clone()).await;
            let answer = answer.map_err(|error| {
                self.purse.budget().failed(now_ms());
                AskFailed {
                    why: error.to_string(),
                }
            })?;
            let counted = answer.usage.as_ref().map(tokens);
            let used = counted.unwrap_or_else(|| about(messages, &answer.text));
            self.purse.answered(used).await;
            Ok(answer.text)
        })
    }
}

/// Tokens of a question and its answer, by their length.
fn about(messages: &[Message], answer: &str) -> u64 {
    let asked: usize = messages.iter().map(|it| it.text().len()).sum();
    u64::try_from((asked + answer.len()) / LETTERS).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use metaclaw_llm::{LlmConfig, http_client};
    use metaclaw_turns::TurnsConfig;

    use super::*;

    fn log(folder: &tempfile::TempDir) -> TurnLog {
        TurnLog::open(&folder.path().join("turns"), &TurnsConfig::default()).unwrap()
    }

    fn purse(folder: &tempfile::TempDir, tokens_per_day: u64, log: &TurnLog) -> Arc<Purse> {
        let config = BudgetConfig {
            share: 0.05,
            tokens_per_day,
        };
        let file = folder.path().join("spend.json");
        Arc::new(Purse::open(config, file, log.clone()))
    }

    #[tokio::test]
    async fn what_was_spent_is_read_again_and_a_damaged_file_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        let before = purse(&folder, 100, &log);
        before.budget().answered(now_ms(), 60);
        before.budget().chat_is(now_ms(), 10_000);
        before.save().unwrap();
        let after = purse(&folder, 100, &log);
        assert_eq!(after.spend(now_ms()), before.spend(now_ms()));
        assert_eq!(after.spend(now_ms()).limit, 500);
        fs::write(&after.file, "{").unwrap();
        assert_eq!(purse(&folder, 100, &log).spend(now_ms()).spent.learning, 0);
        log.close().await;
    }

    #[tokio::test]
    async fn what_a_question_used_is_counted_once_and_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        let before = purse(&folder, 100, &log);
        before.answered(40).await;
        before.answered(2).await;
        before.look(now_ms()).await.unwrap();
        assert_eq!(before.spend(now_ms()).spent.learning, 42);
        let days = log.statistics(0).await.unwrap();
        let counted: u64 = days.iter().map(|it| it.counts.learning_tokens).sum();
        assert_eq!(counted, 42);
        // After a kill the file knows nothing of it.
        let after = purse(&folder, 100, &log);
        assert_eq!(after.spend(now_ms()).spent.learning, 0);
        after.look(now_ms()).await.unwrap();
        assert_eq!(after.spend(now_ms()).spent.learning, 42);
        log.close().await;
    }

    #[tokio::test]
    async fn nobody_is_asked_once_it_is_spent() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(&folder);
        let purse = purse(&folder, 0, &log);
        let config = LlmConfig {
            url: "http://127.0.0.1:9/v1".to_owned(),
            ..LlmConfig::default()
        };
        let http = http_client(&crate::roots::load()).unwrap();
        let model = Model {
            client: ChatClient::new(config, http).unwrap(),
            params: AskParams::default(),
            purse: Arc::clone(&purse),
        };
        let error = model.ask(&[Message::user("Hello?")]).await.unwrap_err();
        assert!(
            error.why.contains("budget for learning is spent (0 tokens"),
            "{error}"
        );
        assert_eq!(purse.spend(now_ms()).spent.n_failed, 0);
        log.close().await;
    }
}
