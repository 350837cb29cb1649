//! Claims about how many bytes packed pages save on flash, compared with pages at fixed offsets and
//! doublewrite.
//!
//! 1. Each variant is compared with uncompressed pages under doublewrite. A variant with packed compressed
//!    pages is also compared with compressed pages under doublewrite. Both then store the same row values.
//! 2. The compared bytes are those of the data drive. If the log has its own drive, the bytes by which it
//!    exceeds the baseline's log are added. The packed layout has a larger log because it logs each page
//!    write. Ratios that include the whole log are shown, but have no goal.

use super::claim::Claim;
use super::row::{Factors, Subject};
use super::tell;
use super::verdict::Verdict;
use super::wear::{BASE, LZ4, LZ4_TRIM, WearRow};

/// The bars of this project for packed pages: for bytes of the host and for bytes of flash. They hold for
/// uncompressed pages, and for compressed pages with values of about [`BAR_VALUES`].
const BAR_HOST: f64 = 2.0;
const BAR_FLASH: f64 = 6.0;
const BAR_VALUES: f64 = 0.5;
/// The least share of the flash that the uncompressed database must fill. With less, the bars are not judged.
/// The reason is that files of small databases have space that was never written.
const VALID_MIN: f64 = 0.85;

/// Which bytes of a separate log count. They are added to bytes of flash without amplification, because a
/// flash drive never moves appended bytes.
#[derive(Clone, Copy, PartialEq)]
enum LogBytes {
    /// The bytes by which the log exceeds the baseline's log.
    More,
    All,
}

