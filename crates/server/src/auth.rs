//! Password authentication by SCRAM-SHA-256 (RFC 5802, RFC 7677; PostgreSQL 15 documentation, section 55.3).
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
//! Under TLS the server offers SCRAM-SHA-256-PLUS first, which binds the login to the TLS connection. The
//! client's first message then begins with `p=tls-server-end-point,,` instead of `n,,`. Its field `c` holds
//! these words and the hash of the server's certificate. So the server notices an attacker between client and
//! server.
//!
//! Invariants
//! 1. A role that does not exist, has no password, or has an expired password gets the same messages as a
//!    wrong password (decision 0704). So a client cannot find out which roles exist.
//! 2. A client may report that it supports channel binding, but that the server did not offer it. The server
//!    then refuses the login, because an attacker must have removed the offer.
//!
//! `varve_sql::scram` computes keys from passwords.

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
const MECHANISM_BOUND: &str = "SCRAM-SHA-256-PLUS";
/// The only supported kind of channel binding, which binds to the server's certificate.
const END_POINT: &str = "tls-server-end-point";
const NONCE_BYTES: usize = 18;

/// Runs the SCRAM exchange. If the client does not know the password, it gets FATAL 28P01. `end_point` is the
/// hash for channel binding.
pub fn prove<R: Read, W: Write>(
    user: &str,
    verifier: &Verifier,
    end_point: Option<&[u8]>,
    reader: &mut FrameReader<R>,
    out: &mut Out<W>,
) -> Result<(), FrameEnd> {
    let bound = end_point.map(|_| MECHANISM_BOUND.to_owned());
    out.message(&Authentication::SASL(bound.into_iter().chain([MECHANISM.to_owned()]).collect()));
    out.flush()?;
    let first = First::read(reader.authentication()?, end_point).map_err(broken)?;
    let nonce = format!("{}{}", first.nonce, random_nonce());
    let answer = format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
    out.message(&Authentication::SASLContinue(Bytes::from(answer.clone())));
    out.flush()?;
    let last = std::str::from_utf8(reader.authentication()?).map_err(|_| broken(malformed()))?;
    let proved = Last::read(last).map_err(broken)?;
    if proved.binding != STANDARD.encode(&first.binding) {
        return Err(broken(WireError::error("28000", "SCRAM channel binding check failed")));
    }
    if proved.nonce != nonce {
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
    /// The bytes that the field `c` of the client's last message must have: the header of this message, and
    /// the channel binding.
    binding: Vec<u8>,
    /// The message without its header.
    bare: String,
    nonce: String,
}

impl First {
    fn read(body: &[u8], end_point: Option<&[u8]>) -> Result<First, WireError> {
        let mut fields = Fields::new(body);
        let end_point = match (fields.text()?, end_point) {
            (MECHANISM, None) => Offer::None,
            (MECHANISM, Some(_)) => Offer::Refused,
            (MECHANISM_BOUND, Some(end_point)) => Offer::Taken(end_point),
            _ => return Err(WireError::protocol("client selected an invalid SASL authentication mechanism")),
        };
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
        let bound_to = end_point.bound_to(binding)?;
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
        let binding = [format!("{binding},,").as_bytes(), bound_to].concat();
        Ok(First { binding, bare: bare.to_owned(), nonce })
    }
}

/// The client's answer to the offer of channel binding.
enum Offer<'o> {
    /// There was no offer.
    None,
    /// The client has chosen the mechanism without binding.
    Refused,
    /// The proof is bound to these bytes.
    Taken(&'o [u8]),
}

impl<'o> Offer<'o> {
    /// Returns the bytes to which the proof is bound, according to the client's header.
    fn bound_to(self, header: &str) -> Result<&'o [u8], WireError> {
        match (self, header.strip_prefix("p=")) {
            (Offer::Taken(end_point), Some(END_POINT)) => Ok(end_point),
            (Offer::Taken(_), Some(other)) => {
                Err(WireError::protocol(format!("unsupported SCRAM channel-binding type \"{other}\"")))
            }
            (Offer::Taken(_), None) => Err(malformed().detail(
                "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.",
            )),
            (_, Some(_)) => Err(malformed().detail(
                "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel \
                 binding data.",
            )),
            (Offer::Refused, None) if header == "y" => {
                let error = WireError::error("28000", "SCRAM channel binding negotiation error");
                Err(error.detail(
                    "The client supports SCRAM channel binding but thinks the server does not.  However, this server \
                     does support channel binding.",
                ))
            }
            _ if matches!(header, "n" | "y") => Ok(&[]),
            _ => Err(malformed()),
        }
    }
}

/// Returns whether a text is a valid nonce, which has only printable ASCII characters.
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
