//! Reads TOML tables key by key, so that the message for a mistake names its line.
//!
//! Invariants
//! 1. Every key of a table is either read, or reported as unknown by `finish`.
//! 2. An error names the line, the full key (`pool.size`), and a correct value.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use varve_pager::{Form, Setting};

use super::foreign;
use super::suggest::nearest;
use super::units::parse_bytes;

/// A mistake in the configuration, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}line {line}: {message}", file.as_ref().map(|file| format!("{file}, ")).unwrap_or_default())]
pub struct ConfigError {
    /// The file, once it is known.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// The mistake, and the correct form.
    pub message: String,
}

type Result<T> = std::result::Result<T, ConfigError>;
type Entry<'i> = (Spanned<Cow<'i, str>>, Spanned<DeValue<'i>>);

/// A table, and the keys that were not read yet.
pub struct SectionReader<'i> {
    text: &'i str,
    path: String,
    /// The position of the table's name.
    at: usize,
    entries: Vec<Entry<'i>>,
    known: Vec<&'static str>,
}

impl<'i> SectionReader<'i> {
    /// Parses a whole file.
    pub fn parse(text: &'i str) -> Result<Self> {
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = whole_line(text, at);
            let message = match error.message() {
                "duplicate key" => twice(line),
                message => no_toml(line).unwrap_or_else(|| message.to_owned()),
            };
            ConfigError { file: None, line: line_at(text, at), message }
        })?;
        Ok(Self::new(text, String::new(), 0, table.into_inner()))
    }

    fn new(text: &'i str, path: String, at: usize, table: DeTable<'i>) -> Self {
        let mut entries: Vec<Entry<'i>> = table.into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        Self { text, path, at, entries, known: Vec::new() }
    }

    /// Returns whether the table has a key.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Returns the table with this key, or an empty table if the key is missing.
    pub fn section(&mut self, key: &'static str) -> Result<SectionReader<'i>> {
        let at = self.key_position(key);
        match self.take(key) {
            Some(value) => self.table(key, at, value),
            None => Ok(Self::new(self.text, self.full(key), at, DeTable::new())),
        }
    }

    /// Returns all tables within this one.
    pub fn all_sections(mut self) -> Result<Vec<(String, SectionReader<'i>)>> {
        let entries = std::mem::take(&mut self.entries);
        let named = entries.into_iter().map(|(key, value)| {
            let named_at = key.span().start;
            let name = key.into_inner().into_owned();
            let table = self.table(&name, named_at, value)?;
            Ok((name, table))
        });
        named.collect()
    }

    fn table(&self, key: &str, named_at: usize, value: Spanned<DeValue<'i>>) -> Result<SectionReader<'i>> {
        let at = value.span().start;
        match value.into_inner() {
            DeValue::Table(table) => Ok(Self::new(self.text, self.full(key), named_at, table)),
            other => Err(self.wrong_type(key, at, "a table", &other)),
        }
    }

    /// Reads a text.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let at = value.span().start;
        match value.into_inner() {
            DeValue::String(text) => Ok(Some(text.into_owned())),
            other => Err(self.wrong_type(key, at, "text in quotes", &other)),
        }
    }

    /// Reads `true` or `false`.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let at = value.span().start;
        match value.into_inner() {
            DeValue::Boolean(flag) => Ok(Some(flag)),
            other => Err(self.wrong_type(key, at, "true or false", &other)),
        }
    }

    /// Reads a whole number within `range`.
    pub fn count(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<usize>,
    ) -> Result<Option<usize>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let at = value.span().start;
        let number = match value.into_inner() {
            DeValue::Integer(number) => usize::from_str_radix(number.as_str(), number.radix()),
            other => return Err(self.wrong_type(key, at, "a whole number", &other)),
        };
        match number {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let message = format!("must be between {} and {}", range.start(), range.end());
                Err(self.error(key, at, &message))
            }
        }
    }

    /// Reads a whole number within `range`, or a word that means none.
    pub fn count_or(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<usize>,
        word: &str,
    ) -> Result<Option<Option<usize>>> {
        match self.find(key).map(|(_, value)| value.get_ref()) {
            Some(DeValue::String(text)) if *text == word => Ok(self.take(key).map(|_| None)),
            Some(DeValue::String(text)) => {
                let problem = format!("= \"{text}\" is unknown; write a whole number or \"{word}\"");
                Err(self.error(key, self.position(key), &problem))
            }
            _ => Ok(self.count(key, range)?.map(Some)),
        }
    }

    /// Reads a number, or a text with a unit that `parse` reads. -1 means none.
    pub fn number_or_none(
        &mut self,
        key: &'static str,
        example: &str,
        parse: fn(&str) -> Option<u64>,
    ) -> Result<Option<Option<u64>>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let at = value.span().start;
        let text = match value.into_inner() {
            DeValue::String(text) => text.into_owned(),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => number.to_string(),
                Err(_) => number.as_str().to_owned(),
            },
            other => return Err(self.wrong_type(key, at, &format!("a number such as {example}"), &other)),
        };
        match parse(&text) {
            _ if text.trim() == "-1" => Ok(Some(None)),
            Some(number) => Ok(Some(Some(number))),
            None => {
                let problem = format!("= \"{text}\" is not valid; write -1 for none, or {example}");
                Err(self.error(key, at, &problem))
            }
        }
    }

    /// Reads a size in bytes: a number, or a text with a unit.
    pub fn bytes(&mut self, key: &'static str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let at = value.span().start;
        let has_unit = matches!(value.get_ref(), DeValue::String(_));
        let bytes = match value.into_inner() {
            DeValue::String(text) => parse_bytes(&text)
                .map_err(|problem| self.error(key, at, &format!("= \"{text}\" {problem}")))?,
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| self.error(key, at, "is no size"))?,
            other => return Err(self.wrong_type(key, at, "a size such as \"2GiB\"", &other)),
        };
        if !range.contains(&bytes) {
            let show = super::units::show_bytes;
            let unit = if has_unit { "" } else { "; a number without a unit, such as MiB, is of bytes" };
            let message =
                format!("must be between {} and {}{unit}", show(*range.start()), show(*range.end()));
            return Err(self.error(key, at, &message));
        }
        Ok(Some(bytes))
    }

    /// Reads one of several words.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let at = self.position(key);
        let Some(word) = self.text(key)? else { return Ok(None) };
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == word) {
            return Ok(Some(*choice));
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let message = format!("= \"{word}\" is unknown; choose one of: {}", names.join(", "));
        Err(self.error(key, at, &message))
    }

    /// Reads the settings of a table into `into`. Settings that the section doesn't name stay as they are.
    pub fn declared<S>(&mut self, table: &[Setting<S>], into: &mut S) -> Result<()> {
        for Setting { key, form, .. } in table {
            match form {
                Form::Bytes { bounds, set, .. } => {
                    if let Some(bytes) = self.bytes(key, bounds.clone())? {
                        set(into, bytes);
                    }
                }
                Form::Limit { bounds, set, .. } => {
                    if let Some(bytes) = self.bytes(key, bounds.clone())? {
                        set(into, Some(bytes));
                    }
                }
                Form::Count { bounds, set, .. } => {
                    if let Some(count) = self.count(key, bounds.clone())? {
                        set(into, count);
                    }
                }
                Form::Flag { set, .. } => {
                    if let Some(flag) = self.flag(key)? {
                        set(into, flag);
                    }
                }
                Form::Word { words, set, .. } => {
                    let words: Vec<_> = words().into_iter().map(|word| (word, word)).collect();
                    if let Some(word) = self.choice(key, &words)? {
                        set(into, word);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the position of a key's value, or of its table if the key is missing. The caller needs the
    /// position for errors that it finds later.
    pub fn position(&self, key: &str) -> usize {
        self.find(key).map_or(self.at, |(_, value)| value.span().start)
    }

    /// Returns the position of a key.
    pub fn key_position(&self, key: &str) -> usize {
        self.find(key).map_or(self.at, |(name, _)| name.span().start)
    }

    fn find(&self, key: &str) -> Option<&Entry<'i>> {
        self.entries.iter().find(|(name, _)| name.get_ref() == key)
    }

    /// Returns an error about a key.
    pub fn error(&self, key: &str, at: usize, problem: &str) -> ConfigError {
        let message = format!("{} {problem}", self.full(key));
        ConfigError { file: None, line: line_at(self.text, at), message }
    }

    /// Reports the first unknown key.
    pub fn finish(self) -> Result<()> {
        let Some((key, _)) = self.entries.first() else { return Ok(()) };
        let name = key.get_ref();
        let line = whole_line(self.text, key.span().start);
        let value = foreign::name_and_value(line).map_or("", |(_, value)| value);
        if let Some(advice) = foreign::advice(name, value).filter(|_| self.path.is_empty()) {
            return Err(self.error(name, key.span().start, &format!("is unknown; {advice}")));
        }
        let advice = match nearest(name, &self.known) {
            Some(near) => format!("did you mean {}?", self.full(near)),
            None => format!("known here: {}", self.known.join(", ")),
        };
        let message = format!("is unknown; {advice}");
        Err(self.error(name, key.span().start, &message))
    }

    fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'i>>> {
        self.known.push(key);
        let at = self.entries.iter().position(|(name, _)| name.get_ref() == key)?;
        Some(self.entries.remove(at).1)
    }

    fn full(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn wrong_type(&self, key: &str, at: usize, wanted: &str, found: &DeValue<'_>) -> ConfigError {
        self.error(key, at, &format!("must be {wanted}, not {} value", found.type_str()))
    }
}

/// Returns the text of a file.
///
/// # Errors
/// The text is not UTF-8. The error has the line of the first wrong byte.
pub fn text_of(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.into_bytes();
        let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
        let message = format!("the byte 0x{:02x} is not UTF-8; write the line again, as UTF-8", bytes[at]);
        ConfigError { file: None, line, message }
    })
}

/// Returns the correct form of a line that is not TOML: a PostgreSQL setting, or a value without quotes.
fn no_toml(line: &str) -> Option<String> {
    let (name, value) = foreign::name_and_value(line)?;
    if let Some(advice) = foreign::advice(name, value) {
        return Some(format!("{name} is unknown; {advice}"));
    }
    if let Some(right) = foreign::flag(value) {
        return Some(format!("{name}: a flag is true or false: write {name} = {right}"));
    }
    let is_bare = value.starts_with(|c: char| c.is_ascii_alphanumeric()) && !value.contains(['"', '\'']);
    is_bare.then(|| format!("{name}: text and sizes stand in quotes: write {name} = \"{value}\""))
}

/// Returns the message for a key or a section that the file has twice. `line` has the second one.
fn twice(line: &str) -> String {
    let name = line.split(['=', '#']).next().unwrap_or(line).trim();
    format!("{name} is set twice: remove one of the two")
}

/// Returns the line that has the byte at position `at`.
fn whole_line(text: &str, at: usize) -> &str {
    let at = at.min(text.len());
    let bytes = text.as_bytes();
    let is_end = |byte: &u8| *byte == b'\n';
    let start = bytes[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
    let end = bytes[at..].iter().position(is_end).map_or(text.len(), |end| at + end);
    text.get(start..end).unwrap_or_default()
}

fn line_at(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}
