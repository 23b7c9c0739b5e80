//! Who gets the thread next: a live reply or the training job.

use std::time::Duration;

/// How long a job works at a time: a pause that a reader of a stream does not notice.
pub(super) const SLICE: Duration = Duration::from_millis(40);
/// The share of training in the time while replies are live. Training then takes at most 2.5 times as long as alone. A
/// slice follows a step of four replies and makes them wait about twice as long.
const JOB_SHARE: f64 = 0.45;

/// Times spent since the job at the head of the queue met a live reply.
#[derive(Debug, Default)]
pub(super) struct TimeShare {
    replies: Duration,
    job: Duration,
}

impl TimeShare {
    pub(super) fn replies_took(&mut self, time: Duration) {
        self.replies += time;
    }

    pub(super) fn job_took(&mut self, time: Duration) {
        self.job += time;
    }

    pub(super) fn job_is_due(&self) -> bool {
        let all = self.replies + self.job;
        self.job.as_secs_f64() <= JOB_SHARE * all.as_secs_f64()
    }

    /// Forgets all debts, because only one side has work.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_gets_its_share_and_no_more() {
        let mut times = TimeShare::default();
        let (mut jobs, mut steps) = (0, 0);
        for _ in 0..1000 {
            times.replies_took(Duration::from_millis(20));
            steps += 1;
            if times.job_is_due() {
                times.job_took(Duration::from_millis(40));
                jobs += 1;
            }
        }
        let share = f64::from(jobs * 40) / f64::from(jobs * 40 + steps * 20);
        assert!((0.4..0.5).contains(&share), "{share}");
    }
}
