//! The opening of a connection: encryption requests, cancel requests, start-up parameters.
//!
//! ```text
//! packet() -- SSLRequest -----------------> answer 'S' and encrypt, or 'N'; packet() again (once)
//!          -- GSSENCRequest --------------> answer 'N', packet() again (once)
//!          -- CancelRequest -------------> Opening::Cancel
//!          -- protocol 3.x --------------> Opening::Session
//!          -- anything else -------------> FATAL
//! ```
//!
//! Invariants
//! 1. The start-up packet is at the latest the third packet, because each encryption request is accepted only
//!    once.
//! 2. A client must wait for the answer to its encryption request. Bytes that arrive earlier are never read
//!    as part of the encrypted stream, because an attacker may have inserted them.

use std::io::{self, Read, Write};

use pgwire::messages::startup::NegotiateProtocolVersion;

use crate::error::WireError;
use crate::frame::{FrameEnd, FrameReader};
use crate::message::Fields;
use crate::out::Out;

const PROTOCOL_3_0: i32 = 3 << 16;
pub(crate) const CANCEL_REQUEST: i32 = (1234 << 16) | 5678;
pub(crate) const SSL_REQUEST: i32 = (1234 << 16) | 5679;
pub(crate) const GSSENC_REQUEST: i32 = (1234 << 16) | 5680;

/// The purpose of a new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// A session.
    Session(StartUp),
    /// A request to cancel the running statement of another connection.
    Cancel(CancelKey),
}

/// Identifies a connection, and proves that the sender knows its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelKey {
    /// The number of the connection. Clients call it the process id.
    pub process: i32,
    /// Random bits.
    pub secret: i32,
}

/// The parameters of a start-up packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartUp {
    /// The user name.
    pub user: String,
    /// The database. The default is the name of the user.
    pub database: String,
    /// The other parameters in the order of the packet, after those in `options`.
    pub settings: Vec<(String, String)>,
}

/// Switches a reader to encryption.
pub type Encrypt<'e, R> = dyn Fn(&mut R) -> io::Result<()> + 'e;

/// Reads packets until the client has asked for a session or a cancellation. `encrypt` is given if the server
/// offers encryption.
pub fn open<R: Read, W: Write>(
    reader: &mut FrameReader<R>,
    out: &mut Out<W>,
    encrypt: Option<&Encrypt<'_, R>>,
) -> Result<Opening, FrameEnd> {
    let (mut ssl_asked, mut gss_asked) = (false, false);
    loop {
        let mut packet = Fields::new(reader.startup()?);
        let code = packet.i32().map_err(fatal)?;
        match code {
            SSL_REQUEST if !ssl_asked => ssl_asked = true,
            GSSENC_REQUEST if !gss_asked => gss_asked = true,
            CANCEL_REQUEST => return cancel_key(packet).map(Opening::Cancel).map_err(fatal),
            _ => return session(code, packet, out).map(Opening::Session).map_err(fatal),
        }
        answer_encryption(reader, out, encrypt.filter(|_| code == SSL_REQUEST))?;
    }
}

fn answer_encryption<R: Read, W: Write>(
    reader: &mut FrameReader<R>,
    out: &mut Out<W>,
    encrypt: Option<&Encrypt<'_, R>>,
) -> Result<(), FrameEnd> {
    if reader.has_unread() {
        let error = WireError::fatal("08P01", "received unencrypted data after an encryption request")
            .detail("This could be a client bug, or a sign of an attack on the connection.");
        return Err(FrameEnd::Broken(error));
    }
    out.buffer().push(if encrypt.is_some() { b'S' } else { b'N' });
    out.flush()?;
    Ok(encrypt.map_or(Ok(()), |encrypt| encrypt(reader.source_mut()))?)
}

fn cancel_key(mut packet: Fields<'_>) -> Result<CancelKey, WireError> {
    let key = CancelKey { process: packet.i32()?, secret: packet.i32()? };
    packet.end()?;
    Ok(key)
}

fn session<W: Write>(version: i32, packet: Fields<'_>, out: &mut Out<W>) -> Result<StartUp, WireError> {
    let (major, minor) = (version >> 16, version & 0xffff);
    if major != 3 {
        let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0");
        return Err(WireError::fatal("0A000", message));
    }
    let mut unknown = Vec::new();
    let startup = parameters(packet, &mut unknown)?;
    if minor > 0 || !unknown.is_empty() {
        out.message(&NegotiateProtocolVersion::new(PROTOCOL_3_0, unknown));
    }
    Ok(startup)
}

/// Reads the parameters. Adds the names of unknown protocol extensions to `unknown`.
fn parameters(mut packet: Fields<'_>, unknown: &mut Vec<String>) -> Result<StartUp, WireError> {
    let (mut user, mut database) = ("", "");
    let (mut options, mut settings) = (Vec::new(), Vec::new());
    loop {
        let name = packet.text()?;
        if name.is_empty() {
            break;
        }
        let value = packet.text()?;
        match name {
            "user" => user = value,
            "database" => database = value,
            "options" => options = options_settings(value)?,
            "replication" => refuse_replication(value)?,
            _ if name.starts_with("_pq_.") => unknown.push(name.to_owned()),
            _ => settings.push((name.to_owned(), value.to_owned())),
        }
    }
    packet.end().map_err(|_| {
        WireError::protocol("invalid startup packet layout: expected terminator as last byte")
    })?;
    if user.is_empty() {
        return Err(WireError::fatal("28000", "no PostgreSQL user name specified in startup packet"));
    }
    let database = if database.is_empty() { user } else { database };
    options.append(&mut settings);
    Ok(StartUp { user: user.to_owned(), database: database.to_owned(), settings: options })
}

fn refuse_replication(value: &str) -> Result<(), WireError> {
    if ["false", "off", "no", "0"].contains(&value) {
        return Ok(());
    }
    Err(WireError::fatal("0A000", "replication connections are not supported"))
}

/// Reads `-c name=value` and `--name=value`, with `\` before a space that belongs to a value.
fn options_settings(options: &str) -> Result<Vec<(String, String)>, WireError> {
    let mut settings = Vec::new();
    let words = option_words(options);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let assignment = match word.as_str() {
            "-c" => words.next().map(String::as_str),
            _ => word.strip_prefix("--").or_else(|| word.strip_prefix("-c")),
        };
        let pair = assignment.and_then(|assignment| assignment.split_once('='));
        let (name, value) = pair.ok_or_else(|| {
            WireError::fatal("42601", format!("invalid command-line argument for server process: {word}"))
                .hint("Use -c NAME=VALUE or --NAME=VALUE.")
        })?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

fn option_words(options: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut characters = options.chars();
    while let Some(character) = characters.next() {
        let last = words.len() - 1;
        match character {
            '\\' => words[last].extend(characters.next()),
            _ if character.is_ascii_whitespace() => words.push(String::new()),
            _ => words[last].push(character),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn fatal(error: WireError) -> FrameEnd {
    FrameEnd::Broken(error.into_fatal())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_settings() {
        let check = |options: &str, expect: &[(&str, &str)]| {
            let expect: Vec<_> = expect.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(options_settings(options).unwrap(), expect, "{options}");
        };
        check("", &[]);
        check("-c a=1 --work-mem=2MB  -cb=2", &[("a", "1"), ("work_mem", "2MB"), ("b", "2")]);
        check(r"-c search_path=a,\ b", &[("search_path", "a, b")]);
        check("-c a=b=c", &[("a", "b=c")]);
        assert!(options_settings("-d 5").is_err());
        assert!(options_settings("-c").is_err());
    }
}
