//! The host's side of a connection to a device.
//!
//! Invariants
//! 1. The device has proved that it knows the key before the first request.
//! 2. After an error of the connection the client is not used any more.

use std::io::ErrorKind;
use std::time::Duration;

use crate::error::{Result, SmartError};
use crate::key::{NONCE_BYTES, Prover, SharedKey, nonce};
use crate::protocol::{Answer, OpenRequest, Part, Request};
use crate::serve::GREETING;
use crate::tls::RootCertificates;
use crate::wire::{self, Stream};

pub use crate::wire::Address;

/// The largest number of bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// A connection to a device.
pub struct Client {
    stream: Stream,
    /// The bytes of requests and answers that were not taken yet.
    bytes: usize,
}

impl Client {
    /// Connects to a device. Each answer may take `patience`. With root certificates the connection is
    /// encrypted.
    pub fn connect(
        address: &Address,
        key: &SharedKey,
        roots: Option<&RootCertificates>,
        patience: Duration,
    ) -> Result<Client> {
        let mut stream = Stream::connect(address, roots, patience)?;
        stream.set_patience(patience)?;
        let greeting = wire::receive(&mut stream, GREETING.len() + NONCE_BYTES + 1024);
        let greeting = greeting.map_err(|error| without_greeting(error, address, roots.is_some()))?;
        let Some(of_device) = greeting.strip_prefix(GREETING).filter(|nonce| nonce.len() == NONCE_BYTES)
        else {
            return match Answer::decode(&greeting) {
                Ok(Answer::Failed(text)) => Err(SmartError::Device(text)),
                _ => Err(SmartError::Malformed("the greeting is not that of a smart device".into())),
            };
        };
        let own = nonce()?;
        let proof = key.proof(Prover::Host, of_device, &own);
        wire::send(&mut stream, &[own, proof].concat())?;
        let proof = wire::receive(&mut stream, 1024)?;
        if key.check(Prover::Device, of_device, &own, &proof).is_err() {
            return match Answer::decode(&proof) {
                Ok(Answer::Failed(text)) => Err(SmartError::Device(text)),
                _ => Err(SmartError::Key),
            };
        }
        Ok(Client { stream, bytes: 0 })
    }

    /// The bytes of requests and answers since the last call.
    pub fn take_bytes(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        self.ask_bytes(&request.encode()?)
    }

    /// Sends the bytes of a request, and waits for the answer.
    pub fn ask_bytes(&mut self, request: &[u8]) -> Result<Answer> {
        wire::send(&mut self.stream, request)?;
        self.bytes += request.len();
        let answer = wire::receive(&mut self.stream, ANSWER_BYTES_MAX)?;
        self.bytes += answer.len();
        match Answer::decode(&answer)? {
            Answer::Failed(text) => Err(SmartError::Device(text)),
            answer => Ok(answer),
        }
    }

    /// Begins a scan. Returns the number of its session.
    pub fn open(&mut self, request: OpenRequest) -> Result<u32> {
        match self.ask(&Request::Open(Box::new(request)))? {
            Answer::Opened(session) => Ok(session),
            _ => Err(SmartError::Malformed("another answer than to OPEN".into())),
        }
    }

    /// Returns the next part of a scan.
    pub fn get(&mut self, session: u32) -> Result<Part> {
        match self.ask(&Request::Get(session))? {
            Answer::Part(part) => Ok(part),
            _ => Err(SmartError::Malformed("another answer than to GET".into())),
        }
    }

    /// Ends a scan.
    pub fn close(&mut self, session: u32) -> Result<()> {
        match self.ask(&Request::Close(session))? {
            Answer::Closed => Ok(()),
            _ => Err(SmartError::Malformed("another answer than to CLOSE".into())),
        }
    }
}

/// Returns the error for a device that has sent no greeting. A device with TLS waits for the host's first
/// message instead.
fn without_greeting(error: SmartError, address: &Address, is_encrypted: bool) -> SmartError {
    let kinds = [ErrorKind::UnexpectedEof, ErrorKind::WouldBlock, ErrorKind::TimedOut];
    match (error, address) {
        (SmartError::Connection(end), Address::Tcp(address))
            if !is_encrypted && kinds.contains(&end.kind()) =>
        {
            SmartError::NoGreeting { address: address.clone() }
        }
        (error, _) => error,
    }
}
