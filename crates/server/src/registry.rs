//! The table of connections. It has their process numbers and cancel keys, limits the number of sessions, and
//! ends all connections at a shutdown.
//!
//! Invariants
//! 1. A connection is added before its thread starts, and removed when the thread has finished.
//! 2. Process numbers of existing connections are unique and positive.
//! 3. After `stop` no connection is added.
//! 4. A cancel request with a wrong secret key is ignored, and its sender cannot notice that.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use varve_sql::{CancelToken, Ender};

use crate::startup::CancelKey;

/// The time for which a stop waits for the next messages of busy clients. A client that sends a message gets
/// the reason of the stop as the answer. Many drivers ignore the reason if it arrives without a message.
const STOP_GRACE: Duration = Duration::from_millis(250);

/// The table of connections.
pub struct Registry {
    table: Mutex<Table>,
    left: Condvar,
    stopping: AtomicBool,
    sessions: AtomicUsize,
    sessions_max: usize,
}

struct Table {
    last_process: i32,
    living: HashMap<i32, Entry>,
}

struct Entry {
    secret: i32,
    /// The token that cancels statements. It is `None` until there is a session.
    cancel: Option<CancelToken>,
    socket: Arc<TcpStream>,
}

/// The registration of one connection. Dropping it removes the connection from the table.
pub struct Registration {
    registry: Arc<Registry>,
    key: CancelKey,
    socket: Arc<TcpStream>,
    /// Whether another session has requested the end of this connection.
    is_ending: Arc<AtomicBool>,
}

/// One of the sessions that are allowed at the same time.
pub struct Seat(Arc<Registry>);

impl Registry {
    /// Returns a table for at most `sessions_max` sessions.
    pub fn new(sessions_max: usize) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(Table { last_process: 0, living: HashMap::new() }),
            left: Condvar::new(),
            stopping: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            sessions_max,
        })
    }

    /// Adds a connection. Returns `None` when the server is stopping.
    pub fn enter(self: &Arc<Self>, socket: &Arc<TcpStream>, secret: i32) -> Option<Registration> {
        let mut table = self.table.lock();
        if self.is_stopping() {
            return None;
        }
        let process = table.next_process();
        table.living.insert(process, Entry { secret, cancel: None, socket: socket.clone() });
        let (socket, is_ending) = (socket.clone(), Arc::default());
        Some(Registration { registry: self.clone(), key: CancelKey { process, secret }, socket, is_ending })
    }

    /// Returns the number of connections, including those during start-up.
    pub fn connection_count(&self) -> usize {
        self.table.lock().living.len()
    }

    /// Returns the limit of sessions.
    pub fn sessions_max(&self) -> usize {
        self.sessions_max
    }

    /// Takes a seat, if one is free.
    pub fn sit(self: &Arc<Self>) -> Option<Seat> {
        let seat = |taken: usize| (taken < self.sessions_max).then_some(taken + 1);
        self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, seat).ok()?;
        Some(Seat(self.clone()))
    }

    /// Cancels the running statement of a connection.
    pub fn cancel(&self, key: CancelKey) {
        let table = self.table.lock();
        if let Some(entry) = table.living.get(&key.process)
            && entry.secret == key.secret
        {
            entry.cancel();
        }
    }

    /// Returns whether the server is stopping.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Ends every connection. Running statements are cancelled. A message that arrives within the grace
    /// period is answered with the reason. Threads that still wait for a message then get the end of their
    /// input. After `patience` the remaining sockets are closed. Returns the number of these sockets.
    pub fn stop(&self, patience: Duration) -> usize {
        let began = Instant::now();
        let deadline = began + patience;
        let mut table = self.table.lock();
        self.stopping.store(true, Ordering::Relaxed);
        loop {
            table.cancel_all();
            let now = Instant::now();
            if now >= began + STOP_GRACE.min(patience) {
                table.end_input();
            }
            if table.living.is_empty() || now >= deadline {
                break;
            }
            // This is repeated, because a session clears its token when it starts a statement.
            self.left.wait_until(&mut table, deadline.min(now + Duration::from_millis(20)));
        }
        table.living.values().for_each(|entry| close(&entry.socket, Shutdown::Both));
        table.living.len()
    }
}

impl Table {
    fn next_process(&mut self) -> i32 {
        loop {
            self.last_process = self.last_process.checked_add(1).unwrap_or(1);
            if !self.living.contains_key(&self.last_process) {
                return self.last_process;
            }
        }
    }

    fn cancel_all(&self) {
        self.living.values().for_each(Entry::cancel);
    }

    fn end_input(&self) {
        self.living.values().for_each(|entry| close(&entry.socket, Shutdown::Read));
    }
}

impl Entry {
    fn cancel(&self) {
        if let Some(token) = &self.cancel {
            token.cancel();
        }
    }
}

fn close(socket: &TcpStream, how: Shutdown) {
    // This fails if the client has already closed the connection, and then nothing must be done.
    let _ = socket.shutdown(how);
}

impl Registration {
    /// Returns the address of the client.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// Returns the process number and the secret of the connection.
    pub fn key(&self) -> CancelKey {
        self.key
    }

    /// Makes the statements of this connection cancellable.
    pub fn set_cancel_token(&self, token: CancelToken) {
        if let Some(entry) = self.registry.table.lock().living.get_mut(&self.key.process) {
            entry.cancel = Some(token);
        }
    }

    /// Returns a function that ends this connection. A thread that waits for the next message gets the end of
    /// its input.
    pub fn ender(&self) -> Ender {
        let (socket, is_ending) = (self.socket.clone(), self.is_ending.clone());
        Box::new(move || {
            is_ending.store(true, Ordering::SeqCst);
            close(&socket, Shutdown::Read);
        })
    }

    /// Returns whether this connection, or the server, must end.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed) || self.registry.is_stopping()
    }

    /// Returns the table.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.table.lock().living.remove(&self.key.process);
        self.registry.left.notify_all();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> Arc<TcpStream> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap())
    }

    #[test]
    fn only_the_right_secret_cancels() {
        let registry = Registry::new(1);
        let registration = registry.enter(&socket(), 42).unwrap();
        let process = registration.key().process;
        let token = CancelToken::default();
        registration.set_cancel_token(token.clone());
        registry.cancel(CancelKey { process, secret: 41 });
        registry.cancel(CancelKey { process: process + 1, secret: 42 });
        assert!(!token.is_cancelled());
        registry.cancel(CancelKey { process, secret: 42 });
        assert!(token.is_cancelled());
    }

    #[test]
    fn seats_are_limited_and_given_back() {
        let registry = Registry::new(2);
        let first = registry.sit();
        let second = registry.sit();
        assert!(first.is_some() && second.is_some());
        assert!(registry.sit().is_none());
        drop(first);
        assert!(registry.sit().is_some());
    }

    #[test]
    fn nobody_enters_a_stopping_server() {
        let registry = Registry::new(1);
        let registration = registry.enter(&socket(), 0).unwrap();
        assert_eq!(registry.stop(Duration::ZERO), 1);
        drop(registration);
        assert_eq!(registry.stop(Duration::ZERO), 0);
        assert!(registry.enter(&socket(), 0).is_none());
    }
}
