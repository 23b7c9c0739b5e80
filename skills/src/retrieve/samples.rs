//! What sample requests find: naive Bayes over their terms.
//!
//! People tell their situation and seldom name the technique. So each skill of the bank comes with requests that it is
//! for, as people typed them, and beside them stand everyday requests that need no skill at all. A request is compared with
//! both: a skill is found where the request's terms are more usual among its samples than in everyday talk.

use std::collections::{BTreeMap, BTreeSet};

use crate::words::terms;

/// What is lent to each class from all samples together, as often as its own (Jelinek-Mercer smoothing): a term that a
/// skill's samples lack by chance says nothing against it.
const LENT: f32 = 1.0;
/// Less than this above everyday talk (log-likelihood, in nat) is chance: "Run the tool." stands 2.5 above it for recovery.
const LEAST: f32 = 3.0;
/// A term alone is no evidence: "door" stands in requests of every kind.
const MIN_TERMS: usize = 2;

/// The sample requests of all skills, counted.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// The skill of each class; the first is everyday talk and has none.
    classes: Vec<Option<usize>>,
    /// Of each term: how much it selects, and what it says for the classes that have it.
    terms: BTreeMap<String, Term>,
}

#[derive(Debug)]
struct Term {
    /// Inverse document frequency, in 0..=1.
    selects: f32,
    /// Class, and log-likelihood ratio against a class that lacks the term.
    says: Vec<(usize, f32)>,
}

// === impl Samples ===

impl Samples {
    /// Counts the samples of skills, given with their numbers, one request a line, and everyday ones.
    pub(super) fn build<'s>(
        everyday: &str,
        of_skills: impl Iterator<Item = (usize, &'s str)>,
    ) -> Self {
        let mut classes = vec![(None, counted(everyday))];
        classes.extend(of_skills.map(|(skill, lines)| (Some(skill), counted(lines))));
        let n_requests: usize = classes.iter().map(|(_, counts)| counts.n_requests).sum();
        let n_all: usize = classes.iter().map(|(_, counts)| counts.n_terms).sum();
        let mut all = BTreeMap::<&str, usize>::new();
        for (term, n) in classes.iter().flat_map(|(_, counts)| &counts.terms) {
            *all.entry(term).or_default() += n;
        }
        let terms = all.iter().map(|(term, n)| {
            let usual = *n as f32 / n_all as f32;
            let selects = (n_requests as f32 / *n as f32).ln() / (n_requests as f32).ln();
            let says = classes
                .iter()
                .enumerate()
                .filter_map(|(class, (_, counts))| {
                    let has = *counts.terms.get(*term)? as f32;
                    Some((
                        class,
                        (has / counts.n_terms as f32 / (LENT * usual)).ln_1p(),
                    ))
                });
            let says = says.collect();
            ((*term).to_owned(), Term { selects, says })
        });
        Self {
            terms: terms.collect(),
            classes: classes.into_iter().map(|(skill, _)| skill).collect(),
        }
    }

    /// The skills that the terms of a request speak for, by how much more than for everyday talk.
    pub(super) fn search(&self, said: &BTreeSet<String>) -> BTreeMap<usize, f32> {
        let mut scores = vec![0.0; self.classes.len()];
        let mut n_terms = vec![0; self.classes.len()];
        for term in said.iter().filter_map(|term| self.terms.get(term)) {
            for (class, says) in &term.says {
                scores[*class] += term.selects * says;
                n_terms[*class] += 1;
            }
        }
        let Some(everyday) = scores.first().copied() else {
            return BTreeMap::new();
        };
        let least = everyday + LEAST;
        let found = self.classes.iter().zip(scores).zip(n_terms);
        found
            .filter(|((_, score), n_terms)| *score >= least && *n_terms >= MIN_TERMS)
            .filter_map(|((skill, score), _)| Some(((*skill)?, score - everyday)))
            .collect()
    }
}

/// The terms of some requests.
struct Counted {
    terms: BTreeMap<String, usize>,
    n_terms: usize,
    n_requests: usize,
}

/// Counts each term once a request.
fn counted(lines: &str) -> Counted {
    let mut counted = Counted {
        terms: BTreeMap::new(),
        n_terms: 0,
        n_requests: 0,
    };
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        counted.n_requests += 1;
        for term in terms(line).into_iter().collect::<BTreeSet<_>>() {
            *counted.terms.entry(term).or_default() += 1;
            counted.n_terms += 1;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(request: &str) -> Vec<usize> {
        let skills = [
            (
                7,
                "my flight leaves on monday, where do I sleep\nthree days in Rome with kids",
            ),
            (9, "the loop runs for ever\nit crashes with a segfault"),
        ];
        let talk: Vec<String> = (0..300).map(|n| format!("talk{n} of day{n}")).collect();
        let talk = talk.join("\n");
        let talk = format!("{talk}\ntell me a joke\nnice monday\nmonday again\nI hate monday");
        let samples = Samples::build(&talk, skills.into_iter());
        let said = terms(request).into_iter().collect();
        samples.search(&said).into_keys().collect()
    }

    #[test]
    fn a_request_finds_the_samples_that_it_is_like() {
        assert_eq!(found("three days in Rome with a flight"), [7]);
        assert_eq!(found("the loop crashes with a segfault"), [9]);
        assert_eq!(
            found("three days in Rome, and a loop that crashes with a segfault"),
            [7, 9]
        );
    }

    #[test]
    fn everyday_talk_and_unknown_words_find_nothing() {
        for request in ["a nice joke", "", "qwertz"] {
            assert_eq!(found(request), Vec::<usize>::new(), "{request}");
        }
        let said = BTreeSet::from(["crash".to_owned()]);
        assert!(Samples::default().search(&said).is_empty());
    }
}
