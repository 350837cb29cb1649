//! Decides whether a published value was reproduced.
//!
//! 1. "Reproduced" means: the better variant is the same as in the publication, and the ratio is within a
//!    fifth of the published ratio. "Beaten" means a better ratio than that.
//! 2. A better figure never gets a worse verdict. There is one exception: more than twice the published ratio
//!    gets "beyond: examine". The reason is that the baseline here may be worse than that of the publication.
//! 3. A bar is a goal of this project. It is met or missed, without tolerance.
//! 4. If the publication shows a value only as a plot, there is no published number and no verdict on it.

use serde::Serialize;

/// A ratio that differs from the published one by at most this part counts as the same.
pub const TOLERANCE: f64 = 0.2;
/// A ratio that is better than the published one by more than this factor gets the verdict "beyond: examine".
const BEYOND: f64 = 2.0;

/// The direction in which a ratio is better than the published one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// The ratio is a gain, so a higher one is better.
    Higher,
    /// The ratio is a cost, so a lower one is better.
    Lower,
    /// Neither direction is better: the ratio describes a baseline, and should be the same as the published
    /// one.
    Neither,
}

/// The verdict on a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// The order is the same, and the ratio is within a fifth of the published one.
    Reproduced,
    /// The ratio is better by more than a fifth, or it is a gain where the publication has a cost.
    Beaten,
    /// The ratio is more than twice as good. The baseline must be examined before the ratio is believed.
    Examine(String),
    /// The ratio is worse by more than a fifth (or different, with [`Better::Neither`]), or the order is the
    /// opposite.
    Not(String),
    /// A bar was reached.
    Met,
    /// A bar was not reached.
    Missed(String),
    /// The publication has the value only in a plot, or not at all.
    NotInText,
    /// There is nothing to compare with: no publication can have the value, and this project has no goal for
    /// it.
    NoBar,
    /// The measurement can't be judged.
    NotJudged(String),
}

impl Verdict {
    /// Compares a figure with a bar that it must reach.
    pub fn at_least(bar: f64, ours: f64) -> Self {
        match ours >= bar {
            true => Self::Met,
            false => Self::Missed(format!("{:+.0} % from the bar", 100.0 * (ours / bar - 1.0))),
        }
    }

    /// Compares a figure with a bar that it must not exceed.
    pub fn at_most(bar: f64, ours: f64) -> Self {
        match ours <= bar {
            true => Self::Met,
            false => Self::Missed(format!("{:+.0} % from the bar", 100.0 * (ours / bar - 1.0))),
        }
    }

    /// Compares a ratio of two measured figures with the published one.
    pub fn of(ours: f64, published: f64, better: Better) -> Self {
        Self::within(ours, (published, published), better)
    }

    /// Compares a ratio with a published range.
    pub fn within(ours: f64, (least, most): (f64, f64), better: Better) -> Self {
        let (low, high) = (least * (1.0 - TOLERANCE), most * (1.0 + TOLERANCE));
        // Whether our ratio is on the other side of 1 than the whole published range.
        let (above, below) = (ours > 1.0 && most <= 1.0, ours <= 1.0 && least > 1.0);
        let off =
            |of: f64| Self::Not(format!("{:+.0} % from the published value", 100.0 * (ours / of - 1.0)));
        let (is_far, is_better, is_worse, flips) = match better {
            Better::Higher => (ours > BEYOND * most, ours > high || above, ours < low, below),
            Better::Lower => (ours < least / BEYOND, ours < low || below, ours > high, above),
            Better::Neither => (false, false, ours < low || ours > high, above || below),
        };
        match () {
            () if is_far => Self::Examine(format!("{:.2} of the published value", ours / most)),
            () if is_better => Self::Beaten,
            () if is_worse => off(if ours < low { least } else { most }),
            () if flips => Self::Not("the order is another".to_owned()),
            () => Self::Reproduced,
        }
    }

