//! Passwords and encryption: which clients are accepted, and which errors the others get.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::support::client::{message, packet, query, startup};
use crate::support::server_with;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use varve_server::{Encryption, Options, Proof, Server, Tls};

const SSL_REQUEST: u32 = 80_877_103;

fn with_password() -> Options {
    Options { proof: Proof::Password, ..Options::new(5) }
}

/// Returns a self-signed certificate for localhost and its key, both as PEM. They are made for this run.
fn identity() -> &'static (String, String) {
    static MADE: OnceLock<(String, String)> = OnceLock::new();
    MADE.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    })
}

/// Writes certificate and key to files. Returns the folder.
fn identity_files() -> TempDir {
    let folder = TempDir::new().unwrap();
    let (certificate, key) = identity();
    fs::write(folder.path().join("certificate.pem"), certificate).unwrap();
    fs::write(folder.path().join("key.pem"), key).unwrap();
    make_mode(&folder, "key.pem", 0o600);
    folder
}

fn make_mode(folder: &TempDir, file: &str, mode: u32) {
    fs::set_permissions(folder.path().join(file), Permissions::from_mode(mode)).unwrap();
}

fn encryption() -> Arc<Tls> {
    let folder = identity_files();
    let file = |name: &str| folder.path().join(name);
    varve_server::options::tls(&file("certificate.pem"), &file("key.pem")).unwrap()
}

fn socket(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// Opens a connection with TLS.
fn encrypted(server: &Server) -> StreamOwned<ClientConnection, TcpStream> {
    let mut socket = socket(server);
    socket.write_all(&packet(&SSL_REQUEST.to_be_bytes())).unwrap();
    let mut answer = [0];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"S");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(identity().0.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket)
}

/// Returns the kind and the body of the next message, or `None` at the end.
fn next(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
    let mut body = vec![0; length - 4];
    stream.read_exact(&mut body).ok()?;
    Some((head[0], body))
}

/// Returns an error as `severity sqlstate message`.
fn shown(body: &[u8]) -> String {
    let fields = body.split(|b| *b == 0).filter(|f| !f.is_empty());
    let wanted =
        fields.filter(|f| b"SCM".contains(&f[0])).map(|f| String::from_utf8_lossy(&f[1..]).into_owned());
    wanted.collect::<Vec<_>>().join(" ")
}

/// The kind and the length of each message of the server, and how the login ended: `ready`, an error, or
/// `closed`.
type Talk = (Vec<(u8, usize)>, String);

/// Logs in by SCRAM without channel binding.
fn log_in(stream: &mut (impl Read + Write), user: &str, password: &str) -> Talk {
    log_in_bound(stream, (user, password), "SCRAM-SHA-256", ChannelBinding::unsupported())
}

/// Logs in by SCRAM with this mechanism, no matter which other ones are offered.
fn log_in_bound(
    stream: &mut (impl Read + Write),
    (user, password): (&str, &str),
    mechanism: &str,
    binding: ChannelBinding,
) -> Talk {
    stream.write_all(&startup(&[("user", user), ("database", "postgres")])).unwrap();
    let mut scram = ScramSha256::new(password.as_bytes(), binding);
    let mut seen = Vec::new();
    while let Some((kind, body)) = next(stream) {
        seen.push((kind, body.len()));
        match (kind, body.get(3)) {
            (b'R', Some(10)) => {
                assert!(body[4..].ends_with(b"SCRAM-SHA-256\0\0"));
                let first = scram.message();
                let length = (first.len() as u32).to_be_bytes();
                let body = [mechanism.as_bytes(), b"\0", &length, first].concat();
                stream.write_all(&message(b'p', &body)).unwrap();
            }
            (b'R', Some(11)) => {
                scram.update(&body[4..]).unwrap();
                stream.write_all(&message(b'p', scram.message())).unwrap();
            }
            // The server's signature proves that it knows the verifier.
            (b'R', Some(12)) => scram.finish(&body[4..]).unwrap(),
            (b'E', _) => return (seen, shown(&body)),
            (b'Z', _) => return (seen, "ready".to_owned()),
            _ => {}
        }
    }
    (seen, "closed".to_owned())
}

#[test]
fn the_right_password_lets_in_and_no_other() {
    let server = server_with(with_password());
    let (_, end) = log_in(&mut socket(&server), "tester", "secret");
    assert_eq!(end, "ready");
    let (wrong, end) = log_in(&mut socket(&server), "tester", "Secret");
    assert_eq!(end, "FATAL 28P01 password authentication failed for user \"tester\"");
    let (unknown, end) = log_in(&mut socket(&server), "nobody", "secret");
    assert_eq!(end, "FATAL 28P01 password authentication failed for user \"nobody\"");
    // A client cannot distinguish a role that does not exist from a role with another password: both get the
    // same messages, of the same form.
    assert_eq!(
        wrong.iter().map(|m| m.0).collect::<Vec<_>>(),
        unknown.iter().map(|m| m.0).collect::<Vec<_>>()
    );
    assert_eq!(wrong.last(), unknown.last());
    server.stop(Duration::from_secs(5));
}

