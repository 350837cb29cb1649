//! Character encodings: PostgreSQL's names and numbers, and conversion from and to UTF-8. The database stores
//! all text in UTF-8.
//!
//! Invariants
//! 1. A conversion finds an equivalent for every byte or character, or fails with 22P05. It replaces nothing
//!    and leaves nothing out.
//! 2. Bytes below 0x80 mean the same in every encoding that can be converted.
//!
//! Only UTF-8 and encodings of one byte per character are converted. Other encodings are known by name only.

use std::borrow::Cow;
use std::sync::OnceLock;

use encoding_rs as tables;

use crate::error::{Result, SqlError, SqlState};

/// One of PostgreSQL's encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding(u8);

impl Default for Encoding {
    fn default() -> Self {
        Encoding::UTF8
    }
}

/// The conversion of an encoding to UTF-8.
#[derive(Clone, Copy)]
enum Conversion {
    /// No conversion: the encoding is UTF-8, or its bytes are treated as UTF-8.
    None,
    /// The encoding cannot be converted.
    Lacking,
    /// Each byte is the number of its code point.
    Latin1,
    /// Each byte is converted by this table. If `c1` is set, 0x80 to 0x9F are the control characters with
    /// these numbers, as in ISO 8859. Otherwise such a character in the table means that the byte has no
    /// character.
    Table { table: &'static tables::Encoding, c1: bool },
}

struct Known {
    name: &'static str,
    /// The most bytes of a character.
    bytes_max: i32,
    conversion: Conversion,
}

const fn known(name: &'static str, bytes_max: i32, conversion: Conversion) -> Known {
    Known { name, bytes_max, conversion }
}

const fn iso(name: &'static str, table: &'static tables::Encoding) -> Known {
    known(name, 1, Conversion::Table { table, c1: true })
}

const fn vendor(name: &'static str, table: &'static tables::Encoding) -> Known {
    known(name, 1, Conversion::Table { table, c1: false })
}

const fn lacking(name: &'static str, bytes_max: i32) -> Known {
    known(name, bytes_max, Conversion::Lacking)
}

/// The encodings, in the order of PostgreSQL's numbers (`pg_enc` in its pg_wchar.h).
const KNOWN: [Known; 42] = [
    known("SQL_ASCII", 1, Conversion::None),
    lacking("EUC_JP", 3),
    lacking("EUC_CN", 3),
    lacking("EUC_KR", 3),
    lacking("EUC_TW", 4),
    lacking("EUC_JIS_2004", 3),
    known("UTF8", 4, Conversion::None),
    lacking("MULE_INTERNAL", 4),
    known("LATIN1", 1, Conversion::Latin1),
    iso("LATIN2", tables::ISO_8859_2),
    iso("LATIN3", tables::ISO_8859_3),
    iso("LATIN4", tables::ISO_8859_4),
    // Windows-1254 is ISO 8859-9 with other characters instead of control characters.
    iso("LATIN5", tables::WINDOWS_1254),
    iso("LATIN6", tables::ISO_8859_10),
    iso("LATIN7", tables::ISO_8859_13),
    iso("LATIN8", tables::ISO_8859_14),
    iso("LATIN9", tables::ISO_8859_15),
    iso("LATIN10", tables::ISO_8859_16),
    vendor("WIN1256", tables::WINDOWS_1256),
    vendor("WIN1258", tables::WINDOWS_1258),
    vendor("WIN866", tables::IBM866),
    vendor("WIN874", tables::WINDOWS_874),
    vendor("KOI8R", tables::KOI8_R),
    vendor("WIN1251", tables::WINDOWS_1251),
    vendor("WIN1252", tables::WINDOWS_1252),
    iso("ISO_8859_5", tables::ISO_8859_5),
    iso("ISO_8859_6", tables::ISO_8859_6),
    iso("ISO_8859_7", tables::ISO_8859_7),
    iso("ISO_8859_8", tables::ISO_8859_8),
    vendor("WIN1250", tables::WINDOWS_1250),
    vendor("WIN1253", tables::WINDOWS_1253),
    vendor("WIN1254", tables::WINDOWS_1254),
    vendor("WIN1255", tables::WINDOWS_1255),
    vendor("WIN1257", tables::WINDOWS_1257),
    vendor("KOI8U", tables::KOI8_U),
    lacking("SJIS", 2),
    lacking("BIG5", 2),
    lacking("GBK", 2),
    lacking("UHC", 2),
    lacking("GB18030", 4),
    lacking("JOHAB", 3),
    lacking("SHIFT_JIS_2004", 2),
];

/// Other names, without characters that are not alphanumeric.
const ALIASES: &[(&str, &str)] = &[
    ("abc", "WIN1258"),
    ("alt", "WIN866"),
    ("iso88591", "LATIN1"),
    ("iso885910", "LATIN6"),
    ("iso885913", "LATIN7"),
    ("iso885914", "LATIN8"),
    ("iso885915", "LATIN9"),
    ("iso885916", "LATIN10"),
    ("iso88592", "LATIN2"),
    ("iso88593", "LATIN3"),
    ("iso88594", "LATIN4"),
    ("iso88599", "LATIN5"),
    ("koi8", "KOI8R"),
    ("mskanji", "SJIS"),
    ("shiftjis", "SJIS"),
    ("tcvn", "WIN1258"),
    ("tcvn5712", "WIN1258"),
    ("unicode", "UTF8"),
    ("vscii", "WIN1258"),
    ("win", "WIN1251"),
    ("win932", "SJIS"),
    ("win936", "GBK"),
    ("win949", "UHC"),
    ("win950", "BIG5"),
    ("windows866", "WIN866"),
    ("windows874", "WIN874"),
    ("windows932", "SJIS"),
    ("windows936", "GBK"),
    ("windows949", "UHC"),
    ("windows950", "BIG5"),
    ("windows1250", "WIN1250"),
    ("windows1251", "WIN1251"),
    ("windows1252", "WIN1252"),
    ("windows1253", "WIN1253"),
    ("windows1254", "WIN1254"),
    ("windows1255", "WIN1255"),
    ("windows1256", "WIN1256"),
    ("windows1257", "WIN1257"),
    ("windows1258", "WIN1258"),
];

/// Characters for which PostgreSQL differs from the tables, which are those of web browsers. `None` means
/// that PostgreSQL has no character.
const DIFFERENT: &[(&str, u8, Option<char>)] =
    &[("WIN1255", 0xCA, None), ("KOI8U", 0xAE, Some('\u{255d}')), ("KOI8U", 0xBE, Some('\u{256c}'))];

/// The characters of the bytes from 0x80 on, and the bytes of the characters, in the order of the characters.
struct Table {
    characters: [Option<char>; 128],
    bytes: Vec<(char, u8)>,
}

static TABLES: [OnceLock<Table>; KNOWN.len()] = [const { OnceLock::new() }; KNOWN.len()];

/// Returns the characters of a name that matter.
fn plain(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase())
}

