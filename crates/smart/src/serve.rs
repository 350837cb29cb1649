//! The device's server: accepts connections, checks the shared key, and answers requests.
//!
//! Invariants
//! 1. A connection has a thread. The sessions of a connection end with it. So an abandoned session is freed
//!    when its connection ends, or was silent for too long.
//! 2. The device answers no request before the host has proved that it knows the key. If the device has a
//!    certificate, the connection is encrypted before that.
//! 3. When the server is dropped, it accepts no more connections, and all connections end. A thread that
//!    reads leaves at this moment finishes them first.
//! 4. A request that fails ends its session, and is answered with the reason. The device serves other sessions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_device::{Directory, OpenHow, Space};

use crate::error::{Result, SmartError};
use crate::key::{NONCE_BYTES, Prover, SharedKey, nonce};
use crate::profile::{DeviceProfile, EmulatedTimes, Throttle, Work};
use crate::protocol::{Answer, OpenRequest, Request};
use crate::session::{DataFile, Memory, Session};
use crate::tls::DeviceCertificate;
use crate::wire::{self, Address, Listening, ShutdownHandle, Stream};

/// The first bytes that the device sends.
pub(crate) const GREETING: &[u8; 8] = b"VARVESM1";
/// The pause between two looks for connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(5);

/// The limits of what hosts may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest number of connections at a time.
    pub connections: usize,
    /// The largest number of sessions of a connection at a time.
    pub sessions: usize,
    /// The largest number of leaves of a session.
    pub leaves: usize,
    /// The largest number of bytes of a request.
    pub request_bytes: usize,
    /// The memory of the groups of a session, in bytes.
    pub group_bytes: usize,
    /// The memory of all sessions, in bytes.
    pub memory_bytes: usize,
    /// A connection that is silent for this long is closed.
    pub idle: Duration,
    /// The time for the TLS handshake and the proof of the key.
    pub proof_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 64,
            sessions: 16,
            leaves: 1 << 16,
            request_bytes: 4 << 20,
            group_bytes: 16 << 20,
            memory_bytes: 256 << 20,
            idle: Duration::from_secs(60),
            proof_time: Duration::from_secs(5),
        }
    }
}

/// How a server works.
pub struct ServerOptions {
    /// The key that hosts must know.
    pub key: SharedKey,
    /// The device's certificate. Without one, connections are not encrypted.
    pub certificate: Option<DeviceCertificate>,
    /// The limits of what hosts may use.
    pub limits: Limits,
    /// The device to imitate, if any.
    pub profile: Option<DeviceProfile>,
}

/// The state that all connections share.
struct Shared {
    key: SharedKey,
    certificate: Option<DeviceCertificate>,
    limits: Limits,
    throttle: Option<Throttle>,
    files: Vec<DataFile>,
    memory: Arc<Memory>,
    connections: AtomicUsize,
    /// The connections by their numbers, so that the server can end them.
    shutdown_handles: Mutex<HashMap<u64, ShutdownHandle>>,
    is_stopping: AtomicBool,
}

