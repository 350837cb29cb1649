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
}
