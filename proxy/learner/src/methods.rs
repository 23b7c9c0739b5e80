//! The training methods of `rl.method`, one a file. [`Method`] says what one has to provide; a new one is a file here and
//! a line in [`ALL`].

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
/// The group that is of no method in `rl.method`: `rl.anchor`.
pub(crate) const ANCHOR: &dyn Method = &anchor::Anchor;
/// The method of rollouts, which does not depend on `rl.method`.
pub(crate) const ROLLOUTS: &dyn Method = &rollouts::Rollouts;

/// All names that `rl.method` allows: of each method its own, and then others.
pub(crate) fn allowed_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for method in ALL {
        let own = method.name();
        let others = ALIASES.iter().filter(|(_, of)| *of == own);
        names.push(own);
        names.extend(others.map(|(alias, _)| *alias));
    }
    names
}