/// A figure by which variants are compared: its name, its value in a row, the bytes of the log that count,
/// and its bar.
type Compared = (&'static str, fn(&WearRow) -> f64, LogBytes, Option<f64>);

const COMPARED: [Compared; 4] = [
    ("host bytes", |row| row.host_bytes, LogBytes::More, Some(BAR_HOST)),
    ("flash bytes, modelled", |row| row.flash_bytes, LogBytes::More, Some(BAR_FLASH)),
    ("host bytes and the log's", |row| row.host_bytes, LogBytes::All, None),
    ("flash bytes, modelled, and the log's", |row| row.flash_bytes, LogBytes::All, None),
];

impl LogBytes {
    /// Returns the bytes of the log that are added to the figures of the baseline and of the row.
    fn added(self, base: &WearRow, row: &WearRow) -> (f64, f64) {
        let (of_base, of_row) = (base.log_apart_bytes, row.log_apart_bytes);
        match self {
            LogBytes::More => (0.0, (of_row - of_base).max(0.0)),
            LogBytes::All => (of_base, of_row),
        }
    }
}

/// Returns claims that compare every variant with its baselines. Without a row for plain doublewrite there
/// are no claims, because this row shows how full the drive is.
pub fn claims_of(subject: Subject, rows: &[WearRow]) -> Vec<Claim> {
    let Some(plain) = rows.iter().find(|row| row.is(BASE)) else { return Vec::new() };
    let mut claims = Vec::new();
    for row in rows {
        for base in rows.iter().filter(|base| is_base(base, row)) {
            let is_apart = row.factors.get("log").is_some_and(|log| log == "apart");
            let spoilt = base.not_judged().or_else(|| row.not_judged()).or_else(|| too_empty(plain));
            let with_all = |compared: &&Compared| is_apart || compared.2 == LogBytes::More;
            for compared in COMPARED.iter().filter(with_all) {
                claims.push(claim(subject, base, row, compared, spoilt.clone()));
            }
        }
    }
    claims
}

/// Returns whether `base` is a baseline with which a row is compared.
fn is_base(base: &WearRow, row: &WearRow) -> bool {
    let values = |row: &WearRow| row.factors.get("values").cloned();
    let is_lz4 = base.is(LZ4) || base.is(LZ4_TRIM);
    match base.is(BASE) {
        true => !row.is(BASE),
        false => is_lz4 && is_packed(row) && values(row) == values(base),
    }
}

fn is_packed(row: &WearRow) -> bool {
    name_of(row).starts_with("packed")
}

fn name_of(row: &WearRow) -> String {
    row.factors.get("variant").map(tell::plain).unwrap_or_default()
}

fn too_empty(plain: &WearRow) -> Option<String> {
    (plain.valid_share < VALID_MIN).then(|| {
        format!("flash is {:.0} % full of the plain database: take a larger one", 100.0 * plain.valid_share)
    })
}

fn claim(
    Subject { experiment, figure }: Subject,
    base: &WearRow,
    row: &WearRow,
    (what, of, log, bar): &Compared,
    spoilt: Option<String>,
) -> Claim {
    let values = row.factors.get("values").and_then(|values| values.as_f64());
    let has_bar = is_packed(row) && values.is_none_or(|values| values == BAR_VALUES);
    let (of_base, of_row) = log.added(base, row);
    let (bar, ours) = (bar.filter(|_| has_bar), (of(base) + of_base) / (of(row) + of_row));
    let verdict = match (bar, spoilt) {
        (None, _) => Verdict::NoBar,
        (Some(_), Some(reason)) => Verdict::NotJudged(reason),
        (Some(bar), None) => Verdict::at_least(bar, ours),
    };
    let mut factors: Factors = row.factors.clone();
    factors.remove("variant");
    let says = format!("{} / {}, {what} a transaction", name_of(base), name_of(row));
    let (row, rounds, published) = ("claim", None, None);
    Claim { row, experiment, figure, factors, says, ours, rounds, published, bar, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a row with these bytes. The tests use small numbers, because only ratios matter.
    fn row(variant: &str, values: Option<f64>, log: &str, [host, flash, apart]: [f64; 3]) -> WearRow {
        let mut factors = Factors::from([("variant", variant.into()), ("log", log.into())]);
        factors.extend(values.map(|values| ("values", values.into())));
        WearRow {
            row: "wear",
            experiment: "e",
            figure: "f",
            factors,
            configuration: String::new(),
            flash: "modelled",
            capacity_bytes: 1,
            overwritten_before: 2.0,
            valid_share: 0.9,
            transactions: 1,
            stored_share: None,
            pages_written: 1.0,
            host_bytes: host,
            flash_bytes: flash,
            log_apart_bytes: apart,
            host_bytes_of_a_page: 1.0,
            flash_bytes_of_a_page: 1.0,
            translation_amplification: 1.0,
            packed_amplification: None,
            trimmed_bytes: 0.0,
            by_purpose: Vec::new(),
            halves_differ: 0.0,
        }
    }

    fn found(rows: &[WearRow]) -> Vec<(String, f64, Verdict)> {
        let claims = claims_of(Subject { experiment: "e", figure: "f" }, rows);
        claims.into_iter().map(|claim| (claim.says, claim.ours, claim.verdict)).collect()
    }

    fn verdict<'f>(found: &'f [(String, f64, Verdict)], says: &str) -> &'f (String, f64, Verdict) {
        let says = format!("{says} a transaction");
        found.iter().find(|(is, ..)| *is == says).unwrap_or_else(|| panic!("{says} of {found:?}"))
    }

    #[test]
    fn the_like_is_held_against_the_like_and_notes_in_the_log_count() {
        let half = Some(0.5);
        let rows = [
            row(BASE, None, "apart", [6.0, 18.0, 1.0]),
            row(LZ4, half, "apart", [3.0, 12.0, 1.0]),
            row(LZ4_TRIM, Some(0.75), "apart", [5.0, 12.0, 1.0]),
            row("packed", None, "apart", [2.0, 3.0, 1.5]),
            row("packed lz4", half, "apart", [1.0, 1.0, 2.0]),
        ];
        let found = found(&rows);
        let of = |says: &str| verdict(&found, says);
        assert_eq!(of("doublewrite / packed, host bytes and the log's").1, 7.0 / 3.5);
        assert_eq!(of("doublewrite / packed, host bytes and the log's").2, Verdict::NoBar);
        assert_eq!(of("doublewrite / packed, host bytes").1, 6.0 / 2.5);
        assert_eq!(of("doublewrite / packed, host bytes").2, Verdict::Met);
        assert!(matches!(of("doublewrite / packed, flash bytes, modelled").2, Verdict::Missed(_)));
        assert_eq!(of("doublewrite / packed lz4, flash bytes, modelled").2, Verdict::Met);
        assert!(matches!(of("doublewrite lz4 / packed lz4, host bytes").2, Verdict::Missed(_)));
        assert_eq!(of("doublewrite / doublewrite lz4, host bytes").2, Verdict::NoBar);
        let others = |says: &str| found.iter().any(|(is, ..)| is.starts_with(says));
        assert!(!others("doublewrite lz4 trim /") && !others("doublewrite lz4 / packed,"), "{found:?}");
        assert_eq!(found.len(), 4 * 5);
    }

    #[test]
    fn a_log_on_the_drive_is_in_its_bytes_and_other_values_have_no_bar() {
        let mut rows = [
            row(BASE, None, "here", [6.0, 18.0, 0.0]),
            row("packed lz4", Some(0.5), "here", [2.0, 2.0, 0.0]),
            row("packed lz4", Some(0.75), "here", [4.0, 4.0, 0.0]),
        ];
        let verdicts = |rows: &[WearRow]| found(rows).into_iter().map(|(.., is)| is).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows), [Verdict::Met, Verdict::Met, Verdict::NoBar, Verdict::NoBar]);
        rows[0].valid_share = 0.5;
        let spoilt = verdicts(&rows);
        assert!(spoilt[..2].iter().all(|is| matches!(is, Verdict::NotJudged(_))), "{spoilt:?}");
        assert_eq!(found(&rows[1..]), []);
    }
}
