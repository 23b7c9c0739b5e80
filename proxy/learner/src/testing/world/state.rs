//! What the training server holds, and what it answers.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
};

use metaclaw_trainer_api::{
    AdapterName, BackendError, CheckpointName, Datum, RunId,
    wire::{CheckpointInfo, CreateRequest, OptimStepRequest, Sampled},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    answers::{Answers, usual_answers},
    failure::{Failure, lost, refusal},
    habit::Habit,
};

/// What was trained on: the first id of each datum, in order.
pub(crate) type Weights = Vec<u32>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poison {
    /// 500.
    Panics,
    /// No answer in time.
    TooSlow,
    /// The server dies of it, and comes back without its runs.
    Kills,
    /// 400, naming the datum.
    Named,
    /// 400, naming the datum: it alone needs more memory than there is.
    TooLong,
    /// 400 that names nothing.
    Refused,
    /// The gradient of everything is no number.
    NoGradient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// 400 `adapter_damaged`.
    Told,
    /// 500 each time.
    Untold,
    /// It loads, and its weights are no numbers.
    NotFinite,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Run {
    pub(super) weights: Weights,
    pub(super) gradients: Weights,
    pub(super) step: u64,
    pub(super) is_finite: bool,
    pub(super) habit: Habit,
}

#[derive(Debug)]
pub(super) struct Saved {
    pub(super) info: CheckpointInfo,
    pub(super) run: Run,
    pub(super) base: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    /// Until the call of this number, which fails so.
    LeavesAt(usize, Failure),
    Away,
}

type Late = (usize, Box<dyn FnOnce(&mut Inner) + Send>);

pub(super) struct Inner {
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) checkpoints: Vec<Saved>,
    pub(super) adapters: BTreeMap<AdapterName, Weights>,
    pub(super) sampled: BTreeMap<String, Sampled>,
    pub(super) base: (String, String),
    pub(super) max_rank: u32,
    pub(super) scores: bool,
    pub(super) lacks_scores: bool,
    /// Whether an adapter that is there by its name is left as it is.
    pub(super) keeps_adapters: bool,
    pub(super) poison: BTreeMap<u32, Poison>,
    pub(super) damaged: BTreeMap<String, Damage>,
    pub(super) n_calls: usize,
    pub(super) failures: BTreeMap<usize, Failure>,
    pub(super) presence: Presence,
    pub(super) health_failure: Option<Failure>,
    pub(super) n_health: usize,
    late: Vec<Late>,
    pub(super) next_run: u32,
    pub(super) created: Vec<CreateRequest>,
    pub(super) stepped: Vec<OptimStepRequest>,
    pub(super) passes: Vec<Weights>,
    pub(super) loaded: Vec<AdapterName>,
    pub(super) coming: VecDeque<Habit>,
    pub(super) then: Habit,
    pub(super) habits: BTreeMap<AdapterName, Habit>,
    pub(super) scoring: BTreeSet<RunId>,
    pub(super) answers: Answers,
    pub(super) told: Vec<String>,
    pub(super) events: Vec<String>,
    /// Each draw of several replies waits for a place here.
    pub(super) draws: Option<Arc<Semaphore>>,
    pub(super) text_failure: Option<(String, Failure)>,
    pub(super) load_failure: Option<Failure>,
    pub(super) n_failed_loads: usize,
    pub(super) targets: Vec<Datum>,
    pub(super) looked_at: Vec<(bool, String)>,
    /// Replies that are drawn now, and at once at most.
    pub(super) streams: (i64, i64),
    pub(super) prompts: Vec<String>,
    pub(super) n_forward: usize,
    pub(super) unscored: VecDeque<Option<Failure>>,
    pub(super) kept: Vec<Vec<CheckpointName>>,
    pub(super) client: CancellationToken,
}

