//! The plan of a training from a data set: its rows and their order, the learning rate, the loss, and the names of its
//! checkpoints.
//!
//! The rows are shuffled by Fisher and Yates's method with the numbers of SplitMix64 (Steele, Lea, Flood 2014), so that
//! another program can make the same batches from the same seed.
//!
//! The losses that a training from a data set minimises.
//!
//! In direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290), the loss of a pair is -log sigmoid(m). m
//! is beta times the difference between how much the chosen and the rejected reply have gained over the reference. The
//! gradient in the log-probability of each id of the chosen reply is -beta sigmoid(-m), and the opposite for the
//! rejected one. So a weighted `cross_entropy` with these weights, computed at the current weights, has the same
//! gradient.

use metaclaw_trainer_api::CheckpointName;

use super::{
    rows::{SftError, TokenExample, TokenRow},
    types::{HeldOutRows, RateSchedule, SftPlanned, SftWanted},
};
use crate::{
    config::RlConfig,
    formulas::{rate_for_size, warmed_up},
    lineage::Shape,
};

/// Of the rate of chats: a pair says which of two replies is better, and not what to say.
const PAIR_RATE: f64 = 0.1;

/// Everything that is trained. The same plan gives the same checkpoints.
#[derive(Debug, Clone)]
pub(super) struct SftPlan {
    pub(super) objective: Objective,
    pub(super) rows: Vec<TokenRow>,
    pub(super) held_out: Vec<TokenRow>,
    pub(super) epochs: u64,
    pub(super) batch_size: usize,
    learning_rate: Option<f64>,
    schedule: RateSchedule,
    seed: u64,
    pub(super) data: String,
    pub(super) shape: Shape,
    pub(super) rl: RlConfig,
}

#[derive(Debug)]
pub(super) struct DataSet {
    pub(super) objective: Objective,
    pub(super) rows: Vec<TokenRow>,
    pub(super) held_out: Vec<TokenRow>,
    pub(super) hash: String,
}

// === impl SftPlan ===

impl SftPlan {
    /// Plans the training of an adapter of this shape.
    ///
    /// # Errors
    /// Returns [`SftError::Few`] if no row is left to train on.
    pub(super) fn new(
        wanted: &SftWanted,
        data: DataSet,
        shape: Shape,
        rl: RlConfig,
    ) -> Result<Self, SftError> {
        let DataSet {
            objective,
            mut rows,
            mut held_out,
            hash,
        } = data;
        if let HeldOutRows::Share(share) = wanted.held_out
            && share > 0.0
        {
            let n = rows.len();
            if n < 2 {
                return Err(SftError::Few { n });
            }
            let order = shuffled(n, wanted.seed, 0);
            let mut is_held_out = vec![false; n];
            for at in &order[..n_held_out(n, share)] {
                is_held_out[*at] = true;
            }
            let each = rows.into_iter().zip(is_held_out);
            let (held, kept): (Vec<_>, Vec<_>) = each.partition(|(_, held)| *held);
            rows = kept.into_iter().map(|(row, _)| row).collect();
            held_out = held.into_iter().map(|(row, _)| row).collect();
        }
        Ok(Self {
            objective,
            rows,
            held_out,
            epochs: wanted.epochs,
            batch_size: wanted.batch_size.unwrap_or(rl.batch_size),
            learning_rate: wanted.learning_rate,
            schedule: wanted.schedule,
            seed: wanted.seed,
            data: hash,
            shape,
            rl,
        })
    }

    /// The batches of an epoch, counted from 1, as places in `rows`.
    pub(super) fn batches(&self, epoch: u64) -> Vec<Vec<usize>> {
        let order = shuffled(self.rows.len(), self.seed, epoch);
        order.chunks(self.batch_size).map(<[_]>::to_vec).collect()
    }

    pub(super) fn steps_per_epoch(&self) -> u64 {
        self.rows.len().div_ceil(self.batch_size) as u64
    }

    pub(super) fn n_steps(&self) -> u64 {
        self.epochs * self.steps_per_epoch()
    }

    /// The highest rate, for a model of that many parameters; the careful end where nobody tells the number.
    pub(super) fn full_rate(&self, n_params: Option<f64>) -> f64 {
        let by_size = || rate_for_size(n_params.unwrap_or(f64::INFINITY));
        let given = self.learning_rate;
        given.unwrap_or_else(|| self.rl.learning_rate.unwrap_or_else(by_size) * self.rate_share())
    }

