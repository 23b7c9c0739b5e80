//! Estimates what a request is about from similar requests: naive Bayes over their words.
//!
//! People describe their situation and seldom name the technique. So each skill of the bank has sample requests in
//! people's own words. A background consists of sentences that need no skill. A request is compared with all of them at
//! once. They share a probability of 1, so a request that is not clearly closest to one skill gets none.

use std::collections::{BTreeMap, BTreeSet};

use crate::words::all_terms;

/// The evidence of each term for a class: `ln(1 + P(term | class) / P(term))`. This is Jelinek-Mercer smoothing with
/// equal weights, so that a term that is missing in a skill's samples by chance is no evidence against it.
type Says = Vec<(usize, f32)>;

/// Prior frequency of each kind of background, relative to one skill.
const BACKGROUND: f32 = 20.0;
/// Evidence for the background, in nats, of each term of a request that no sample contains, and how many of them count.
/// A skill's requests are about few things, all others are about anything.
const UNKNOWN: f32 = 0.1;
const UNKNOWN_AT_MOST: usize = 40;
/// Words of one request depend on each other, but naive Bayes counts each as new evidence. Up to 16 terms the evidence
/// is divided by this, and beyond by half the square root of their number.
const DEPENDENCE: f32 = 2.0;

#[derive(Debug)]
pub(super) struct CountedSamples {
    n_skills: usize,
    n_background: usize,
    n_requests: usize,
    terms: BTreeMap<String, TermCounts>,
}

#[derive(Debug)]
struct TermCounts {
    n_requests: usize,
    /// By class: skills in order, then the kinds of background.
    says: Says,
}

// === impl Samples ===

impl CountedSamples {
    pub(super) fn build<'s>(
        skills: impl Iterator<Item = &'s str>,
        background: impl Iterator<Item = &'s str>,
    ) -> Self {
        let mut classes: Vec<Counted> = skills.map(counted).collect();
        let n_skills = classes.len();
        classes.extend(background.map(counted));
        let mut of_term = BTreeMap::<&str, Vec<(usize, usize)>>::new();
        for (class, counts) in classes.iter().enumerate() {
            for (term, n) in &counts.terms {
                of_term.entry(term).or_default().push((class, *n));
            }
        }
        // A term counts as if it also occurred once in a class of average size, because a rare one that a single sample
        // contains by chance says little.
        let n_terms: usize = classes.iter().map(|counts| counts.n_terms).sum();
        let once = classes.len() as f32 / n_terms as f32;
        let terms = of_term.into_iter().map(|(term, counts)| {
            let share = |(class, n): (usize, usize)| n as f32 / classes[class].n_terms as f32;
            let shares: f32 = counts.iter().copied().map(share).sum();
            let mean = (shares + once) / classes.len() as f32;
            let says = counts
                .iter()
                .map(|&term| (term.0, (share(term) / mean).ln_1p()))
                .collect();
            let n_requests = counts.iter().map(|(_, n)| n).sum();
            (term.to_owned(), TermCounts { n_requests, says })
        });
        Self {
            terms: terms.collect(),
            n_skills,
            n_background: classes.len() - n_skills,
            n_requests: classes.iter().map(|counts| counts.n_requests).sum(),
        }
    }

    /// Returns for each skill the probability that a request is for it, from the request's terms and from other
    /// evidence for the skill, in nats.
    pub(super) fn probabilities(&self, said: &BTreeSet<String>, besides: &[f32]) -> Vec<f32> {
        let mut scores = vec![0.0; self.n_skills];
        scores.resize(self.n_skills + self.n_background, BACKGROUND.ln());
        for (score, besides) in scores.iter_mut().zip(besides) {
            *score += besides;
        }
        let mut n_terms = 0;
        for term in said.iter().filter_map(|term| self.terms.get(term)) {
            n_terms += 1;
            for (class, says) in &term.says {
                scores[*class] += says;
            }
        }
        let n_unknown = (said.len() - n_terms).min(UNKNOWN_AT_MOST);
        for score in &mut scores[self.n_skills..] {
            *score += UNKNOWN * n_unknown as f32;
        }
        let dependence = DEPENDENCE.max((n_terms as f32).sqrt() / 2.0);
        let most = scores.iter().copied().fold(f32::MIN, f32::max);
        let odds: Vec<f32> = scores
            .iter()
            .map(|score| ((score - most) / dependence).exp())
            .collect();
        let all: f32 = odds.iter().sum();
        odds.into_iter()
            .take(self.n_skills)
            .map(|n| n / all)
            .collect()
    }

    /// Returns the evidence of these terms in a text, in nats. Terms that are rarer among all samples count more.
    pub(super) fn selectivity<'t>(&self, terms: impl Iterator<Item = &'t str>) -> f32 {
        let n_with = |term| self.terms.get(term).map_or(0, |known| known.n_requests);
        let rarity = |term| (self.n_requests as f32 / (1 + n_with(term)) as f32).ln();
        terms.map(rarity).sum::<f32>().min(self.rarest())
    }

    pub(super) fn rarest(&self) -> f32 {
        (self.n_requests as f32).ln()
    }
}

