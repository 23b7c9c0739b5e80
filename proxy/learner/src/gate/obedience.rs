//! Measures how well an adapter follows the wishes, on a scale from the base model without the wishes (0) to the
//! reference (1).

/// How obedience is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// By the share of the replies that rules or the judge rate as good.
    Judged,
    /// By how much more probable the base model finds the replies with the wishes in its prompt than without, in nats
    /// per token.
    Likelihood,
}

/// One figure for each of the three: the adapter, the reference and the plain base model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct OnScale {
    pub(super) own: f64,
    pub(super) plain: f64,
    pub(super) reference: f64,
}

/// How well an adapter follows the wishes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Obedience {
    /// From 0 to 1.
    pub(super) share: f64,
    /// How the share was measured, in words.
    pub(super) why: String,
}

// === impl Scale ===

impl Scale {
    /// Returns the least distance between reference and plain base model at which the scale can be used: four of
    /// sixteen replies, or twice the standard error of sixteen replies.
    fn least_span(self) -> f64 {
        match self {
            Self::Judged => 0.25,
            Self::Likelihood => 0.05,
        }
    }

    /// Returns the share, or `None` if the scale does not separate the reference from the plain base model.
    pub(super) fn read(self, of: OnScale) -> Option<Obedience> {
        let span = of.reference - of.plain;
        // A NaN gives no result either.
        if !(span >= self.least_span() && of.own.is_finite()) {
            return None;
        }
        let share = ((of.own - of.plain) / span).clamp(0.0, 1.0);
        let OnScale {
            own,
            plain,
            reference,
        } = of;
        let how = match self {
            Self::Judged => format!(
                "{own:.2} of its replies do what is wished, of the base model's {plain:.2}, of the reference's {reference:.2}"
            ),
            Self::Likelihood => format!(
                "told the wish the base model finds its replies likelier by {own:.2} nat a token, its own by {plain:.2}, the reference's by {reference:.2}"
            ),
        };
        Some(Obedience {
            share,
            why: format!("it keeps {share:.2} of the wish: {how}"),
        })
    }
}

// === impl Obedience ===

impl Obedience {
    /// Returns no obedience, because there is no wish, or none that changes the base model's replies, so that nothing
    /// could outweigh a loss.
    pub(super) fn none(why: &str) -> Self {
        Self {
            share: 0.0,
            why: why.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(scale: Scale, own: f64, plain: f64, reference: f64) -> Option<f64> {
        Some(
            scale
                .read(OnScale {
                    own,
                    plain,
                    reference,
                })?
                .share,
        )
    }

    #[test]
    fn a_share_is_the_place_between_base_and_reference() {
        let by_judge = |own, plain, reference| share(Scale::Judged, own, plain, reference);
        assert_eq!(by_judge(0.0, 0.0, 0.75), Some(0.0));
        assert_eq!(by_judge(0.375, 0.0, 0.75), Some(0.5));
        assert_eq!(
            by_judge(1.0, 0.0, 0.75),
            Some(1.0),
            "more than the reference"
        );
        assert_eq!(by_judge(0.0, 0.25, 0.75), Some(0.0), "less than the base");
        let by_likelihood = |own, plain, reference| share(Scale::Likelihood, own, plain, reference);
        assert_eq!(by_likelihood(0.125, -0.25, 0.5), Some(0.5));
    }

    #[test]
    fn what_does_not_tell_them_apart_tells_nothing() {
        assert_eq!(share(Scale::Judged, 1.0, 0.75, 0.875), None);
        assert_eq!(share(Scale::Likelihood, 1.0, 0.0, 0.01), None);
        assert_eq!(share(Scale::Likelihood, 1.0, 0.5, -0.5), None);
        assert_eq!(share(Scale::Likelihood, f64::NAN, 0.0, 1.0), None);
        assert_eq!(share(Scale::Likelihood, 1.0, f64::NAN, 1.0), None);
    }

    #[test]
    fn it_says_how_much_and_how_that_is_known() {
        let judged = Scale::Judged.read(OnScale {
            own: 0.375,
            plain: 0.0,
            reference: 0.75,
        });
        let why = "it keeps 0.50 of the wish: 0.38 of its replies do what is wished, of the base model's 0.00, of the reference's 0.75";
        assert_eq!(judged.unwrap().why, why);
    }
}