    pub(super) fn rate(&self, step: u64, n_params: Option<f64>) -> f64 {
        let (warmup, n) = (self.rl.warmup_steps, self.n_steps());
        let rate = warmed_up(self.full_rate(n_params), step, warmup);
        match self.schedule {
            RateSchedule::Linear if step > warmup => {
                // The step after the last would have none.
                let left = (n + 1).saturating_sub(step) as f64;
                rate * left / (n + 1).saturating_sub(warmup.max(1)) as f64
            }
            RateSchedule::Linear | RateSchedule::Constant => rate,
        }
    }

    fn rate_share(&self) -> f64 {
        match self.objective {
            Objective::CrossEntropy => 1.0,
            Objective::Preference { .. } => PAIR_RATE,
        }
    }

    pub(super) fn hash(&self, agent: &str, from: Option<&CheckpointName>) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &str| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        };
        add(agent);
        add(&self.data);
        add(from.map_or("", CheckpointName::as_str));
        add(&format!("{:?}", self.objective));
        add(&format!("{} {}", self.rows.len(), self.held_out.len()));
        add(&format!(
            "{} {} {}",
            self.epochs, self.batch_size, self.seed
        ));
        add(&format!("{:?} {:?}", self.learning_rate, self.schedule));
        // Of numbers, texts and lists, which JSON can hold.
        add(&serde_json::to_string(&self.shape).unwrap_or_default());
        let rl = &self.rl;
        add(&format!("{:?} {}", rl.learning_rate, rl.warmup_steps));
        let adam = [rl.beta1, rl.beta2, rl.eps, rl.weight_decay, rl.clip_norm];
        add(&format!("{adam:?}"));
        hasher.finalize().to_hex().to_string()
    }

    pub(super) fn planned(&self, wanted: &SftWanted) -> SftPlanned {
        let sum = |rows: &[TokenRow]| rows.iter().map(TokenRow::n_tokens).sum::<usize>();
        let (n_tokens, n_held_out_tokens) = (sum(&self.rows), sum(&self.held_out));
        let all = self.rows.iter().chain(&self.held_out);
        let examples = all.flat_map(|row| &row.examples);
        let epochs = usize::try_from(self.epochs).unwrap_or(usize::MAX);
        let n_trained_in_all = epochs.saturating_mul(n_tokens);
        let held_out = n_held_out_tokens.saturating_mul(epochs.saturating_add(1));
        let margins = match self.objective {
            Objective::CrossEntropy => 0,
            // The reference, and the margin before each step.
            Objective::Preference { .. } => n_trained_in_all + n_tokens + n_held_out_tokens,
        };
        SftPlanned {
            agent: wanted.agent.clone(),
            method: self.objective.as_str().to_owned(),
            n_rows: self.rows.len(),
            n_held_out: self.held_out.len(),
            n_tokens,
            n_trained: self.rows.iter().map(TokenRow::n_trained).sum(),
            n_held_out_tokens,
            longest: examples.map(TokenExample::n_tokens).max().unwrap_or(0),
            epochs: self.epochs,
            batch_size: self.batch_size,
            n_steps: self.n_steps(),
            learning_rate: self
                .learning_rate
                .or_else(|| Some(self.rl.learning_rate? * self.rate_share())),
            n_trained_in_all,
            n_scored_in_all: held_out.saturating_add(margins),
            from: None,
            begins_anew: None,
            adapter: String::new(),
        }
    }
}

/// The number of rows that are held out: at least one, and never all.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a length, brought into its range"
)]
fn n_held_out(n: usize, share: f64) -> usize {
    ((n as f64 * share).round() as usize).clamp(1, n - 1)
}

fn shuffled(n: usize, seed: u64, round: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut state = seed ^ round.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for at in (1..n).rev() {
        let bound = at as u64 + 1;
        // The product's upper half is below the bound.
        let other = (u128::from(next(&mut state)) * u128::from(bound)) >> 64;
        order.swap(at, usize::try_from(other).unwrap_or(at));
    }
    order
}

/// The next number of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Objective {
    /// The mean over all trained tokens of a batch.
    CrossEntropy,
    /// The mean over the pairs of a batch.
    Preference { beta: f64 },
}

/// The log-probabilities of the replies of a pair, each summed over its ids, in nats.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PairLogprobs {
    pub(super) chosen: f64,
    pub(super) rejected: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PairMargin(f64);

// === impl Objective ===

impl Objective {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::CrossEntropy => "cross_entropy",
            Self::Preference { .. } => "dpo",
        }
    }
}

// === impl PairMargin ===

