//! The channel binding `tls-server-end-point` of a TLS connection (RFC 5929, section 4.1). It ties a login to
//! the server's certificate.
//!
//! Invariants
//! 1. The binding is a hash of the server's certificate. The hash function is the one in the certificate's
//!    signature. SHA-256 is used instead of MD5 and SHA-1. A certificate whose signature has no separate hash
//!    function (Ed25519) has no binding.

use sha2::{Digest, Sha256, Sha384, Sha512};

/// ASN.1 tags.
const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// Signature algorithms with RSA: 1.2.840.113549.1.1.N
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// ECDSA with SHA-1, and with SHA-2: 1.2.840.10045.4.1, 1.2.840.10045.4.3.N
const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
const ECDSA_SHA2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];

/// Returns the channel binding of a certificate in DER format.
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_, behind_body) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(behind_body, SEQUENCE)?;
    let (identifier, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let hash = |digest: &dyn Fn() -> Vec<u8>| Some(digest());
    let (sha256, sha384, sha512) = (
        || Sha256::digest(certificate).to_vec(),
        || Sha384::digest(certificate).to_vec(),
        || Sha512::digest(certificate).to_vec(),
    );
    match identifier.strip_prefix(RSA) {
        Some([4 | 5 | 11]) => return hash(&sha256),
        Some([12]) => return hash(&sha384),
        Some([13]) => return hash(&sha512),
        _ => {}
    }
    match identifier.strip_prefix(ECDSA_SHA2) {
        Some([2]) => hash(&sha256),
        Some([3]) => hash(&sha384),
        Some([4]) => hash(&sha512),
        _ if identifier == ECDSA_SHA1 => hash(&sha256),
        _ => None,
    }
}

/// Reads an element with this tag at the beginning of the bytes. Returns its content, and the bytes after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..0x80 => (usize::from(*length), rest),
        _ => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            let within = digits.len() <= size_of::<u32>();
            within
                .then(|| digits.iter().fold(0, |all, digit| all << 8 | usize::from(*digit)))
                .map(|n| (n, rest))?
        }
    };
    let (content, behind) = rest.split_at_checked(length)?;
    (*first == tag).then_some((content, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a certificate with only the algorithm of its signature.
    fn certificate(identifier: &[u8]) -> Vec<u8> {
        let nest = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let algorithm = nest(SEQUENCE, &nest(OBJECT_IDENTIFIER, identifier));
        nest(SEQUENCE, &[nest(SEQUENCE, &[]), algorithm].concat())
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let length = |identifier: &[u8]| end_point(&certificate(identifier)).map(|hash| hash.len());
        assert_eq!(length(&[RSA, &[11]].concat()), Some(32));
        assert_eq!(length(&[RSA, &[5]].concat()), Some(32), "SHA-1 is replaced");
        assert_eq!(length(&[ECDSA_SHA2, &[3]].concat()), Some(48));
        assert_eq!(length(&[RSA, &[13]].concat()), Some(64));
        assert_eq!(length(&[0x2b, 0x65, 0x70]), None, "Ed25519");
    }

    #[test]
    fn what_is_no_certificate_has_none() {
        let whole = certificate(ECDSA_SHA1);
        assert!((0..whole.len()).all(|cut| end_point(&whole[..cut]).is_none()));
        assert_eq!(end_point(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
    }
}
