//! Proof of a password by SCRAM-SHA-256 (RFC 5802, RFC 7677; PostgreSQL 15 documentation, section 55.3).
//!
//! ```text
//! server                                   client
//! AuthenticationSASL: mechanisms      -->
//!                                     <--  mechanism, n,,n=,r=NONCE
//! r=NONCE+ours,s=SALT,i=ITERATIONS    -->
//!                                     <--  c=biws,r=NONCE+ours,p=PROOF
//! v=SIGNATURE, AuthenticationOk       -->
//! ```
//!
//! Invariants
//! 1. A client that names a role which does not exist, has no password or one that has expired gets the same messages as one
//!    that gives a wrong password, until the server is started again (0704).
//!
//! What this file doesn't know: which roles there are; how a password is turned into keys (`varve_sql::scram`).

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pgwire::messages::startup::Authentication;
use varve_sql::scram::Verifier;

use crate::error::WireError;
use crate::frame::{FrameEnd, FrameReader};
use crate::message::Fields;
use crate::out::Out;

const MECHANISM: &str = "SCRAM-SHA-256";
const NONCE_BYTES: usize = 18;

/// Lets the client prove that it knows the password; FATAL 28P01 if it does not.
pub fn prove<R: Read, W: Write>(
    user: &str,
    verifier: &Verifier,
    reader: &mut FrameReader<R>,
    out: &mut Out<W>,
) -> Result<(), FrameEnd> {
    out.message(&Authentication::SASL(vec![MECHANISM.to_owned()]));
    out.flush()?;
    let first = First::read(reader.authentication()?).map_err(broken)?;
    let nonce = format!("{}{}", first.nonce, random_nonce());
    let answer = format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
    out.message(&Authentication::SASLContinue(Bytes::from(answer.clone())));
    out.flush()?;
    let last = std::str::from_utf8(reader.authentication()?).map_err(|_| broken(malformed()))?;
    let proved = Last::read(last).map_err(broken)?;
    if proved.binding != STANDARD.encode(&first.header) || proved.nonce != nonce {
        return Err(broken(malformed()));
    }
    let messages = format!("{},{answer},{}", first.bare, proved.without_proof);
    let Some(signature) = verifier.check(messages.as_bytes(), &proved.proof) else {
        let message = format!("password authentication failed for user \"{user}\"");
        return Err(broken(WireError::fatal("28P01", message)));
    };
    out.message(&Authentication::SASLFinal(Bytes::from(format!("v={}", STANDARD.encode(signature)))));
    Ok(())
}

fn broken(error: WireError) -> FrameEnd {
    FrameEnd::Broken(error.into_fatal())
}

fn malformed() -> WireError {
    WireError::protocol("malformed SCRAM message")
}

fn random_nonce() -> String {
    let mut raw = [0; NONCE_BYTES];
    let filled = getrandom::fill(&mut raw);
    assert!(filled.is_ok(), "the system gives no random bits: {filled:?}");
    STANDARD.encode(raw)
}

/// The client's first message.
struct First {
    /// What it says about channel binding: `n,,` or `y,,`.
    header: String,
    /// The rest.
    bare: String,
    nonce: String,
}

impl First {
    fn read(body: &[u8]) -> Result<First, WireError> {
        let mut fields = Fields::new(body);
        if fields.text()? != MECHANISM {
            return Err(WireError::protocol("client selected an invalid SASL authentication mechanism"));
        }
        let length = fields.i32()?;
        let message = fields.rest();
        if usize::try_from(length) != Ok(message.len()) {
            return Err(malformed());
        }
        let message = std::str::from_utf8(message).map_err(|_| malformed())?;
        let mut parts = message.splitn(3, ',');
        let (Some(binding), Some(identity), Some(bare)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed());
        };
        if !matches!(binding, "n" | "y") {
            return Err(malformed().detail("Channel binding was not offered."));
        }
        if !identity.is_empty() {
            let message = "client uses authorization identity, but it is not supported";
            return Err(WireError::error("0A000", message));
        }
        if bare.starts_with("m=") {
            let message = "client requires an unsupported SCRAM extension";
            return Err(WireError::error("0A000", message));
        }
        let mut attributes = bare.split(',');
        let named = attributes.next().is_some_and(|user| user.starts_with("n="));
        let nonce = attributes.next().and_then(|a| a.strip_prefix("r=")).filter(|n| is_nonce(n) && named);
        let nonce = nonce.ok_or_else(malformed)?.to_owned();
        Ok(First { header: format!("{binding},,"), bare: bare.to_owned(), nonce })
    }
}

/// Printable characters of ASCII.
fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| (0x21..=0x7e).contains(&b))
}

/// The client's last message.
struct Last<'m> {
    binding: &'m str,
    nonce: &'m str,
    without_proof: &'m str,
    proof: Vec<u8>,
}

impl<'m> Last<'m> {
    fn read(message: &'m str) -> Result<Last<'m>, WireError> {
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(malformed)?;
        let mut attributes = without_proof.split(',');
        let mut attribute = |name: &str| attributes.next().and_then(|a| a.strip_prefix(name));
        let (binding, nonce) = (attribute("c="), attribute("r="));
        Ok(Last {
            binding: binding.ok_or_else(malformed)?,
            nonce: nonce.ok_or_else(malformed)?,
            without_proof,
            proof: STANDARD.decode(proof).map_err(|_| malformed())?,
        })
    }
}
