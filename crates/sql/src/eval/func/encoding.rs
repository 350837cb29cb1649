//! `encode` and `decode`: bytes as text in hex, base64 or escape format.
//!
//! Invariants
//! 1. `decode(encode(b, f), f) = b` for every format.
//! 2. Base64 is written in lines of 76 characters, as in MIME and PostgreSQL. White space in the input is
//!    skipped.
//!
//! This module does not know SQL values.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::error::{Result, SqlError, SqlState};
use crate::text;

const LINE_CHARS: usize = 76;

/// Returns the bytes as text in the named format.
pub(super) fn encode(bytes: &[u8], format: &str) -> Result<String> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => Ok(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        "base64" => Ok(lines(&BASE64_STANDARD.encode(bytes))),
        "escape" => Ok(bytes.iter().map(|b| escaped(*b)).collect()),
        _ => Err(unknown(format)),
    }
}

/// Does the reverse of `encode`.
pub(super) fn decode(input: &str, format: &str) -> Result<Vec<u8>> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => text::parse_hex(input),
        "escape" => text::parse_escaped(input),
        "base64" => {
            let packed: String = input.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')).collect();
            BASE64_STANDARD.decode(packed).map_err(base64_error)
        }
        _ => Err(unknown(format)),
    }
}

fn lines(encoded: &str) -> String {
    let mut out = String::with_capacity(encoded.len() + encoded.len() / LINE_CHARS);
    for (n, c) in encoded.chars().enumerate() {
        if n > 0 && n % LINE_CHARS == 0 {
            out.push('\n');
        }
        out.push(c);
    }
    out
}

fn escaped(byte: u8) -> String {
    match byte {
        b'\\' => "\\\\".to_owned(),
        0 | 0x80.. => format!("\\{byte:03o}"),
        _ => char::from(byte).to_string(),
    }
}

fn base64_error(error: base64::DecodeError) -> SqlError {
    let message = match error {
        base64::DecodeError::InvalidByte(_, b'=') => {
            "unexpected \"=\" while decoding base64 sequence".to_owned()
        }
        base64::DecodeError::InvalidByte(_, symbol) => {
            format!(
                "invalid symbol \"{}\" found while decoding base64 sequence",
                char::from(symbol).escape_default()
            )
        }
        _ => "invalid base64 end sequence".to_owned(),
    };
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted.")
}

fn unknown(format: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized encoding: \"{format}\""))
}