struct Counted {
    terms: BTreeMap<String, usize>,
    n_terms: usize,
    n_requests: usize,
}

/// Counts each term once per request.
fn counted(lines: &str) -> Counted {
    let mut counted = Counted {
        terms: BTreeMap::new(),
        n_terms: 0,
        n_requests: 0,
    };
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        counted.n_requests += 1;
        for term in all_terms(line).into_iter().collect::<BTreeSet<_>>() {
            *counted.terms.entry(term).or_default() += 1;
            counted.n_terms += 1;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> CountedSamples {
        let skills = [
            "my flight leaves on monday, where do I sleep\nthree days in Rome with kids",
            "the loop runs for ever\nit crashes with a segfault",
        ];
        let talk = ["tell me a joke\nnice monday\nmonday again\nI hate monday\nin the rain"];
        CountedSamples::build(skills.into_iter(), talk.into_iter())
    }

    fn probabilities(request: &str, besides: &[f32]) -> Vec<f32> {
        let said = all_terms(request).into_iter().collect();
        samples().probabilities(&said, besides)
    }

    #[test]
    fn a_request_is_for_the_skill_whose_samples_it_is_like() {
        let trip = probabilities("three days in Rome with a flight and kids", &[]);
        assert!(trip[0] > 0.5 && trip[1] < 0.2, "{trip:?}");
        let bug = probabilities("the loop crashes with a segfault, it runs for ever", &[]);
        assert!(bug[1] > 0.5 && bug[0] < 0.2, "{bug:?}");
        let sum: f32 = bug.iter().sum();
        assert!(sum < 1.0, "the background has its part");
    }

    #[test]
    fn everyday_talk_and_unknown_words_are_for_none() {
        for request in ["a nice joke", "", "qwertz", "monday"] {
            let found = probabilities(request, &[]);
            assert!(found.iter().all(|p| *p < 0.25), "{request}: {found:?}");
        }
    }

    #[test]
    fn what_else_speaks_for_a_skill_counts() {
        let [without, with] = [[0.0, 0.0], [0.0, 4.0]].map(|x| probabilities("it crashes", &x));
        let is_so = with[1] > without[1] && with[0] < without[0];
        assert!(is_so, "{without:?} {with:?}");
    }

    #[test]
    fn a_rare_term_selects_and_many_select_no_more_than_an_unknown_one() {
        let samples = samples();
        let of = |terms: &[&str]| samples.selectivity(terms.iter().copied());
        assert!(of(&["monday"]) < of(&["segfault"]));
        assert!(of(&["segfault"]) < of(&["qwertz"]));
        let many = of(&["segfault", "rome", "rain", "joke"]);
        assert!(many.total_cmp(&samples.rarest()).is_eq(), "{many}");
        assert!(of(&[]) <= 0.0);
    }
}
