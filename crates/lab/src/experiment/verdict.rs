//! Whether a published value was reproduced.
//!
//! "Reproduced" is the same order and a ratio within a fifth; "beaten" is better than that. A value that stands only in a plot has no number here.
//! A bar is what this project demands of itself: it is met or missed, without tolerance.

use serde::Serialize;

/// A ratio within this part of the published one is the same.
pub const TOLERANCE: f64 = 0.2;

/// Which way a ratio is better than the published one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A gain.
    Higher,
    /// A cost.
    Lower,
    /// Neither: the figure of a baseline, which is to be the same.
    Neither,
}

/// What a claim came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// The same order, and within a fifth.
    Reproduced,
    /// Better by more than a fifth.
    Beaten,
    /// Neither.
    Not(String),
    /// A bar was reached.
    Met,
    /// A bar was not reached.
    Missed(String),
    /// The publication has it in a plot only, or not at all.
    NotInText,
    /// Nothing to hold it against: no publication could have it, and this project demands nothing.
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

    /// Compares a figure with a bar that it must stay below.
    pub fn at_most(bar: f64, ours: f64) -> Self {
        match ours <= bar {
            true => Self::Met,
            false => Self::Missed(format!("{:+.0} % from the bar", 100.0 * (ours / bar - 1.0))),
        }
    }

    /// Compares a ratio of two measured figures with the published one.
    pub fn of(ours: f64, published: f64, better: Better) -> Self {
        let (low, high) = (published * (1.0 - TOLERANCE), published * (1.0 + TOLERANCE));
        let same_order = (ours > 1.0) == (published > 1.0);
        let is_better = match better {
            Better::Higher => ours > high,
            Better::Lower => ours < low,
            Better::Neither => false,
        };
        match (low..=high).contains(&ours) {
            true if same_order => Self::Reproduced,
            _ if is_better => Self::Beaten,
            true => Self::Not("the order is another".to_owned()),
            false => {
                let off = 100.0 * (ours / published - 1.0);
                Self::Not(format!("{off:+.0} % from the published value"))
            }
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reproduced => f.write_str("reproduced"),
            Self::Beaten => f.write_str("beaten"),
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
