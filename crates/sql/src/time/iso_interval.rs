//! Reads intervals of ISO 8601. There are three formats: numbers with unit letters (`P1Y2M3DT4H5M6S`),
//! numbers with separators (`P0001-02-03T04:05:06`), and digits only (`P00010203T040506`).
//!
//! Other formats are in `read_interval`. The behaviour is that of `DecodeISO8601Interval` in PostgreSQL's
//! `datetime.c`.

use super::read_interval::{Amount, Bad, Parts, Unit};

type Done<T = ()> = Result<T, Bad>;

/// The largest number that is in range.
const NUMBER_MAX: f64 = 1e15;

struct Reader<'t> {
    rest: &'t str,
    parts: Parts,
}

/// Reads a text that begins with P.
pub(super) fn parse(text: &str) -> Done<Parts> {
    let rest = text.strip_prefix('P').filter(|rest| !rest.is_empty()).ok_or(Bad::Format)?;
    let mut reader = Reader { rest, parts: Parts::default() };
    if reader.date()? {
        reader.clock()?;
    }
    Ok(reader.parts)
}

impl Reader<'_> {
    /// Reads the part before T. Returns whether there is a T.
    fn date(&mut self) -> Done<bool> {
        let mut is_first = true;
        while !self.rest.is_empty() {
            if self.skip('T') {
                return Ok(true);
            }
            let (amount, digits) = self.number()?;
            match self.next() {
                Some('Y') => self.add(amount, Unit::YEAR)?,
                Some('M') => self.add(amount, Unit::Months(1))?,
                Some('W') => self.add(amount, Unit::Days(7))?,
                Some('D') => self.add(amount, Unit::Days(1))?,
                end @ (None | Some('T')) if is_first && digits == 8 => {
                    self.run_together(
                        amount,
                        [(10_000, Unit::YEAR), (100, Unit::Months(1)), (1, Unit::Days(1))],
                    )?;
                    return Ok(end.is_some());
                }
                end @ (None | Some('T' | '-')) if is_first => {
                    self.add(amount, Unit::YEAR)?;
                    return match end {
                        Some('-') => self.with_signs('-', [Unit::Months(1), Unit::Days(1)]),
                        end => Ok(end.is_some()),
                    };
                }
                _ => return Err(Bad::Format),
            }
            is_first = false;
        }
        Ok(false)
    }

    /// Reads the part after T.
    fn clock(&mut self) -> Done {
        let mut is_first = true;
        while !self.rest.is_empty() {
            let (amount, digits) = self.number()?;
            match self.next() {
                Some('H') => self.add(amount, Unit::HOUR)?,
                Some('M') => self.add(amount, Unit::MINUTE)?,
                Some('S') => self.add(amount, Unit::SECOND)?,
                None if is_first && digits == 6 => {
                    return self.run_together(
                        amount,
                        [(10_000, Unit::HOUR), (100, Unit::MINUTE), (1, Unit::SECOND)],
                    );
                }
                None if is_first => return self.add(amount, Unit::HOUR),
                Some(':') if is_first => {
                    self.add(amount, Unit::HOUR)?;
                    return match self.with_signs(':', [Unit::MINUTE, Unit::SECOND])? {
                        true => Err(Bad::Format),
                        false => Ok(()),
                    };
                }
                _ => return Err(Bad::Format),
            }
            is_first = false;
        }
        Ok(())
    }

    /// Reads one or two numbers after the separator that was just read. Returns whether a T follows.
    fn with_signs(&mut self, sign: char, units: [Unit; 2]) -> Done<bool> {
        for (at, unit) in units.into_iter().enumerate() {
            let (amount, _) = self.number()?;
            self.add(amount, unit)?;
            match self.next() {
                None => return Ok(false),
                Some('T') => return Ok(true),
                Some(next) if next == sign && at == 0 => {}
                _ => return Err(Bad::Format),
            }
        }
        Err(Bad::Format)
    }

    /// Adds a number without separators, which is a sequence of digit groups. As in PostgreSQL, its fraction
    /// counts only for days.
    fn run_together(&mut self, amount: Amount, units: [(i64, Unit); 3]) -> Done {
        let mut left = amount.whole;
        for (size, unit) in units {
            let fraction = if matches!(unit, Unit::Days(_)) { amount.fraction } else { 0.0 };
            self.add(Amount { whole: left / size, fraction }, unit)?;
            left %= size;
        }
        Ok(())
    }

    fn add(&mut self, amount: Amount, unit: Unit) -> Done {
        self.parts.add(amount, unit).ok_or(Bad::Range)
    }

    fn next(&mut self) -> Option<char> {
        let first = self.rest.chars().next()?;
        self.rest = &self.rest[first.len_utf8()..];
        Some(first)
    }

    fn skip(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Reads a number, which may have an exponent. Also returns the number of digits at its beginning.
    fn number(&mut self) -> Done<(Amount, usize)> {
        let bytes = self.rest.as_bytes();
        let digits_at =
            |at: usize| bytes[at.min(bytes.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
        let sign = usize::from(bytes.first() == Some(&b'-'));
        let whole = digits_at(sign);
        let mut end = sign + whole;
        let mut fraction = 0;
        if bytes.get(end) == Some(&b'.') {
            fraction = digits_at(end + 1);
            end += 1 + fraction;
        }
        if whole + fraction == 0 {
            return Err(Bad::Format);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            if digits_at(exponent) > 0 {
                end = exponent + digits_at(exponent);
            }
        }
        let (text, rest) = self.rest.split_at(end);
        let value: f64 = text.parse().map_err(|_| Bad::Format)?;
        if value.abs() > NUMBER_MAX {
            return Err(Bad::Range);
        }
        self.rest = rest;
        Ok((Amount { whole: value.trunc() as i64, fraction: value.fract() }, whole))
    }
}
