//! Password verifiers as PostgreSQL stores them: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey` (RFC
//! 5802, RFC 7677).
//!
//! Invariants
//! 1. A password is never stored. The stored verifier is not enough to log in.
//! 2. The time of a comparison of keys does not depend on their content.
//!
//! This module does not know the message exchange of a login (`varve-server`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::error::{Result, SqlError};

/// Rounds of PBKDF2, as in PostgreSQL 15.
const ITERATIONS: u32 = 4096;
const SALT_BYTES: usize = 16;
const PREFIX: &str = "SCRAM-SHA-256$";

/// A key or digest.
type Key = [u8; 32];

/// The stored data with which a proof of a password is compared.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// Rounds of PBKDF2.
    pub iterations: u32,
    /// Salt.
    pub salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Verifier of {} iterations", self.iterations)
    }
}

impl Verifier {
    /// Returns the verifier of a new password, with a salt from the system.
    pub fn of_password(password: &str) -> Result<Verifier> {
        let mut salt = vec![0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(|_| SqlError::internal("the system gives no random bits"))?;
        Ok(Verifier::new(password, salt, ITERATIONS))
    }

    /// Derives the keys from a password.
    pub fn new(password: &str, salt: Vec<u8>, iterations: u32) -> Verifier {
        // If SASLprep refuses a text, it is used unchanged, as in PostgreSQL and its clients.
        let prepared = stringprep::saslprep(password).unwrap_or(password.into());
        let salted = salted_password(prepared.as_bytes(), &salt, iterations);
        let stored_key = Sha256::digest(mac(&salted, &[b"Client Key"])).into();
        Verifier { iterations, salt, stored_key, server_key: mac(&salted, &[b"Server Key"]) }
    }

    /// Returns a verifier for a role that does not exist, made of a name and a secret. The same name always
    /// gets the same salt, so a client cannot tell such a role from one with another password.
    pub fn of_nobody(name: &str, secret: &[u8]) -> Verifier {
        let salt = mac(secret, &[b"salt", name.as_bytes()])[..SALT_BYTES].to_vec();
        let unknown = mac(secret, &[b"key", name.as_bytes()]);
        Verifier { iterations: ITERATIONS, salt, stored_key: unknown, server_key: unknown }
    }

    /// Reads the stored form. `None` means that the text does not have this form.
    pub fn parse(kept: &str) -> Option<Verifier> {
        let (parameters, keys) = kept.strip_prefix(PREFIX)?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| STANDARD.decode(text).ok().and_then(|bytes| Key::try_from(bytes).ok());
        let iterations = iterations.parse().ok().filter(|n| *n > 0)?;
        Some(Verifier {
            iterations,
            salt: STANDARD.decode(salt).ok()?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// Returns the stored form.
    pub fn to_text(&self) -> String {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|b| STANDARD.encode(b));
        format!("{PREFIX}{}:{salt}${stored}:{server}", self.iterations)
    }

    /// Checks a client's proof over the previous messages. Returns the server's signature if it is right.
    pub fn check(&self, messages: &[u8], proof: &[u8]) -> Option<Key> {
        let proof = Key::try_from(proof).ok()?;
        let signature = mac(&self.stored_key, &[messages]);
        let client_key: Key = std::array::from_fn(|n| proof[n] ^ signature[n]);
        let shown: Key = Sha256::digest(client_key).into();
        let differences = shown.iter().zip(&self.stored_key).fold(0, |all, (a, b)| all | (a ^ b));
        (differences == 0).then(|| mac(&self.server_key, &[messages]))
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Key {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        unreachable!("HMAC takes keys of any length")
    };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Computes PBKDF2 for one block. SCRAM calls this function Hi().
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let mut block = mac(password, &[salt, &1u32.to_be_bytes()]);
    let mut sum = block;
    for _ in 1..iterations {
        block = mac(password, &[&block]);
        sum.iter_mut().zip(&block).for_each(|(all, b)| *all ^= b);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_example_of_the_rfc_is_accepted() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::new("pencil", salt, 4096);
        let messages = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        let signature = verifier.check(messages.as_bytes(), &proof).map(|s| STANDARD.encode(s));
        assert_eq!(signature.as_deref(), Some("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert_eq!(verifier.check(b"other messages", &proof), None);
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let made = Verifier::of_password("secret").unwrap();
        assert_eq!(Verifier::parse(&made.to_text()), Some(made.clone()));
        assert!(!made.to_text().contains("secret"));
        for wrong in ["", "md5abc", "SCRAM-SHA-256$0:AA==$AA==:AA==", "SCRAM-SHA-256$4096:AA==$AA==:AA=="] {
            assert_eq!(Verifier::parse(wrong), None, "{wrong}");
        }
    }
}