/// A running server. It stops when it is dropped, and its connections end.
pub struct Server {
    shared: Arc<Shared>,
    address: Address,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server for these files of a directory. The files are only read.
    pub fn start(
        address: &Address,
        options: ServerOptions,
        directory: &dyn Directory,
        names: &[String],
    ) -> Result<Server> {
        if let (Some(_), Address::Unix(_)) = (&options.certificate, address) {
            return Err(SmartError::NoTcp { address: address.to_string() });
        }
        let open = |name: &String| -> Result<DataFile> {
            let file = directory.open(name, OpenHow::read_only(Space::Data))?;
            Ok(DataFile { name: name.clone(), identity: directory.identity(name)?, file })
        };
        let files = names.iter().map(open).collect::<Result<Vec<_>>>()?;
        let listening = Listening::open(address)?;
        let address = listening.address()?;
        let mut limits = options.limits;
        if let Some(profile) = &options.profile {
            limits.memory_bytes = limits.memory_bytes.min(profile.memory_bytes);
        }
        let memory = Memory { used: AtomicUsize::new(0), limit_bytes: limits.memory_bytes };
        let shared = Arc::new(Shared {
            key: options.key,
            certificate: options.certificate,
            limits,
            throttle: options.profile.map(Throttle::new),
            files,
            memory: Arc::new(memory),
            connections: AtomicUsize::new(0),
            shutdown_handles: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("smart-accept".into())
            .spawn(move || accept_all(&accepting, &listening))?;
        Ok(Server { shared, address, thread: Some(thread) })
    }

    /// Returns the address on which the server listens.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the number of connections, and the memory of their sessions in bytes.
    pub fn load(&self) -> (usize, usize) {
        let shared = &self.shared;
        (shared.connections.load(Ordering::Acquire), shared.memory.used.load(Ordering::Acquire))
    }

    /// Returns the profile that the device imitates.
    pub fn profile(&self) -> Option<&DeviceProfile> {
        self.shared.throttle.as_ref().map(Throttle::profile)
    }

    /// How far the device has kept the times of its profile. `None` if it imitates none.
    pub fn emulated_times(&self) -> Option<EmulatedTimes> {
        self.shared.throttle.as_ref().map(Throttle::times)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _a_panic_was_printed = thread.join();
        }
        self.shared.shutdown_handles.lock().values().for_each(ShutdownHandle::shut_down);
    }
}

fn accept_all(shared: &Arc<Shared>, listening: &Listening) {
    let mut number = 0;
    while !shared.is_stopping.load(Ordering::Acquire) {
        match listening.accept() {
            Ok(stream) => {
                number += 1;
                begin(shared, stream, number);
            }
            // No connection waits, or the connection has failed already.
            Err(_) => std::thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Starts the thread of a connection. Without a thread, the connection is closed.
fn begin(shared: &Arc<Shared>, mut stream: Stream, number: u64) {
    let before = shared.connections.fetch_add(1, Ordering::AcqRel);
    let counted = Counted(Arc::clone(shared), number);
    if before >= shared.limits.connections {
        let refusal = Answer::Failed(format!("there are {before} connections, which is the limit"));
        // This is sent without TLS. A host with TLS then reports `NoTls`, which mentions this case.
        let _ = stream.set_patience(shared.limits.proof_time);
        let _the_host_may_be_gone = wire::send(&mut stream, &refusal.encode());
        return;
    }
    // Without this the connection would outlive the server.
    let Ok(handle) = stream.shutdown_handle() else { return };
    shared.shutdown_handles.lock().insert(number, handle);
    let serve = move || {
        // The host learns the reason from the answers. If the connection failed, nobody needs it.
        let _ = Connection { shared: &counted.0, stream, sessions: HashMap::new(), next: 1 }.serve();
    };
    let _without_a_thread_it_is_dropped = std::thread::Builder::new().name("smart-scan".into()).spawn(serve);
}

/// Counts a connection until it is dropped, and forgets its stream then.
struct Counted(Arc<Shared>, u64);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.shutdown_handles.lock().remove(&self.1);
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Connection<'s> {
    shared: &'s Shared,
    stream: Stream,
    sessions: HashMap<u32, Session>,
    next: u32,
}

impl Connection<'_> {
    fn serve(mut self) -> Result<()> {
        let limits = &self.shared.limits;
        self.stream.set_deadline(Instant::now() + limits.proof_time);
        if let Some(certificate) = &self.shared.certificate {
            // A host without TLS could not read the reason of a failure.
            self.stream.encrypt(certificate)?;
        }
        if let Err(error) = self.prove() {
            self.stream.set_patience(limits.proof_time)?;
            return self.answer(&Answer::Failed(error.to_string()));
        }
        self.stream.set_patience(limits.idle)?;
        loop {
            let frame = match wire::receive(&mut self.stream, limits.request_bytes) {
                Ok(frame) => frame,
                // The rest of the frame is still on its way, so the connection can't be used any more.
                Err(error @ SmartError::Limit { .. }) => {
                    return self.answer(&Answer::Failed(error.to_string()));
                }
                Err(error) => return Err(error),
            };
            if self.shared.is_stopping.load(Ordering::Acquire) {
                return self.answer(&Answer::Failed("the device stops".into()));
            }
            let began = Instant::now();
            let (answer, mut work) = match Request::decode(&frame).and_then(|request| self.act(request)) {
                Ok(done) => done,
                Err(error) => (Answer::Failed(error.to_string()), Work::default()),
            };
            let bytes = answer.encode();
            work.sent_bytes = bytes.len() as u64;
            if let Some(throttle) = &self.shared.throttle {
                throttle.wait(work, began);
            }
            wire::send(&mut self.stream, &bytes)?;
        }
    }

    fn answer(&mut self, answer: &Answer) -> Result<()> {
        wire::send(&mut self.stream, &answer.encode())
    }

    /// Lets the host prove that it knows the key, and proves the same to the host.
    fn prove(&mut self) -> Result<()> {
        let key = &self.shared.key;
        let (own, stream) = (nonce()?, &mut self.stream);
        wire::send(stream, &[&GREETING[..], &own].concat())?;
        let frame = wire::receive(stream, 2 * NONCE_BYTES)?;
        let (of_host, proof) = frame.split_at_checked(NONCE_BYTES).ok_or(SmartError::Key)?;
        key.check(Prover::Host, &own, of_host, proof)?;
        wire::send(stream, &key.proof(Prover::Device, &own, of_host))
    }

    fn act(&mut self, request: Request) -> Result<(Answer, Work)> {
        match request {
            Request::Open(open) => Ok((Answer::Opened(self.open(*open)?), Work::default())),
            Request::Close(session) => {
                self.sessions.remove(&session).ok_or(SmartError::Session(session))?;
                Ok((Answer::Closed, Work::default()))
            }
            Request::Get(session) => {
                let scan = self.sessions.get_mut(&session).ok_or(SmartError::Session(session))?;
                match scan.get() {
                    Ok((part, work)) => Ok((Answer::Part(part), work)),
                    Err(error) => {
                        self.sessions.remove(&session);
                        Err(error)
                    }
                }
            }
        }
    }

    fn open(&mut self, request: OpenRequest) -> Result<u32> {
        let limits = &self.shared.limits;
        let found = request.leaves.len();
        if found > limits.leaves {
            let what = format!("the scan has {found} leaves");
            return Err(SmartError::Limit { what, limit: limits.leaves });
        }
        if self.sessions.len() >= limits.sessions {
            let what = format!("the connection has {} sessions", self.sessions.len());
            return Err(SmartError::Limit { what, limit: limits.sessions });
        }
        let Shared { files, memory, .. } = self.shared;
        let session = Session::open(request, files, memory, limits.group_bytes)?;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.sessions.insert(number, session);
        Ok(number)
    }
}