#[test]
fn whoever_does_not_ask_properly_is_told_why() {
    let server = server_with(with_password());
    let check = |answer: Vec<u8>, expect: &str| {
        let mut stream = socket(&server);
        stream.write_all(&startup(&[("user", "tester"), ("database", "postgres")])).unwrap();
        assert_eq!(next(&mut stream).unwrap().0, b'R');
        stream.write_all(&answer).unwrap();
        assert_eq!(shown(&next(&mut stream).unwrap().1), expect, "{}", answer.escape_ascii());
        assert_eq!(next(&mut stream), None);
    };
    let first = |mechanism: &str, text: &str| {
        let length = (text.len() as u32).to_be_bytes();
        message(b'p', &[mechanism.as_bytes(), b"\0", &length, text.as_bytes()].concat())
    };
    let malformed = "FATAL 08P01 malformed SCRAM message";
    check(query("select 1"), "FATAL 08P01 expected SASL response, got message type 'Q'");
    check(first("PLAIN", "x"), "FATAL 08P01 client selected an invalid SASL authentication mechanism");
    check(first("SCRAM-SHA-256", "p=tls-unique,,n=,r=abc"), malformed);
    check(first("SCRAM-SHA-256", "n,,r=abc"), malformed);
    check(first("SCRAM-SHA-256", "n,,n=,r="), malformed);
    check(first("SCRAM-SHA-256", ""), malformed);
    check(
        first("SCRAM-SHA-256", "n,a=other,n=,r=abc"),
        "FATAL 0A000 client uses authorization identity, but it is not supported",
    );
    check(message(b'p', &[b'x'; 2000]), "FATAL 08P01 invalid message length");
    server.stop(Duration::from_secs(5));
}

#[test]
fn a_proof_of_another_conversation_is_worth_nothing() {
    let server = server_with(with_password());
    let mut stream = socket(&server);
    stream.write_all(&startup(&[("user", "tester"), ("database", "postgres")])).unwrap();
    next(&mut stream).unwrap();
    let text = b"n,,n=,r=abc";
    stream.write_all(&message(b'p', &[b"SCRAM-SHA-256\0\0\0\0\x0b", &text[..]].concat())).unwrap();
    let (_, challenge) = next(&mut stream).unwrap();
    assert!(challenge[4..].starts_with(b"r=abc"));
    stream.write_all(&message(b'p', b"c=biws,r=abc,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")).unwrap();
    assert_eq!(shown(&next(&mut stream).unwrap().1), "FATAL 08P01 malformed SCRAM message");
    server.stop(Duration::from_secs(5));
}

#[test]
fn a_client_that_is_silent_while_it_is_asked_is_told_and_left() {
    let patience = Duration::from_millis(300);
    let server = server_with(Options { patience, ..with_password() });
    let mut stream = socket(&server);
    stream.write_all(&startup(&[("user", "tester"), ("database", "postgres")])).unwrap();
    next(&mut stream).unwrap();
    let (_, error) = next(&mut stream).unwrap();
    assert_eq!(shown(&error), "FATAL 57014 canceling authentication due to timeout");
    assert_eq!(next(&mut stream), None);
    server.stop(Duration::from_secs(5));
}

#[test]
fn an_encrypted_connection_does_all_that_a_plain_one_does() {
    let options = Options { encryption: Encryption::Offered(encryption()), ..with_password() };
    let server = server_with(options);
    let mut stream = encrypted(&server);
    assert_eq!(log_in(&mut stream, "tester", "secret").1, "ready");
    // The data needs more than one TLS record in each direction.
    stream.write_all(&query(&format!("rows 20000 {}", " ".repeat(100_000)))).unwrap();
    let mut rows = 0;
    loop {
        match next(&mut stream).unwrap().0 {
            b'D' => rows += 1,
            b'Z' => break,
            _ => {}
        }
    }
    assert_eq!(rows, 20_000);
    assert_eq!(log_in(&mut socket(&server), "tester", "secret").1, "ready");
    assert!(log_in(&mut encrypted(&server), "tester", "wrong").1.starts_with("FATAL 28P01"));
    server.stop(Duration::from_secs(5));
}

