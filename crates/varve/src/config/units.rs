//! Reads sizes such as `2GiB`, `512 KiB` and `4096`. The units `kB`, `MB`, `GB` and `TB` are powers of 1024,
//! too, as in PostgreSQL (decision 0708).

/// The largest accepted size: 8 EiB less one byte, so that sums of few sizes can't overflow.
const BYTES_MAX: u64 = i64::MAX as u64;

const UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
];

/// Reads a size in bytes. The text of an error is the end of a sentence that begins with the wrong text.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| expected())?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" => 1,
        unit => {
            UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(expected)?
        }
    };
    let bytes = number.checked_mul(factor).filter(|bytes| *bytes <= BYTES_MAX);
    bytes.ok_or_else(|| "is larger than any device".to_owned())
}

fn expected() -> String {
    "is no size: write a whole number and a unit, such as \"512MiB\" or \"2GiB\"".to_owned()
}

/// Shows a size with the largest unit that gives a whole or a short number.
pub fn show_bytes(bytes: u64) -> String {
    let units = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, factor)| bytes >= *factor) {
        None => format!("{bytes} B"),
        Some((unit, factor)) if bytes.is_multiple_of(*factor) => format!("{} {unit}", bytes / factor),
        Some((unit, factor)) => format!("{:.1} {unit}", bytes as f64 / *factor as f64),
    }
}

/// The largest number of a setting, as in PostgreSQL.
const NUMBER_MAX: u64 = i32::MAX as u64;

/// Returns the milliseconds of a time such as `250`, `250ms` or `1.5 min`.
pub fn parse_millis(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text);
    let unit_ms = match unit {
        "us" => 1e-3,
        "" | "ms" => 1.0,
        "s" => 1e3,
        "min" => 6e4,
        "h" => 3.6e6,
        "d" => 8.64e7,
        _ => return None,
    };
    let millis = (number.parse::<f64>().ok()? * unit_ms).round_ties_even();
    (millis <= NUMBER_MAX as f64).then_some(millis as u64)
}

/// Returns the kilobytes of a size such as `1024`, `10MB` or `1 GiB`.
pub fn parse_kilobytes(text: &str) -> Option<u64> {
    let kilobytes = match number_and_unit(text) {
        (number, "") => number.parse().ok()?,
        _ => parse_bytes(text).ok()? >> 10,
    };
    (kilobytes <= NUMBER_MAX).then_some(kilobytes)
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

/// Shows a number that can be missing, as PostgreSQL shows it.
pub fn show_or_none(number: Option<u64>) -> String {
    number.map_or_else(|| "-1".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        let check = |text: &str, bytes: u64, shown: &str| {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
            assert_eq!(show_bytes(bytes), shown);
        };
        check("4096", 4096, "4 KiB");
        check("2GiB", 2 << 30, "2 GiB");
        check(" 512 mib ", 512 << 20, "512 MiB");
        check("1MB", 1 << 20, "1 MiB");
        check("256mb", 256 << 20, "256 MiB");
        check("8kB", 8 << 10, "8 KiB");
        check("2 GB", 2 << 30, "2 GiB");
        check("100b", 100, "100 B");
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "GiB", "-1", "1.5GiB", "2 XiB", "99999999TiB", "1GiB2", "18446744073709551616"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_and_sizes_have_postgresqls_units() {
        for (text, millis) in [
            ("250", Some(250)),
            ("2s", Some(2000)),
            ("1.5 min", Some(90_000)),
            ("0", Some(0)),
            ("100d", None),
        ] {
            assert_eq!(parse_millis(text), millis, "{text}");
        }
        for (text, kilobytes) in [("64", Some(64)), ("10MB", Some(10_240)), ("x", None), ("4TB", None)] {
            assert_eq!(parse_kilobytes(text), kilobytes, "{text}");
        }
        assert_eq!((parse_millis("-1"), parse_millis("soon")), (None, None));
    }
}
