//! Refuses new connections while the server has its maximum number of connections, and while it starts. One
//! thread serves all refused clients.
//!
//! A client may first ask for encryption. It would misread an error message in place of the answer. So the
//! server answers the encryption request, and then refuses the connection. A cancel request is executed even
//! at the maximum, because it needs no session.
//!
//! Invariants
//! 1. The thread never waits for a client: its sockets are non-blocking, and it closes each one after
//!    `PATIENCE`.
//! 2. The thread has at most `HELD_MAX` open sockets. Further clients are refused at once.
//! 3. When [`Starting::end`] has returned, the listener is as it was before.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
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

/// Refuses a connection because there are too many.
pub fn refuse(socket: &Arc<TcpStream>) {
    refuse_with(socket, &too_many());
}

fn too_many() -> WireError {
    WireError::fatal("53300", "sorry, too many clients already")
}

/// Refuses a connection with an error message, which it can read at this point.
fn refuse_with(socket: &Arc<TcpStream>, why: &WireError) {
    // The socket does not block, because the client may not read.
    if socket.set_nonblocking(true).is_ok() {
        tell(Stream::new(socket.clone()), why);
    }
}

/// Says how far the start has come, as a sentence.
pub type Progress = dyn Fn() -> String + Send;

/// A thread that refuses clients while the server starts. It sends them the error 57P03.
pub struct Starting {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Starting {
    /// Starts the thread. It accepts connections of the listener, and refuses them.
    pub(crate) fn begin(listener: &TcpListener, progress: Box<Progress>) -> Result<Starting, ServerError> {
        let fail = |error| ServerError::System { what: "answering clients while the server starts", error };
        let listener = listener.try_clone().map_err(fail)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let thread = thread::Builder::new()
            .name("starting".to_owned())
            .spawn(move || refuse_all(&listener, &ends, &progress))
            .map_err(fail)?;
        Ok(Starting { is_over, thread: Some(thread) })
    }

    /// Ends the thread. Clients that connect from now on wait for the server.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // The thread ends after a period. If it panicked, the message is printed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Refuses all connections until `is_over`.
fn refuse_all(listener: &TcpListener, is_over: &AtomicBool, progress: &Progress) {
    let mut held: Vec<RefusedConnection> = Vec::new();
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !is_over.load(Ordering::Acquire) {
        let why = WireError::fatal("57P03", "the database system is starting up").detail(progress());
        // The number of a round is limited, so that many clients cannot delay the end of the start.
        for (socket, _) in std::iter::from_fn(|| listener.accept().ok()).take(HELD_MAX) {
            let socket = Arc::new(socket);
            match held.len() < HELD_MAX {
                true => held.extend(RefusedConnection::new(socket)),
                false => refuse_with(&socket, &why),
            }
        }
        held.retain_mut(|connection| connection.goes_on(None, &why));
        thread::sleep(PERIOD);
    }
    let why = WireError::fatal("57P03", "the database system is starting up").hint("Connect again.");
    held.iter().filter(|connection| !connection.is_told).for_each(|held| refuse_with(&held.socket, &why));
    // If this fails, the server's thread that accepts would not wait, but only check again and again.
    let _ = listener.set_nonblocking(false);
}

fn run(receiver: &Receiver<Arc<TcpStream>>, registry: &Registry) {
    let mut held: Vec<RefusedConnection> = Vec::new();
    let why = too_many();
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
        held.retain_mut(|h| h.goes_on(Some(registry), &why));
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

    /// Does the work that is possible now. Returns false when no work is left. While the server starts, there
    /// is no registry, and no statement that could be cancelled.
    fn goes_on(&mut self, registry: Option<&Registry>, why: &WireError) -> bool {
        if Instant::now() >= self.until {
            if !self.is_told {
                refuse_with(&self.socket, why);
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
            if !self.is_told && self.len >= 8 && !self.answer(registry, why) {
                return false;
            }
        }
        true
    }

    /// Answers the packet that has arrived. Returns false if the connection has ended.
    fn answer(&mut self, registry: Option<&Registry>, why: &WireError) -> bool {
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
                if let Some(registry) = registry {
                    registry.cancel(CancelKey { process: number(8), secret: number(12) });
                }
                false
            }
            _ => {
                refuse_with(&self.socket, why);
                // The rest of the input is read first, because closing a socket with unread input would
                // discard the refusal.
                self.is_told = true;
                self.socket.shutdown(Shutdown::Write).is_ok()
            }
        }
    }
}
