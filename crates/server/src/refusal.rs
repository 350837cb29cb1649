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

/// Most sockets that are held.
const HELD_MAX: usize = 256;
/// How often they are looked at.
const PERIOD: Duration = Duration::from_millis(20);
/// How long a client may take to say what it wants, and then to take the refusal.
const PATIENCE: Duration = Duration::from_secs(5);
/// Encryption requests that are answered: one of each kind.
const ANSWERS_MAX: u8 = 2;
/// Reads for a connection in its turn: one that never stops sending must not keep the thread.
const READS_MAX: usize = 16;
/// Bytes of what comes after the refusal that are read and dropped at once.
const REST_BYTES: usize = 4096;

/// The way to the thread that refuses.
pub struct Refusals {
    sender: SyncSender<Arc<TcpStream>>,
}

impl Refusals {
    /// Starts the thread; it ends when this value goes.
    pub fn start(registry: Arc<Registry>) -> Result<Refusals, ServerError> {
        let (sender, receiver) = sync_channel(HELD_MAX);
        thread::Builder::new()
            .name("refuse".to_owned())
            .spawn(move || run(&receiver, &registry))
            .map_err(|error| ServerError::System { what: "starting the thread that refuses", error })?;
        Ok(Refusals { sender })
    }

    /// Has a connection refused.
    pub fn take(&self, socket: &Arc<TcpStream>) {
        if self.sender.try_send(socket.clone()).is_err() {
            refuse(socket);
        }
    }
}

/// Refuses a connection with an error message, which it can read at this point.
pub fn refuse(socket: &Arc<TcpStream>) {
    // The client may not read; nobody waits for it.
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

/// A connection that is to be refused.
struct RefusedConnection {
    socket: Arc<TcpStream>,
    until: Instant,
    /// The packet so far.
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

    /// Does what can be done now; `false` once nothing is left to do.
    fn goes_on(&mut self, registry: &Registry) -> bool {
        if Instant::now() >= self.until {
            if !self.is_told {
                refuse(&self.socket);
            }
            return false;
        }
        for _ in 0..READS_MAX {
            // Length and code; of a cancel request its key, too.
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

    /// Answers the packet that is here; `false` if the connection is over with that.
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
                // To close a socket with unread input would take the refusal back: the rest is read first.
                self.is_told = true;
                self.socket.shutdown(Shutdown::Write).is_ok()
            }
        }
    }
}
