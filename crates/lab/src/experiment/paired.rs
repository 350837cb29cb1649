//! Evaluates pairs of rounds (A B A B): the ratio of the two figures of a pair, and its confidence interval.
//!
//! 1. The interval is Student's t interval for the mean of the pairs' ratios, at 95 %.
//! 2. A goal is met if the whole interval is on its good side, and missed if the whole interval is on its bad
//!    side.

use serde::Serialize;

use super::verdict::Verdict;

/// Quantiles of Student's t at 0.975, for 1 to 30 degrees of freedom. For more than 30 the last one is used.
/// It is a little too large, so the interval is rather too wide.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The mean of the pairs' ratios, with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The number of pairs.
    pub pairs: usize,
    /// The mean of the ratios.
    pub mean: f64,
    /// The ends of the 95 % confidence interval. They are missing if there is only one pair.
    pub ends: Option<[f64; 2]>,
}

impl Interval {
    /// Computes the mean and the interval of these ratios. There must be at least one ratio.
    pub fn of(figures: &[f64]) -> Self {
        let pairs = figures.len();
        let mean = figures.iter().sum::<f64>() / pairs as f64;
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        let freedom = pairs.saturating_sub(1);
        let quantile = T_975.get(freedom.wrapping_sub(1)).or(T_975.last());
        let half =
            quantile.filter(|_| freedom > 0).map(|t| t * (squares / freedom as f64 / pairs as f64).sqrt());
        Self { pairs, mean, ends: half.map(|half| [mean - half, mean + half]) }
    }

    /// Returns the verdict on the goal that the mean is at least `bar`.
    pub fn at_least(&self, bar: f64) -> Verdict {
        match self.ends {
            None => Verdict::NotJudged("a single pair has no interval".to_owned()),
            Some([low, _]) if low >= bar => Verdict::Met,
            Some([_, high]) if high < bar => Verdict::at_least(bar, self.mean),
            Some(_) => Verdict::NotJudged(format!("{self} holds the bar: more pairs, or longer ones")),
        }
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ends {
            None => write!(f, "{:.3}", self.mean),
            Some([low, high]) => write!(f, "{low:.3} to {high:.3}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures were computed by hand: the deviation is 0.0158. Divided by the root of 5 it is 0.00707,
    /// and this times 2.776 is half the interval.
    #[test]
    fn an_interval_of_five_pairs() {
        let interval = Interval::of(&[0.98, 0.99, 1.0, 1.01, 1.02]);
        let [low, high] = interval.ends.expect("five pairs");
        assert!((interval.mean - 1.0).abs() < 1e-12, "{interval:?}");
        assert!((low - 0.98037).abs() < 1e-5 && (high - 1.01963).abs() < 1e-5, "{interval:?}");
        assert_eq!(interval.to_string(), "0.980 to 1.020");
    }

    #[test]
    fn one_pair_says_nothing_and_many_have_the_last_quantile() {
        assert_eq!(Interval::of(&[1.0]).ends, None);
        assert!(matches!(Interval::of(&[1.0]).at_least(0.5), Verdict::NotJudged(_)));
        let many: Vec<f64> = (0..40).map(|number| f64::from(number % 2)).collect();
        let [low, high] = Interval::of(&many).ends.expect("forty pairs");
        assert!((high - low - 2.0 * 2.042 * 0.506_369_6 / 40f64.sqrt()).abs() < 1e-6, "{low} {high}");
    }

    #[test]
    fn a_bar_inside_the_interval_is_not_judged() {
        let interval = Interval::of(&[0.98, 0.99, 1.0, 1.01, 1.02]);
        assert_eq!(interval.at_least(0.98), Verdict::Met);
        assert!(matches!(interval.at_least(0.99), Verdict::NotJudged(why) if why.contains("0.980 to 1.020")));
        assert!(matches!(interval.at_least(1.02), Verdict::Missed(_)));
    }
}
