//! The shared key. Host and device each prove that they know it, before anything else is sent.
//!
//! Invariants
//! 1. The key itself never crosses the connection. Each side sends random bytes, and the other side answers
//!    with an HMAC-SHA-256 of the bytes of both sides.
//! 2. The two sides use different prefixes, so an answer can't be sent back as the other side's answer.

use std::fmt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{Result, SmartError, read};

/// The bytes of a random number, and of an answer.
pub(crate) const NONCE_BYTES: usize = 32;
/// The smallest number of bytes of a key.
const KEY_BYTES_MIN: usize = 16;
/// The largest number of bytes of a key.
const KEY_BYTES_MAX: usize = 4096;

/// The key that host and device share.
#[derive(Clone)]
pub struct SharedKey(Vec<u8>);

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey")
    }
}

/// The side (host or device) that proves that it knows the key.
#[derive(Clone, Copy)]
pub(crate) enum Prover {
    Host,
    Device,
}

impl SharedKey {
    /// Returns the key in these bytes. Blanks and line ends around it do not count.
    pub fn of(bytes: &[u8]) -> Result<SharedKey> {
        let key = bytes.trim_ascii();
        if (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return Ok(SharedKey(key.to_vec()));
        }
        Err(SmartError::KeyLength { found: key.len(), min: KEY_BYTES_MIN, max: KEY_BYTES_MAX })
    }

    /// Returns the key in this file.
    pub fn of_file(file: &Path) -> Result<SharedKey> {
        SharedKey::of(&read(file)?)
    }

    fn mac(&self, prover: Prover, parts: [&[u8]; 2]) -> Hmac<Sha256> {
        // An HMAC takes keys of every length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).unwrap_or_else(|_| unreachable!());
        mac.update(match prover {
            Prover::Host => b"varve smart device: host",
            Prover::Device => b"varve smart device: device",
        });
        parts.iter().for_each(|part| mac.update(part));
        mac
    }

    /// Proves that this side knows the key.
    pub(crate) fn proof(&self, prover: Prover, of_device: &[u8], of_host: &[u8]) -> [u8; NONCE_BYTES] {
        self.mac(prover, [of_device, of_host]).finalize().into_bytes().into()
    }

    /// Checks the proof of the other side, in constant time.
    pub(crate) fn check(&self, prover: Prover, of_device: &[u8], of_host: &[u8], proof: &[u8]) -> Result<()> {
        self.mac(prover, [of_device, of_host]).verify_slice(proof).map_err(|_| SmartError::Key)
    }
}

/// Returns random bytes.
pub(crate) fn nonce() -> Result<[u8; NONCE_BYTES]> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_side_one_key_and_two_numbers() {
        let key = SharedKey::of(b"sixteen bytes are a key\n").unwrap();
        let other = SharedKey::of(b"sixteen bytes are a kez").unwrap();
        let proof = key.proof(Prover::Host, b"device", b"host");
        assert!(key.check(Prover::Host, b"device", b"host", &proof).is_ok());
        assert!(key.check(Prover::Device, b"device", b"host", &proof).is_err());
        assert!(key.check(Prover::Host, b"devicf", b"host", &proof).is_err());
        assert!(other.check(Prover::Host, b"device", b"host", &proof).is_err());
        assert!(key.check(Prover::Host, b"device", b"host", &proof[1..]).is_err());
        assert!(SharedKey::of(b" short \n").is_err());
    }
}
