//! The listener: one thread accepts connections, and starts a thread for each of them.
//!
//! Invariants
//! 1. If the server does not ask clients for passwords, it listens only on a loopback address.
//! 2. A panic in a connection ends only that connection.
//! 3. After `stop` has returned, no connection runs statements any more.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::connection::serve;
use crate::error::{ServerError, WireError};
use crate::options::Options;
use crate::out::Out;
use crate::refusal::{Refusals, Starting, refuse};
use crate::registry::{Registration, Registry};
use crate::session::Backend;
use crate::stream::Stream;

/// The size of the stack of a connection's thread. It is enough to parse a statement of common length, so
/// only long statements need a separate stack, which costs more than parsing them. Only the used part of a
/// stack occupies memory.
const STACK_BYTES: usize = 16 << 20;
/// The pause after a failed `accept`, which fails while there are too few descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running server.
pub struct Server {
    address: SocketAddr,
    registry: Arc<Registry>,
    acceptor: JoinHandle<()>,
}

/// A bound address, before the server accepts sessions. A client that connects waits, or gets the error that
/// the server is starting up (57P03).
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Opens a listener on a loopback address. Port 0 means any free port.
    pub fn open(address: SocketAddr) -> Result<Listener, ServerError> {
        Listener::open_for(address, &Options::new(0))
    }

    /// Opens a listener for a server with these options.
    pub fn open_for(address: SocketAddr, options: &Options) -> Result<Listener, ServerError> {
        options.check(address)?;
        let fail = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => ServerError::AddressInUse { address },
            _ => ServerError::Listen { address, error },
        };
        let listener = TcpListener::bind(address).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Listener { listener, address })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to refuse clients with the error that the server is starting up (57P03). The error has the
    /// sentence that `progress` returns. The caller ends this before it starts the server.
    pub fn begin_starting(
        &self,
        progress: impl Fn() -> String + Send + 'static,
    ) -> Result<Starting, ServerError> {
        Starting::begin(&self.listener, Box::new(progress))
    }
}

impl Server {
    /// Starts a server for clients on this machine, with at most `sessions_max` sessions.
    pub fn start<B: Backend>(
        listener: Listener,
        sessions_max: usize,
        backend: Arc<B>,
    ) -> Result<Server, ServerError> {
        Server::start_with(listener, Options::new(sessions_max), backend)
    }

    /// Starts a server on a listener.
    pub fn start_with<B: Backend>(
        listener: Listener,
        options: Options,
        backend: Arc<B>,
    ) -> Result<Server, ServerError> {
        let Listener { listener, address } = listener;
        options.check(address)?;
        let registry = Registry::new(options.sessions_max);
        let refusals = Refusals::start(registry.clone())?;
        let options = Arc::new(options);
        let acceptor = Acceptor { listener, registry: registry.clone(), refusals, backend, options };
        let acceptor = thread::Builder::new()
            .name("accept".to_owned())
            .spawn(move || acceptor.run())
            .map_err(|error| ServerError::System { what: "starting the thread that accepts", error })?;
        Ok(Server { address, registry, acceptor })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections.
    pub fn connection_count(&self) -> usize {
        self.registry.connection_count()
    }

    /// Ends all connections. Statements are cancelled, transactions are rolled back, and clients are
    /// informed. Returns the number of connections that had not ended within `patience`.
    pub fn stop(self, patience: Duration) -> usize {
        let left = self.registry.stop(patience);
        // A connection wakes the acceptor, which waits in `accept`. If the connection fails, the acceptor is
        // not waiting.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        // The thread did not panic, because panics of connections are caught.
        let _ = self.acceptor.join();
        left
    }
}

struct Acceptor<B> {
    listener: TcpListener,
    registry: Arc<Registry>,
    refusals: Refusals,
    backend: Arc<B>,
    options: Arc<Options>,
}

impl<B: Backend> Acceptor<B> {
    fn run(self) {
        while !self.registry.is_stopping() {
            match self.listener.accept() {
                Ok((socket, _)) => self.welcome(socket),
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    fn welcome(&self, socket: TcpStream) {
        // Without this option, each answer could wait for the acknowledgement of the one before.
        let _ = socket.set_nodelay(true);
        let socket = Arc::new(socket);
        // Connections that do not become sessions also need a thread for the refusal. Their number is
        // limited.
        if self.registry.connection_count() > 2 * self.registry.sessions_max() + 64 {
            return self.refusals.take(&socket);
        }
        let Some(registration) = self.registry.enter(&socket, random()) else { return };
        let (stream, backend, options) =
            (Stream::new(socket.clone()), self.backend.clone(), self.options.clone());
        let thread = thread::Builder::new().name(format!("client {}", registration.key().process));
        let spawned =
            thread.stack_size(STACK_BYTES).spawn(move || guarded(stream, registration, &backend, &options));
        if spawned.is_err() {
            refuse(&socket);
        }
    }
}

/// Serves a connection, and catches its panics.
fn guarded<B: Backend>(stream: Stream, registration: Registration, backend: &Arc<B>, options: &Options) {
    let served = catch_unwind(AssertUnwindSafe(|| serve(stream.clone(), &registration, backend, options)));
    if served.is_err() {
        let error = WireError::fatal("XX000", "internal error: the thread of this connection failed").hint(
            "This is a bug in Varve; the server's log has a backtrace. Other connections continue; connect again.",
        );
        tell(stream, &error);
    }
}

/// Sends an error. Messages are always sent as a whole, so the client is between two messages.
pub(crate) fn tell<W: Write>(stream: W, error: &WireError) {
    let mut out = Out::new(stream);
    out.error(error);
    let _ = out.flush();
}

fn random() -> i32 {
    let mut raw = [0; 4];
    let filled = getrandom::fill(&mut raw);
    assert!(filled.is_ok(), "the system gives no random bits: {filled:?}");
    i32::from_ne_bytes(raw)
}