impl PairMargin {
    pub(super) fn new(beta: f64, now: PairLogprobs, reference: PairLogprobs) -> Self {
        let gained = |now: f64, before: f64| now - before;
        let chosen = gained(now.chosen, reference.chosen);
        let rejected = gained(now.rejected, reference.rejected);
        Self(beta * (chosen - rejected))
    }

    /// -log sigmoid(m), in nats.
    pub(super) fn loss(self) -> f64 {
        // ln(1 + e^-m) without overflow.
        (-self.0).max(0.0) + (-self.0.abs()).exp().ln_1p()
    }

    /// The weight of each id of the chosen reply; that of the rejected one is its opposite.
    pub(super) fn weight(self, beta: f64) -> f64 {
        beta / (1.0 + self.0.exp())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use metaclaw_chat::AgentId;

    use super::{super::types::SftOrigin, *};
    use crate::{lineage::BaseModel, sft::rows::TokenExample};

    fn wanted(share: f64) -> SftWanted {
        SftWanted {
            agent: AgentId::default_agent(),
            file: PathBuf::from("/data.jsonl"),
            held_out: HeldOutRows::Share(share),
            epochs: 2,
            batch_size: Some(4),
            learning_rate: Some(1e-3),
            schedule: RateSchedule::Linear,
            seed: 7,
            beta: 0.1,
            from: SftOrigin::Base,
            serves: true,
            dry_run: false,
        }
    }

    fn plan(n: usize, wanted: &SftWanted) -> Result<SftPlan, SftError> {
        plan_of(Objective::CrossEntropy, n, wanted)
    }

    fn plan_of(objective: Objective, n: usize, wanted: &SftWanted) -> Result<SftPlan, SftError> {
        let row = |line: usize| TokenRow {
            line,
            examples: vec![TokenExample {
                ids: vec![1, 2, 3],
                trained: std::iter::once(1..3).collect(),
            }],
        };
        let data = DataSet {
            objective,
            rows: (1..=n).map(row).collect(),
            held_out: Vec::new(),
            hash: "h".to_owned(),
        };
        let rl = RlConfig::default();
        let shape = Shape::new(BaseModel::named("m"), &rl);
        SftPlan::new(wanted, data, shape, rl)
    }

    /// The names of checkpoints follow from the hash. If it changed, an interrupted training would begin again.
    #[test]
    fn a_training_has_the_same_hash_and_the_same_batches_as_ever() {
        let from = "main-0badcafe-000001".parse().unwrap();
        let unset = SftWanted {
            batch_size: None,
            learning_rate: None,
            schedule: RateSchedule::Constant,
            ..wanted(0.25)
        };
        let chats = Objective::CrossEntropy;
        let pairs = Objective::Preference { beta: 0.1 };
        let of_tenth = [12, 8, 0, 13, 7, 4, 2, 15, 10, 6, 14, 5, 17, 16, 9, 3, 1, 11];
        let of_quarter = [0, 3, 5, 10, 12, 6, 14, 11, 4, 8, 13, 7, 2, 1, 9];
        for (objective, of_start, of_other) in [
            (chats, "f7471bff78e5977a", "7ec43c71653dcb79"),
            (pairs, "eacb5a9628e5ef73", "c1f5153c1d1443b8"),
        ] {
            let plan = plan_of(objective, 20, &wanted(0.1)).unwrap();
            assert_eq!(plan.hash("main", None)[..16], *of_start);
            assert_eq!(plan.batches(2).concat(), of_tenth);
            let plan = plan_of(objective, 20, &unset).unwrap();
            assert_eq!(plan.hash("main", Some(&from))[..16], *of_other);
            assert_eq!(plan.batches(2).concat(), of_quarter);
        }
    }

    #[test]
    fn each_row_is_trained_once_an_epoch_or_held_out() {
        let plan = plan(20, &wanted(0.1)).unwrap();
        assert_eq!((plan.rows.len(), plan.held_out.len()), (18, 2));
        let lines = |rows: &[TokenRow]| rows.iter().map(|row| row.line).collect::<Vec<_>>();
        let mut all = [lines(&plan.rows), lines(&plan.held_out)].concat();
        all.sort_unstable();
        assert_eq!(all, (1..=20).collect::<Vec<_>>());
        for epoch in 1..=2 {
            let batches = plan.batches(epoch);
            let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
            assert_eq!(sizes, [4, 4, 4, 4, 2]);
            let mut places = batches.concat();
            places.sort_unstable();
            assert_eq!(places, (0..18).collect::<Vec<_>>());
        }
        assert_ne!(plan.batches(1), plan.batches(2));
        assert_eq!(plan.batches(1), plan.clone().batches(1));
    }

    #[test]
    fn one_row_is_held_out_at_least_and_never_all() {
        let n_held_out = |n, share| plan(n, &wanted(share)).map(|plan| plan.held_out.len());
        assert_eq!(n_held_out(5, 0.01).unwrap(), 1);
        assert_eq!(n_held_out(5, 0.99).unwrap(), 4);
        assert_eq!(n_held_out(1, 0.0).unwrap(), 0);
        let error = n_held_out(1, 0.1).unwrap_err().to_string();
        assert!(error.starts_with("1 row: at least 2"), "{error}");
    }

    #[test]
    fn the_rate_rises_for_the_warm_up_and_falls_to_the_end() {
        let linear = plan(20, &wanted(0.0)).unwrap();
        let rate = |plan: &SftPlan, step| (plan.rate(step, None) * 1e6).round();
        assert_eq!(linear.n_steps(), 10);
        // A third each for three steps; then an eighth less each.
        let rates: Vec<f64> = [1, 2, 3, 4, 7, 10].map(|step| rate(&linear, step)).into();
        assert_eq!(rates, [333.0, 667.0, 1000.0, 875.0, 500.0, 125.0]);
        let constant = SftWanted {
            schedule: RateSchedule::Constant,
            ..wanted(0.0)
        };
        let constant = plan(20, &constant).unwrap();
        let rates: Vec<f64> = [3, 10].map(|step| rate(&constant, step)).into();
        assert_eq!(rates, [1000.0; 2]);
        let by_size = SftWanted {
            learning_rate: None,
            ..wanted(0.0)
        };
        let by_size = plan(20, &by_size).unwrap();
        assert!((by_size.full_rate(Some(135e6)) - 5e-4).abs() < 1e-12);
        assert!((by_size.full_rate(None) - 1e-4).abs() < 1e-12);
    }

    #[test]
    fn another_setting_is_another_training() {
        let hash = |wanted: &SftWanted| plan(20, wanted).unwrap().hash("a", None);
        let one = hash(&wanted(0.1));
        assert_eq!(one, hash(&wanted(0.1)));
        type Change = fn(&mut SftWanted);
        let changes: [Change; 4] = [
            |wanted| wanted.held_out = HeldOutRows::Share(0.2),
            |wanted| wanted.seed = 8,
            |wanted| wanted.epochs = 3,
            |wanted| wanted.learning_rate = None,
        ];
        for change in changes {
            let mut other = wanted(0.1);
            change(&mut other);
            assert_ne!(one, hash(&other), "{other:?}");
        }
        let from = "main-0badcafe-000001".parse().unwrap();
        let plan = plan(20, &wanted(0.1)).unwrap();
        assert_ne!(one, plan.hash("a", Some(&from)));
        assert_ne!(one, plan.hash("b", None));
    }

    const BETA: f64 = 0.1;

    fn margin(chosen: f64, rejected: f64) -> PairMargin {
        let reference = PairLogprobs {
            chosen: -20.0,
            rejected: -30.0,
        };
        PairMargin::new(BETA, PairLogprobs { chosen, rejected }, reference)
    }

    #[test]
    fn weights_are_the_gradient_of_the_loss() {
        for (chosen, rejected) in [(-20.0, -30.0), (-5.0, -60.0), (-80.0, -10.0)] {
            let at = margin(chosen, rejected);
            let step = 1e-4;
            let by_chosen = (margin(chosen + step, rejected).loss() - at.loss()) / step;
            let by_rejected = (margin(chosen, rejected + step).loss() - at.loss()) / step;
            // The loss of cross_entropy is -weight · log p.
            let weight = at.weight(BETA);
            assert!((by_chosen + weight).abs() < 1e-5, "{by_chosen} {weight}");
            let is_so = (by_rejected - weight).abs() < 1e-5;
            assert!(is_so, "{by_rejected} {weight}");
        }
    }

    #[test]
    fn at_the_start_every_pair_costs_ln_2_and_no_margin_overflows() {
        assert!((margin(-20.0, -30.0).loss() - 2.0_f64.ln()).abs() < 1e-12);
        assert!((margin(-20.0, -30.0).weight(BETA) - BETA / 2.0).abs() < 1e-12);
        assert!((margin(-1e6, 1e6).loss() - 2e5).abs() < 2.0);
        let won = margin(1e6, -1e6);
        assert!(won.loss().abs() < 1e-12 && won.weight(BETA).abs() < 1e-12);
    }
}
