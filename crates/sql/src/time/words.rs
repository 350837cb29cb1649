//! The words with a meaning in dates and times, such as months and `today`.
//!
//! Source: the table of PostgreSQL's manual, appendix B.3 (Date/Time Key Words).

/// The meaning of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// A month, from 1 to 12.
    Month(i64),
    /// A day of the week, which is ignored.
    Weekday,
    /// PM (true) or AM (false).
    Half(bool),
    /// BC (true) or AD (false).
    Era(bool),
    /// A time that has a name.
    Named(Named),
    /// The meaning of the next number.
    Label(Label),
    /// Daylight saving time, which adds one hour to the time zone before it.
    Daylight,
    /// A word that is ignored: `at`, `on`.
    Filler,
}

/// A time that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// The start of the transaction.
    Now,
    /// Midnight at the start of today, plus this number of days.
    Today(i64),
    /// 1970-01-01 00:00 UTC
    Epoch,
    /// infinity
    Late,
    /// -infinity
    Early,
    /// `allballs`: 00:00 UTC
    Midnight,
}

/// The meaning of a number, by the word before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Julian,
    /// `T`: a time of day follows.
    Time,
    /// A word for a unit that dates do not have.
    Other,
}

/// The number of letters of a word that count.
const WORD_LEN_MAX: usize = 10;

/// Returns the meaning of a word in lower case.
pub(super) fn of(word: &str) -> Option<Word> {
    let word = word.get(..WORD_LEN_MAX).unwrap_or(word);
    if let Some(month) = month(word) {
        return Some(Word::Month(month));
    }
    Some(match word {
        "sun" | "sunday" | "mon" | "monday" | "tue" | "tues" | "tuesday" | "wed" | "weds" | "wednesday"
        | "thu" | "thur" | "thurs" | "thursday" | "fri" | "friday" | "sat" | "saturday" => Word::Weekday,
        "am" => Word::Half(false),
        "pm" => Word::Half(true),
        "ad" => Word::Era(false),
        "bc" => Word::Era(true),
        "now" => Word::Named(Named::Now),
        "today" => Word::Named(Named::Today(0)),
        "tomorrow" => Word::Named(Named::Today(1)),
        "yesterday" => Word::Named(Named::Today(-1)),
        "epoch" => Word::Named(Named::Epoch),
        "infinity" => Word::Named(Named::Late),
        "-infinity" => Word::Named(Named::Early),
        "allballs" => Word::Named(Named::Midnight),
        "y" => Word::Label(Label::Year),
        "m" => Word::Label(Label::Month),
        "d" => Word::Label(Label::Day),
        "h" => Word::Label(Label::Hour),
        "mm" => Word::Label(Label::Minute),
        "s" => Word::Label(Label::Second),
        "j" | "jd" | "julian" => Word::Label(Label::Julian),
        "t" => Word::Label(Label::Time),
        "dow" | "doy" | "isodow" | "isoyear" => Word::Label(Label::Other),
        "dst" => Word::Daylight,
        "at" | "on" => Word::Filler,
        _ => return None,
    })
}

fn month(word: &str) -> Option<i64> {
    Some(match word {
        "jan" | "january" => 1,
        "feb" | "february" => 2,
        "mar" | "march" => 3,
        "apr" | "april" => 4,
        "may" => 5,
        "jun" | "june" => 6,
        "jul" | "july" => 7,
        "aug" | "august" => 8,
        "sep" | "sept" | "september" => 9,
        "oct" | "october" => 10,
        "nov" | "november" => 11,
        "dec" | "december" => 12,
        _ => return None,
    })
}
