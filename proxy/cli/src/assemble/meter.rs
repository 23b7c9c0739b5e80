//! What is used of a training server that takes money: what counts it, and what a day is likely to take.

use metaclaw_chat::now_ms;
use metaclaw_control::cloud_spend::Prices;
use metaclaw_learner::LearnerConfig;
use metaclaw_settings::{Backend, Config};
use metaclaw_trainer_api::tinker::client::TinkerTokens;
use metaclaw_turns::{DailyCounts, LogError, TurnLog, day_of};

const DAYS: u32 = 7;

pub(crate) fn prices(backend: &Backend) -> Option<Prices> {
    Some(Prices {
        train: backend.price_train?,
        read: backend.price_read?,
        sample: backend.price_sample?,
        currency: backend.price_currency.clone(),
    })
}

pub(crate) async fn estimate_day(config: &Config, log: &TurnLog) -> Option<String> {
    let prices = prices(&config.rl);
    let day = estimate(log, &config.learner, prices.as_ref(), now_ms()).await;
    day.ok().flatten()
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
    for day in counted {
        counts += day.counts;
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
