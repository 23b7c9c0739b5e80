//! Whether an adapter finds what its owner accepted likelier than what she did not, as the base model does.
//!
//! Of each pair both replies follow the same prompt, of a session that was held out. An adapter is declined only where it is
//! nearly sure that it prefers what was accepted less than the base does: pairs are few and replies differ in much.

use std::collections::BTreeMap;

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::{BackendError, RunId};

use super::{
    measures::mean,
    report::{GateLimit, GateTest},
};
use crate::policy::{By, PolicyModel, ScoredPair};

/// Fewer pairs tell nothing.
const FEWEST: usize = 12;
/// Ids of a reply that are scored: which of two one would rather give shows from their first words on.
const SCORED: usize = 32;
/// In nat a token; what is lost beyond it is too much.
const LEAST: f64 = -0.05;
/// The normal distribution's 90 % point.
const Z: f64 = 1.281_551_6;

/// Two replies to one prompt, as ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreferencePair {
    /// The turn that failed.
    pub(crate) id: TurnId,
    pub(crate) prompt: Vec<u32>,
    pub(crate) accepted: Vec<u32>,
    pub(crate) failed: Vec<u32>,
}

/// By how much a model prefers what was accepted, in nat a token, by pair.
pub(super) type Margins = BTreeMap<TurnId, f64>;

/// How much more, or less, an adapter prefers what was accepted than the base model does, whose margins are kept in `base`: of
/// these pairs alone.
pub(super) async fn test(
    policy: &PolicyModel,
    run: &RunId,
    base: &mut Margins,
    pairs: &[PreferencePair],
) -> Result<GateTest, BackendError> {
    let n = pairs.len();
    if n < FEWEST {
        let why = format!(
            "of turns that were held out, and whose second reply was liked, there are {n}, and {FEWEST} are needed"
        );
        return Ok(GateTest::skipped("preference", &why));
    }
    base.retain(|id, _| pairs.iter().any(|pair| pair.id == *id));
    let new = pairs.iter().filter(|pair| !base.contains_key(&pair.id));
    let new = margins(policy, By::Base, new).await?;
    base.extend(new);
    let own = margins(policy, By::Run(run), pairs.iter()).await?;
    let gained = own.iter().filter_map(|(id, own)| Some(own - base.get(id)?));
    let unit = format!(
        "nat a token at most for what was accepted, beside the base, by 90 % and {n} pairs"
    );
    let limit = GateLimit::at_least(LEAST);
    let upper = upper(&gained.collect::<Vec<f64>>());
    Ok(GateTest::of("preference", upper, limit, &unit))
}

async fn margins<'a>(
    policy: &PolicyModel,
    by: By<'_>,
    pairs: impl Iterator<Item = &'a PreferencePair> + Clone,
) -> Result<Margins, BackendError> {
    let replies = pairs.clone().flat_map(|pair| {
        let prompt = &pair.prompt;
        [&pair.accepted, &pair.failed].map(|reply| ScoredPair { prompt, reply })
    });
    let replies: Vec<ScoredPair<'_>> = replies.collect();
    let scores = policy.score(by, &replies, SCORED).await?;
    let margins = scores.chunks_exact(2).map(|both| both[0] - both[1]);
    Ok(pairs.map(|pair| pair.id).zip(margins).collect())
}

/// The mean of what lies behind some values is below this by 90 %: Student's one-sided bound.
pub(super) fn upper(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let middle = mean(values);
    let squares = values.iter().map(|value| (value - middle).powi(2));
    let deviation = (squares.sum::<f64>() / (n - 1.0)).sqrt();
    middle + t(n - 1.0) * deviation / n.sqrt()
}

/// The 90 % point of Student's distribution, by the first terms of Cornish and Fisher; from 11 degrees of freedom on right to
/// three digits.
fn t(freedom: f64) -> f64 {
    let first = (Z.powi(3) + Z) / (4.0 * freedom);
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * freedom.powi(2));
    Z + first + second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_students() {
        for (freedom, is) in [(11.0, 1.3634), (20.0, 1.3253), (63.0, 1.2951)] {
            assert!((t(freedom) - is).abs() < 5e-4, "{freedom}: {}", t(freedom));
        }
        // Mean 0, deviation 1.0445 of 12: 1.3634 · 1.0445 / √12.
        let values = [1.0, -1.0].repeat(6);
        assert!((upper(&values) - 0.4111).abs() < 1e-3, "{}", upper(&values));
        assert!((upper(&[0.2; 12]) - 0.2).abs() < 1e-9);
    }
}