impl Encoding {
    /// The encoding of all text in the database.
    pub const UTF8: Encoding = Encoding(6);

    /// Returns an encoding by any of its names. Characters that are not alphanumeric are ignored.
    pub fn named(name: &str) -> Option<Encoding> {
        let name: String = plain(name).collect();
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, name)| *name);
        let is_it = |known: &Known| plain(known.name).eq(plain(alias.unwrap_or(&name)));
        KNOWN.iter().position(is_it).map(|number| Encoding(number as u8))
    }

    /// Returns an encoding by PostgreSQL's number.
    pub fn numbered(number: i32) -> Option<Encoding> {
        let number = u8::try_from(number).ok()?;
        (usize::from(number) < KNOWN.len()).then_some(Encoding(number))
    }

    fn known(self) -> &'static Known {
        &KNOWN[usize::from(self.0)]
    }

    /// Returns PostgreSQL's number of the encoding.
    pub fn number(self) -> i32 {
        i32::from(self.0)
    }

    /// Returns the first name in PostgreSQL.
    pub fn name(self) -> &'static str {
        self.known().name
    }

    /// Returns the most bytes of a character.
    pub fn bytes_max(self) -> i32 {
        self.known().bytes_max
    }

    /// Returns whether text must be converted.
    #[inline]
    pub fn converts(self) -> bool {
        self != Encoding::UTF8 && !matches!(self.known().conversion, Conversion::None)
    }

    /// Returns whether text can be converted, or needs no conversion.
    pub fn is_available(self) -> bool {
        !matches!(self.known().conversion, Conversion::Lacking)
    }

    /// Returns the table, if there is one. The error is 0A000 for an encoding that is known by name only.
    fn table(self) -> Result<Option<&'static Table>> {
        match self.known().conversion {
            Conversion::None => Ok(None),
            Conversion::Lacking => {
                let name = self.name();
                Err(SqlError::unsupported(format!("conversion between {name} and UTF8")))
            }
            _ => Ok(Some(TABLES[usize::from(self.0)].get_or_init(|| Table::new(self.known())))),
        }
    }

    /// Converts bytes of this encoding to UTF-8. If no conversion is needed, the bytes stay unchanged without
    /// a check. Otherwise a zero byte is the error 22021.
    pub fn to_utf8(self, raw: &[u8]) -> Result<Cow<'_, [u8]>> {
        let Some(table) = self.table()? else { return Ok(Cow::Borrowed(raw)) };
        if raw.contains(&0) {
            let message = format!("invalid byte sequence for encoding \"{}\": 0x00", self.name());
            return Err(SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message));
        }
        if raw.is_ascii() {
            return Ok(Cow::Borrowed(raw));
        }
        let mut text = String::with_capacity(raw.len() + raw.len() / 2);
        for &byte in raw {
            match byte.checked_sub(0x80) {
                None => text.push(char::from(byte)),
                Some(at) => {
                    let character = table.characters[usize::from(at)];
                    text.push(character.ok_or_else(|| no_equivalent(&[byte], self.name(), "UTF8"))?);
                }
            }
        }
        Ok(Cow::Owned(text.into_bytes()))
    }

    /// Converts text to this encoding.
    pub fn of_utf8<'t>(self, text: &'t str) -> Result<Cow<'t, [u8]>> {
        self.converted(text, |c| {
            Err(no_equivalent(c.encode_utf8(&mut [0; 4]).as_bytes(), "UTF8", self.name()))
        })
    }

    /// Converts text to this encoding, for messages that must not fail. Characters without an equivalent
    /// become question marks.
    pub fn of_utf8_lossy<'t>(self, text: &'t str) -> Cow<'t, [u8]> {
        self.converted(text, |_| Ok(b'?')).unwrap_or(Cow::Borrowed(text.as_bytes()))
    }

    fn converted<'t>(self, text: &'t str, lacks: impl Fn(char) -> Result<u8>) -> Result<Cow<'t, [u8]>> {
        let Some(table) = self.table()? else { return Ok(Cow::Borrowed(text.as_bytes())) };
        if text.is_ascii() {
            return Ok(Cow::Borrowed(text.as_bytes()));
        }
        let byte = |c: char| match table.bytes.binary_search_by_key(&c, |(c, _)| *c) {
            _ if c.is_ascii() => Ok(c as u8),
            Ok(at) => Ok(table.bytes[at].1),
            Err(_) => lacks(c),
        };
        text.chars().map(byte).collect::<Result<Vec<u8>>>().map(Cow::Owned)
    }
}