    /// Returns the verdict on a claim about several points, some of which could not be judged. A missed bar
    /// stays missed.
    pub fn hidden_by(self, reason: Option<String>) -> Self {
        match (self, reason) {
            (missed @ (Self::Missed(_) | Self::Not(_)), _) => missed,
            (_, Some(reason)) => Self::NotJudged(reason),
            (verdict, None) => verdict,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reproduced => f.write_str("reproduced"),
            Self::Beaten => f.write_str("beaten"),
            Self::Examine(reason) => write!(f, "beyond: examine: {reason}"),
            Self::Not(reason) => write!(f, "not: {reason}"),
            Self::Met => f.write_str("met"),
            Self::Missed(reason) => write!(f, "missed: {reason}"),
            Self::NotInText => f.write_str("not in text"),
            Self::NoBar => f.write_str("no bar"),
            Self::NotJudged(reason) => write!(f, "not judged: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_is_the_same_unless_the_order_is_another() {
        for (ours, published, better, expected) in [
            (1.30, 1.14, Better::Higher, Verdict::Reproduced),
            (1.01, 1.14, Better::Higher, Verdict::Reproduced),
            (1.50, 1.14, Better::Higher, Verdict::Beaten),
            (5.00, 4.00, Better::Higher, Verdict::Beaten),
            (1.50, 2.78, Better::Lower, Verdict::Beaten),
            (0.95, 0.95, Better::Higher, Verdict::Reproduced),
        ] {
            assert_eq!(Verdict::of(ours, published, better), expected, "{ours} {published}");
        }
        let cheaper = Verdict::of(1.07, 1.55, Better::Neither);
        assert_eq!(cheaper, Verdict::Not("-31 % from the published value".to_owned()));
        let other_order = Verdict::of(0.98, 1.14, Better::Higher);
        assert!(matches!(&other_order, Verdict::Not(reason) if reason.contains("order")), "{other_order}");
        assert_eq!(
            Verdict::of(2.0, 4.0, Better::Higher),
            Verdict::Not("-50 % from the published value".to_owned())
        );
        assert_eq!(
            Verdict::of(4.0, 2.0, Better::Lower),
            Verdict::Not("+100 % from the published value".to_owned())
        );
    }

    /// A ratio of 1.05 for lz4 got the verdict "not" once, because the paper has 0.94.
    #[test]
    fn better_is_never_a_worse_verdict() {
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Not(_) => 0,
            Verdict::Reproduced => 1,
            Verdict::Beaten => 2,
            Verdict::Examine(_) => 3,
            other => panic!("{other}"),
        };
        for published in [0.46, 0.94, 1.0, 1.07, 1.14, 2.78, 8.0] {
            let ranks = |better: Better| -> Vec<u32> {
                (1..2000).map(|step| rank(&Verdict::of(f64::from(step) / 100.0, published, better))).collect()
            };
            assert!(ranks(Better::Higher).is_sorted(), "{published}");
            assert!(ranks(Better::Lower).is_sorted_by(|one, other| one >= other), "{published}");
        }
        assert_eq!(Verdict::of(1.05, 0.94, Better::Higher), Verdict::Beaten);
        assert!(matches!(Verdict::of(12.5, 4.31, Better::Higher), Verdict::Examine(_)));
    }

    #[test]
    fn a_range_is_one_value() {
        let of = |ours| Verdict::within(ours, (1.3, 1.8), Better::Higher);
        assert_eq!([of(1.1), of(1.5), of(2.1)].map(|verdict| verdict == Verdict::Reproduced), [true; 3]);
        assert_eq!(of(2.5), Verdict::Beaten);
        assert!(matches!(of(3.7), Verdict::Examine(_)) && matches!(of(1.0), Verdict::Not(_)));
    }

    #[test]
    fn what_is_missed_stays_missed() {
        let hidden = || Some("another point does not count".to_owned());
        assert!(matches!(Verdict::at_least(2.0, 1.0).hidden_by(hidden()), Verdict::Missed(_)));
        assert!(matches!(Verdict::at_least(2.0, 3.0).hidden_by(hidden()), Verdict::NotJudged(_)));
        assert_eq!(Verdict::at_least(2.0, 3.0).hidden_by(None), Verdict::Met);
    }

    #[test]
    fn a_bar_has_no_tolerance() {
        assert_eq!(Verdict::at_least(4.0, 4.0), Verdict::Met);
        assert_eq!(Verdict::at_least(4.0, 3.9), Verdict::Missed("-3 % from the bar".to_owned()));
        assert_eq!(Verdict::at_most(2.0, 2.0), Verdict::Met);
        assert_eq!(Verdict::at_most(2.0, 3.0), Verdict::Missed("+50 % from the bar".to_owned()));
    }

    #[test]
    fn json_has_the_reason() {
        let text = serde_json::to_string(&Verdict::NotJudged("spoilt".to_owned())).expect("JSON");
        assert_eq!(text, r#"{"verdict":"not_judged","reason":"spoilt"}"#);
        assert_eq!(serde_json::to_string(&Verdict::NotInText).expect("JSON"), r#"{"verdict":"not_in_text"}"#);
        assert_eq!(serde_json::to_string(&Verdict::NoBar).expect("JSON"), r#"{"verdict":"no_bar"}"#);
    }
}