// === impl Inner ===

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn new() -> Self {
        Self {
            runs: BTreeMap::new(),
            checkpoints: Vec::new(),
            adapters: BTreeMap::new(),
            sampled: BTreeMap::new(),
            base: ("base".to_owned(), "0badcafe".to_owned()),
            max_rank: u32::MAX,
            scores: true,
            lacks_scores: false,
            keeps_adapters: false,
            poison: BTreeMap::new(),
            damaged: BTreeMap::new(),
            n_calls: 0,
            failures: BTreeMap::new(),
            presence: Presence::There,
            health_failure: None,
            n_health: 0,
            late: Vec::new(),
            next_run: 0,
            created: Vec::new(),
            stepped: Vec::new(),
            passes: Vec::new(),
            loaded: Vec::new(),
            coming: VecDeque::new(),
            then: Habit::Fine,
            habits: BTreeMap::new(),
            scoring: BTreeSet::new(),
            answers: usual_answers,
            told: Vec::new(),
            events: Vec::new(),
            draws: None,
            text_failure: None,
            load_failure: None,
            n_failed_loads: 0,
            targets: Vec::new(),
            looked_at: Vec::new(),
            streams: (0, 0),
            prompts: Vec::new(),
            n_forward: 0,
            unscored: VecDeque::new(),
            kept: Vec::new(),
            client: CancellationToken::new(),
        }
    }

    pub(super) fn next_call(&mut self) -> Option<Failure> {
        let at = self.n_calls;
        self.n_calls += 1;
        match self.presence {
            Presence::Away => return Some(Failure::Unreachable),
            Presence::LeavesAt(when, last) if when <= at => {
                self.presence = Presence::Away;
                return Some(last);
            }
            Presence::There | Presence::LeavesAt(..) => {}
        }
        let (due, late) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|(when, _)| *when <= at);
        self.late = late;
        let due: Vec<Late> = due;
        for (_, work) in due {
            work(self);
        }
        self.failures.remove(&at)
    }

    pub(super) fn restart(&mut self) {
        self.runs.clear();
        self.scoring.clear();
    }

    pub(super) fn streams(&mut self, by: i64) {
        let (now, most) = self.streams;
        self.streams = (now + by, most.max(now + by));
    }

    pub(super) fn text_fails(&self, call: &'static str, text: &str) -> Result<(), BackendError> {
        if self.presence == Presence::Away {
            return Err(BackendError::NoEndpoint { call });
        }
        let failure = self.text_failure.as_ref();
        let failure = failure
            .filter(|(part, _)| text.contains(part))
            .map(|failure| failure.1);
        match failure.or_else(|| self.load_failure.filter(|_| call == "load")) {
            None => Ok(()),
            Some(Failure::Unreachable) => Err(BackendError::NoEndpoint { call }),
            Some(Failure::Refused) => Err(refusal(call, 400, None)),
            Some(Failure::Answers(status, code)) => Err(refusal(call, status, code)),
            Some(_) => Err(lost(call)),
        }
    }

    pub(super) fn scoring_fails(&mut self) -> Option<Failure> {
        if self.adapters.is_empty() {
            return None;
        }
        self.unscored.pop_front().flatten()
    }

    pub(super) fn health_fails(&mut self) -> Result<(), BackendError> {
        let call = "health";
        self.n_health += 1;
        if self.presence == Presence::Away {
            return Err(BackendError::NoEndpoint { call });
        }
        match self.health_failure {
            None => Ok(()),
            Some(Failure::Unreachable) => Err(BackendError::NoEndpoint { call }),
            Some(Failure::Answers(status, code)) => Err(refusal(call, status, code)),
            Some(_) => Err(lost(call)),
        }
    }

    pub(super) fn put_off(&mut self, n: usize, work: Box<dyn FnOnce(&mut Self) + Send>) {
        self.late.push((self.n_calls + n, work));
    }

    pub(super) fn run(
        &mut self,
        call: &'static str,
        run: &RunId,
    ) -> Result<&mut Run, BackendError> {
        self.runs
            .get_mut(run)
            .ok_or_else(|| refusal(call, 404, Some("run_not_found")))
    }

    pub(super) fn load(&self, name: &str) -> Result<Run, BackendError> {
        let call = "load_checkpoint";
        let mut saved = self.checkpoints.iter();
        let saved = saved.rfind(|saved| saved.info.name.as_str() == name);
        let saved = saved.ok_or_else(|| refusal(call, 404, Some("checkpoint_not_found")))?;
        if saved.base != self.base.1 {
            return Err(refusal(call, 400, Some("adapter_refused")));
        }
        let run = Run {
            gradients: Weights::new(),
            ..saved.run.clone()
        };
        match self.damage_of(name) {
            None => Ok(run),
            Some(Damage::Told) => Err(refusal(call, 400, Some("adapter_damaged"))),
            Some(Damage::Untold) => Err(refusal(call, 500, None)),
            Some(Damage::NotFinite) => Ok(Run {
                is_finite: false,
                ..run
            }),
        }
    }

    pub(super) fn suffers(&mut self, datums: &[Datum]) -> Result<(), BackendError> {
        let call = "forward_backward";
        let poison = |datum: &Datum| self.poison.get(&mark(datum)).copied();
        let found = datums.iter().enumerate();
        let found = found.filter_map(|(at, datum)| Some((at, poison(datum)?)));
        let mut found = found.filter(|(_, poison)| *poison != Poison::NoGradient);
        let Some((at, poison)) = found.next() else {
            return Ok(());
        };
        Err(match poison {
            Poison::Panics => refusal(call, 500, None),
            Poison::TooSlow => lost(call),
            Poison::Kills => {
                self.restart();
                lost(call)
            }
            Poison::Named => naming(refusal(call, 400, None), at),
            Poison::TooLong => naming(refusal(call, 400, Some("out_of_memory")), at),
            Poison::Refused | Poison::NoGradient => refusal(call, 400, None),
        })
    }

    pub(super) fn ruins(&self, marks: &[u32]) -> bool {
        let ruins = |mark| self.poison.get(mark) == Some(&Poison::NoGradient);
        marks.iter().any(ruins)
    }

    pub(super) fn damage_of(&self, name: &str) -> Option<Damage> {
        let mut damaged = self.damaged.iter();
        let found = damaged.find(|(end, _)| name.ends_with(end.as_str()));
        found.map(|(_, damage)| *damage)
    }
}

pub(super) fn mark(datum: &Datum) -> u32 {
    datum.parts().model_input_tokens[0]
}

fn naming(mut error: BackendError, at: usize) -> BackendError {
    if let BackendError::Status { param, .. } = &mut error {
        *param = Some(format!("datums[{at}]"));
    }
    error
}