impl Table {
    fn new(known: &Known) -> Table {
        let different = |byte: u8| DIFFERENT.iter().find(|(name, b, _)| *name == known.name && *b == byte);
        let character = |byte: u8| match known.conversion {
            _ if let Some((_, _, character)) = different(byte) => *character,
            Conversion::Latin1 => Some(char::from(byte)),
            Conversion::Table { c1: true, .. } if byte < 0xA0 => Some(char::from(byte)),
            Conversion::Table { table, c1 } => {
                let bytes = [byte];
                let decoded = table.decode_without_bom_handling_and_without_replacement(&bytes);
                let character = decoded.and_then(|text| text.chars().next());
                character.filter(|c| c1 || !matches!(c, '\u{80}'..='\u{9f}'))
            }
            Conversion::None | Conversion::Lacking => None,
        };
        let characters = std::array::from_fn(|at| character(at as u8 + 0x80));
        let known = characters.iter().enumerate();
        let mut bytes: Vec<_> = known.filter_map(|(at, c)| Some(((*c)?, at as u8 + 0x80))).collect();
        bytes.sort_unstable();
        Table { characters, bytes }
    }
}

/// Returns the error 22P05.
fn no_equivalent(bytes: &[u8], from: &str, to: &str) -> SqlError {
    let shown: Vec<String> = bytes.iter().map(|byte| format!("0x{byte:02x}")).collect();
    let message = format!(
        "character with byte sequence {} in encoding \"{from}\" has no equivalent in encoding \"{to}\"",
        shown.join(" ")
    );
    SqlError::new(SqlState::UNTRANSLATABLE_CHARACTER, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Encoding {
        Encoding::named(name).unwrap_or_else(|| panic!("{name}"))
    }

    #[test]
    fn names_are_found_in_all_spellings() {
        for (name, expect) in [
            ("'utf-8'", "UTF8"),
            ("UTF_8", "UTF8"),
            ("unicode", "UTF8"),
            ("ISO-8859-1", "LATIN1"),
            ("Windows-1252", "WIN1252"),
            ("latin 9", "LATIN9"),
            ("iso_8859_5", "ISO_8859_5"),
            ("KOI8", "KOI8R"),
            ("Shift_JIS", "SJIS"),
        ] {
            assert_eq!(named(name).name(), expect, "{name}");
        }
        assert_eq!(Encoding::named("latin11"), None);
        assert_eq!(Encoding::named(""), None);
        assert_eq!(Encoding::numbered(-1), None);
        assert_eq!(Encoding::numbered(42), None);
        for number in 0..42 {
            assert_eq!(named(KNOWN[number as usize].name).number(), number);
        }
        for (_, name) in ALIASES {
            named(name);
        }
    }

    #[test]
    fn what_is_converted_comes_back() {
        for number in 0..KNOWN.len() as i32 {
            let Some(encoding) = Encoding::numbered(number).filter(|e| e.converts() && e.is_available())
            else {
                continue;
            };
            let mut count = 0;
            for byte in 1..=255 {
                let Ok(text) = encoding.to_utf8(&[byte]).map(Cow::into_owned) else { continue };
                let text = String::from_utf8(text).unwrap();
                assert_eq!(encoding.of_utf8(&text).unwrap().as_ref(), [byte], "{}", encoding.name());
                count += 1;
            }
            assert!(count > 200, "{}: {count}", encoding.name());
        }
    }

    #[test]
    fn what_has_no_equivalent_is_an_error() {
        let e = named("latin1").of_utf8("a\u{20ac}").unwrap_err();
        assert_eq!(e.sqlstate.0, "22P05");
        assert_eq!(
            &*e.message,
            "character with byte sequence 0xe2 0x82 0xac in encoding \"UTF8\" has no equivalent in encoding \
             \"LATIN1\""
        );
        assert_eq!(named("latin1").of_utf8_lossy("a\u{20ac}\u{fc}").as_ref(), b"a?\xfc");
        assert_eq!(named("latin9").of_utf8("\u{20ac}").unwrap().as_ref(), b"\xa4");
        assert_eq!(named("win1252").to_utf8(b"\x81").unwrap_err().sqlstate.0, "22P05");
        assert_eq!(named("sjis").to_utf8(b"a").unwrap_err().sqlstate.0, "0A000");
        assert_eq!(named("sql_ascii").to_utf8(b"\xff").unwrap().as_ref(), b"\xff");
    }
}
