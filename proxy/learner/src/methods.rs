//! The training methods of `rl.method`, one a file. [`Method`] says what one has to provide; a new one is a file here and
//! a line in [`ALL`] and [`METHOD_NAMES`].

mod anchor;
mod binary_rl;
mod context_distillation;
mod grpo;
mod hinted;
mod hybrid;
mod metaclaw;
mod method;
mod opd;
mod policy_gradient;
mod rollouts;
mod surrogate;

pub(crate) use self::method::{
    Compares, Example, Group, LogprobClient, Method, NotAnExample, Objective, PolicyLoss,
    TrainingSignal, Want,
};
#[cfg(test)]
pub(crate) use self::{
    method::{AnchorTerm, ExampleState},
    surrogate::Distil,
};

/// In the order in which their examples go to the training server.
pub(crate) const ALL: [&dyn Method; 6] = [
    &context_distillation::ContextDistillation,
    &binary_rl::BinaryRl,
    &hybrid::Hybrid,
    &grpo::Grpo,
    &metaclaw::Metaclaw,
    &opd::Opd,
];
/// Other names of methods, as we or other systems call them too.
pub(crate) const ALIASES: [(&str, &str); 3] = [
    ("redo", "context_distillation"),
    ("binary", "binary_rl"),
    ("combine", "hybrid"),
];
pub(crate) const METHOD_NAMES: &[&str] = &[
    "context_distillation",
    "redo",
    "binary_rl",
    "binary",
    "hybrid",
    "combine",
    "grpo",
    "metaclaw",
    "opd",
];
/// The group that is of no method in `rl.method`: `rl.anchor`.
pub(crate) const ANCHOR: &dyn Method = &anchor::Anchor;
/// The method of rollouts, which does not depend on `rl.method`.
pub(crate) const ROLLOUTS: &dyn Method = &rollouts::Rollouts;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_are_allowed_are_the_methods_own() {
        let own = ALL.iter().flat_map(|method| {
            let others = ALIASES.iter().filter(|(_, of)| *of == method.name());
            std::iter::once(method.name()).chain(others.map(|(alias, _)| *alias))
        });
        assert_eq!(own.collect::<Vec<_>>(), METHOD_NAMES);
    }
}