/// Earlier, `channel_binding=require` failed, because the proof could not be bound to the server's
/// certificate.
#[test]
fn a_proof_is_bound_to_the_certificate() {
    let server = server_with(Options { encryption: Encryption::Offered(encryption()), ..with_password() });
    let certificate = CertificateDer::from_pem_slice(identity().0.as_bytes()).unwrap();
    let tester = ("tester", "secret");
    let bound = |hash: Vec<u8>, mechanism: &str| {
        log_in_bound(&mut encrypted(&server), tester, mechanism, ChannelBinding::tls_server_end_point(hash)).1
    };
    let right = || Sha256::digest(&certificate).to_vec();
    assert_eq!(bound(right(), "SCRAM-SHA-256-PLUS"), "ready");
    let end = bound(vec![0; 32], "SCRAM-SHA-256-PLUS");
    assert_eq!(end, "FATAL 28000 SCRAM channel binding check failed");
    assert_eq!(bound(right(), "SCRAM-SHA-256"), "FATAL 08P01 malformed SCRAM message");
    // The client supports channel binding and saw no offer of it: an attacker removed the offer (a
    // downgrade).
    let unrequested = || ChannelBinding::unrequested();
    let (_, end) = log_in_bound(&mut encrypted(&server), tester, "SCRAM-SHA-256", unrequested());
    assert_eq!(end, "FATAL 28000 SCRAM channel binding negotiation error");
    let (_, end) = log_in_bound(&mut encrypted(&server), tester, "SCRAM-SHA-256-PLUS", unrequested());
    assert_eq!(end, "FATAL 08P01 malformed SCRAM message");
    // Without TLS, there is no certificate to which the proof could be bound.
    let (_, end) = log_in_bound(&mut socket(&server), tester, "SCRAM-SHA-256", unrequested());
    assert_eq!(end, "ready");
    let (_, end) = log_in_bound(&mut socket(&server), tester, "SCRAM-SHA-256-PLUS", unrequested());
    assert_eq!(end, "FATAL 08P01 client selected an invalid SASL authentication mechanism");
    server.stop(Duration::from_secs(5));
}

#[test]
fn where_encryption_is_required_nobody_gets_in_without() {
    let server = server_with(Options { encryption: Encryption::Required(encryption()), ..Options::new(5) });
    let (seen, end) = log_in(&mut socket(&server), "tester", "secret");
    assert_eq!((seen.len(), end.as_str()), (1, "FATAL 28000 connection without encryption refused"));
    assert_eq!(log_in(&mut encrypted(&server), "tester", "").1, "ready");
    server.stop(Duration::from_secs(5));
}

/// Bytes that came before the TLS handshake must not be read as if they came after it (CVE-2021-23214).
#[test]
fn plain_text_behind_a_request_for_encryption_is_refused() {
    let server = server_with(Options { encryption: Encryption::Offered(encryption()), ..Options::new(5) });
    let mut stream = socket(&server);
    let smuggled = [packet(&SSL_REQUEST.to_be_bytes()), startup(&[("user", "tester")])].concat();
    stream.write_all(&smuggled).unwrap();
    let (kind, error) = next(&mut stream).unwrap();
    assert_eq!(kind, b'E');
    assert_eq!(shown(&error), "FATAL 08P01 received unencrypted data after an encryption request");
    server.stop(Duration::from_secs(5));
}

#[test]
fn a_handshake_that_is_none_ends_the_connection() {
    let server = server_with(Options { encryption: Encryption::Offered(encryption()), ..Options::new(5) });
    let mut stream = socket(&server);
    stream.write_all(&packet(&SSL_REQUEST.to_be_bytes())).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream.write_all(b"this is no handshake at all, but long enough to be looked at").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 100);
    assert_eq!(log_in(&mut encrypted(&server), "tester", "").1, "ready");
    server.stop(Duration::from_secs(5));
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let folder = identity_files();
    let tls = |certificate: &str, key: &str| {
        let (certificate, key) = (folder.path().join(certificate), folder.path().join(key));
        varve_server::options::tls(&certificate, &key).unwrap_err().to_string()
    };
    assert!(tls("missing.pem", "key.pem").contains("missing.pem"));
    assert!(tls("key.pem", "key.pem").contains("it holds no certificate"));
    make_mode(&folder, "certificate.pem", 0o600);
    assert!(tls("certificate.pem", "certificate.pem").contains("certificate.pem"));
    // Finding B2 of review 8: a key that everybody could read was accepted without a warning.
    for mode in [0o604, 0o644, 0o620, 0o601] {
        make_mode(&folder, "key.pem", mode);
        assert!(
            tls("certificate.pem", "key.pem").contains("key.pem: others may read this private key"),
            "{mode:o}"
        );
    }
}
