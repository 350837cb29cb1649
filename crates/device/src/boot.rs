//! Identifies the current boot of the machine. A later boot has another identity, so a start can notice that
//! everything that was only in memory is lost.

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const DIGITS: usize = 16;

/// Returns a number that identifies the current boot of the machine, not 0, or `None` if the system has no
/// such number.
pub(crate) fn boot_id() -> Option<u64> {
    number(&std::fs::read_to_string(BOOT_ID).ok()?)
}

/// Returns the first half of a UUID as a number.
fn number(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(DIGITS).collect();
    let is_whole = digits.len() == DIGITS;
    u64::from_str_radix(&digits, 16).ok().filter(|number| is_whole && *number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_half_of_a_uuid_counts() {
        assert_eq!(number("0a1b2c3d-0001-0002-0003-000000000004\n"), Some(0x0a1b_2c3d_0001_0002));
        assert_eq!(number("0a1b2c3d-0001\n"), None);
        assert_eq!(number(""), None);
    }
}
