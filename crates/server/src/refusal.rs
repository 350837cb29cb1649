//! Refuses new connections while the server has its maximum number of connections. One thread serves all
//! refused clients.
//!
//! A client may first ask for encryption. It would misread an error message in place of the answer. So the
//! server answers the encryption request, and then refuses the connection. A cancel request is executed even
//! at the maximum, because it needs no session.
//!
//! Invariants
//! 1. The thread never waits for a client: its sockets are non-blocking, and it closes each one after
//!    `PATIENCE`.
//! 2. The thread has at most `HELD_MAX` open sockets. Further clients are refused at once.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{ServerError, WireError};
use crate::registry::Registry;
use crate::server::tell;
use crate::startup::{CANCEL_REQUEST, CancelKey, GSSENC_REQUEST, SSL_REQUEST};
use crate::stream::Stream;

/// The most sockets that the thread keeps.
const HELD_MAX: usize = 256;
/// The period after which the sockets are read.
const PERIOD: Duration = Duration::from_millis(20);
/// The time that a client has to send its request and to read the refusal.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of encryption requests that are answered: one of each kind.
const ANSWERS_MAX: u8 = 2;
/// The most reads of a connection in each period, so that a client that sends without end does not block the
/// thread.
const READS_MAX: usize = 16;
/// The number of bytes that are read and dropped together after the refusal.
const REST_BYTES: usize = 4096;

/// Passes connections to the thread that refuses them.
pub struct Refusals {
    sender: SyncSender<Arc<TcpStream>>,
}

impl Refusals {
    /// Starts the thread. It ends when this value is dropped.
    pub fn start(registry: Arc<Registry>) -> Result<Refusals, ServerError> {
        let (sender, receiver) = sync_channel(HELD_MAX);
        thread::Builder::new()
            .name("refuse".to_owned())
            .spawn(move || run(&receiver, &registry))
            .map_err(|error| ServerError::System { what: "starting the thread that refuses", error })?;
        Ok(Refusals { sender })
    }

    /// Passes a connection to the thread.
    pub fn take(&self, socket: &Arc<TcpStream>) {
        if self.sender.try_send(socket.clone()).is_err() {
            refuse(socket);
        }
    }
}

/// Refuses a connection with an error message, which it can read at this point.
pub fn refuse(socket: &Arc<TcpStream>) {
    // The socket does not block, because the client may not read.
    if socket.set_nonblocking(true).is_ok() {
        tell(Stream::new(socket.clone()), &WireError::fatal("53300", "sorry, too many clients already"));
    }
}

fn run(receiver: &Receiver<Arc<TcpStream>>, registry: &Registry) {
    let mut held: Vec<RefusedConnection> = Vec::new();
    loop {
        let next = match held.is_empty() {
            true => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => receiver.recv_timeout(PERIOD),
        };
        match next {
            Ok(socket) if held.len() < HELD_MAX => held.extend(RefusedConnection::new(socket)),
            Ok(socket) => refuse(&socket),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        held.retain_mut(|h| h.goes_on(registry));
    }
}

/// A connection that will be refused.
struct RefusedConnection {
    socket: Arc<TcpStream>,
    until: Instant,
    /// The bytes of the packet that have arrived.
    packet: [u8; 16],
    len: usize,
    answers: u8,
    is_told: bool,
}

impl RefusedConnection {
    fn new(socket: Arc<TcpStream>) -> Option<RefusedConnection> {
        socket.set_nonblocking(true).ok()?;
        let until = Instant::now() + PATIENCE;
        Some(RefusedConnection { socket, until, packet: [0; 16], len: 0, answers: 0, is_told: false })
    }

    /// Does the work that is possible now. Returns false when no work is left.
    fn goes_on(&mut self, registry: &Registry) -> bool {
        if Instant::now() >= self.until {
            if !self.is_told {
                refuse(&self.socket);
            }
            return false;
        }
        for _ in 0..READS_MAX {
            // The first 8 bytes are length and code. A cancel request also has a key of 8 bytes.
            let wanted = if self.len >= 8 { 16 } else { 8 };
            let mut rest = [0; REST_BYTES];
            let space = if self.is_told { &mut rest[..] } else { &mut self.packet[self.len..wanted] };
            match (&*self.socket).read(space) {
                Ok(0) => return false,
                Ok(count) if !self.is_told => self.len += count,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            if !self.is_told && self.len >= 8 && !self.answer(registry) {
                return false;
            }
        }
        true
    }

    /// Answers the packet that has arrived. Returns false if the connection has ended.
    fn answer(&mut self, registry: &Registry) -> bool {
        let number = |at: usize| {
            let mut raw = [0; 4];
            raw.copy_from_slice(&self.packet[at..at + 4]);
            i32::from_be_bytes(raw)
        };
        match number(4) {
            SSL_REQUEST | GSSENC_REQUEST if number(0) == 8 && self.answers < ANSWERS_MAX => {
                (self.len, self.answers) = (0, self.answers + 1);
                (&*self.socket).write_all(b"N").is_ok()
            }
            CANCEL_REQUEST if self.len < 16 => true,
            CANCEL_REQUEST => {
                registry.cancel(CancelKey { process: number(8), secret: number(12) });
                false
            }
            _ => {
                refuse(&self.socket);
                // The rest of the input is read first, because closing a socket with unread input would
                // discard the refusal.
                self.is_told = true;
                self.socket.shutdown(Shutdown::Write).is_ok()
            }
        }
    }
}
