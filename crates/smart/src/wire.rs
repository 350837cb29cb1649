//! Frames on a connection. A frame is a length of four bytes (little endian), and then this number of bytes.
//!
//! Invariants
//! 1. A frame that is longer than the limit is refused before memory is taken for it.
//! 2. Memory is taken as the bytes arrive, so a false length costs no memory.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, ServerConnection};

use crate::error::{Result, SmartError};
use crate::tls::{DeviceCertificate, RootCertificates};

/// The smallest number of bytes by which the memory of a frame grows.
const PIECE_BYTES: usize = 64 << 10;

/// Sends a frame.
pub(crate) fn send(out: &mut dyn Write, frame: &[u8]) -> Result<()> {
    let length = u32::try_from(frame.len()).map_err(|_| SmartError::Limit {
        what: format!("a message has {} bytes", frame.len()),
        limit: u32::MAX as usize,
    })?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(frame)?;
    out.flush()?;
    Ok(())
}

/// Receives a frame of at most `limit` bytes.
pub(crate) fn receive(from: &mut dyn Read, limit: usize) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(SmartError::Limit { what: format!("a message has {length} bytes"), limit });
    }
    let mut frame = Vec::new();
    while frame.len() < length {
        let piece = (length - frame.len()).min(PIECE_BYTES);
        let start = frame.len();
        frame.resize(start + piece, 0);
        from.read_exact(&mut frame[start..])?;
    }
    Ok(frame)
}

/// Reads numbers and bytes from a received frame.
pub(crate) struct Cut<'a>(pub(crate) &'a [u8]);

impl<'a> Cut<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| SmartError::Malformed(format!("it ends {} bytes early", count - self.0.len())))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        let mut raw = [0; 4];
        raw.copy_from_slice(self.bytes(4)?);
        Ok(u32::from_le_bytes(raw))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        let mut raw = [0; 8];
        raw.copy_from_slice(self.bytes(8)?);
        Ok(u64::from_le_bytes(raw))
    }

    pub(crate) fn end(&self) -> Result<()> {
        match self.0.len() {
            0 => Ok(()),
            left => Err(SmartError::Malformed(format!("{left} bytes follow its end"))),
        }
    }
}

/// The address on which a device listens: `unix:PATH` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A local socket.
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Address::Unix(path.into()));
        }
        let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty() && *host != "unix");
        match port.and_then(|(_, port)| port.parse::<u16>().ok()) {
            Some(_) => Ok(Address::Tcp(text.to_owned())),
            None => Err(format!("{text} is no address; write unix:PATH or HOST:PORT")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(text) => f.write_str(text),
        }
    }
}

/// A connection, encrypted or not.
pub(crate) struct Stream {
    socket: Socket,
    encryption: Option<Encryption>,
}

/// The state of TLS on one side of a connection.
enum Encryption {
    Host(Box<ClientConnection>),
    Device(Box<ServerConnection>),
}

/// The bytes of a connection as they are sent.
pub(crate) struct Socket {
    kind: SocketKind,
    /// The time at which all reads and writes must have ended.
    deadline: Option<Instant>,
}

enum SocketKind {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects to a device. Over TCP this takes at most `patience`, not counting the look-up of the name. If
    /// the host has root certificates, the connection is encrypted.
    pub(crate) fn connect(
        address: &Address,
        roots: Option<&RootCertificates>,
        patience: Duration,
    ) -> Result<Stream> {
        match address {
            Address::Unix(path) => Ok(Stream::plain(SocketKind::Unix(UnixStream::connect(path)?))),
            Address::Tcp(text) => {
                let socket = connect_tcp(text, patience)?;
                socket.set_nodelay(true)?;
                let mut stream = Stream::plain(SocketKind::Tcp(socket));
                if let Some(roots) = roots {
                    stream.set_deadline(Instant::now() + patience);
                    stream.encrypt_for_host(roots, text)?;
                }
                Ok(stream)
            }
        }
    }

    fn plain(kind: SocketKind) -> Stream {
        Stream { socket: Socket { kind, deadline: None }, encryption: None }
    }

    /// Encrypts a connection over TCP, on the side of the host.
    fn encrypt_for_host(&mut self, roots: &RootCertificates, address: &str) -> Result<()> {
        let mut connection = roots.connection(address)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut self.socket).map_err(|error| handshake_error(error, address))?;
        }
        self.encryption = Some(Encryption::Host(Box::new(connection)));
        Ok(())
    }

    /// Encrypts a connection over TCP, on the side of the device.
    pub(crate) fn encrypt(&mut self, certificate: &DeviceCertificate) -> Result<()> {
        let mut connection = certificate.connection()?;
        while connection.is_handshaking() {
            connection.complete_io(&mut self.socket)?;
        }
        self.encryption = Some(Encryption::Device(Box::new(connection)));
        Ok(())
    }

    /// Returns a handle that can end the connection.
    pub(crate) fn shutdown_handle(&self) -> io::Result<ShutdownHandle> {
        Ok(ShutdownHandle(match &self.socket.kind {
            SocketKind::Unix(socket) => SocketKind::Unix(socket.try_clone()?),
            SocketKind::Tcp(socket) => SocketKind::Tcp(socket.try_clone()?),
        }))
    }

    /// Sets the longest time that a read or a write waits, and ends a deadline.
    pub(crate) fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.socket.deadline = None;
        self.socket.set_patience(patience)
    }

    /// Sets the time at which all reads and writes must have ended.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.socket.deadline = Some(deadline);
    }
}

/// Returns the error of a host that could not begin TLS.
fn handshake_error(error: io::Error, address: &str) -> SmartError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(_)) => SmartError::NoTls { address: address.to_owned() },
        Some(error) => SmartError::Tls(error.to_string()),
        None => SmartError::Connection(error),
    }
}

/// Ends a connection that another thread uses.
pub(crate) struct ShutdownHandle(SocketKind);

impl ShutdownHandle {
    /// Ends the connection. Reads and writes that wait fail at once.
    pub(crate) fn shut_down(&self) {
        // It is no error if the connection has ended already.
        let _ = match &self.0 {
            SocketKind::Unix(socket) => socket.shutdown(Shutdown::Both),
            SocketKind::Tcp(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

impl Socket {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        match &self.kind {
            SocketKind::Unix(socket) => {
                socket.set_read_timeout(Some(patience))?;
                socket.set_write_timeout(Some(patience))
            }
            SocketKind::Tcp(socket) => {
                socket.set_read_timeout(Some(patience))?;
                socket.set_write_timeout(Some(patience))
            }
        }
    }

    /// Lets the next read or write wait until the deadline, if there is one.
    fn apply_deadline(&self) -> io::Result<()> {
        self.deadline.map_or(Ok(()), |deadline| self.set_patience(left(deadline)?))
    }
}

/// Connects to the first address of this name that answers.
fn connect_tcp(name: &str, patience: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + patience;
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{name} has no address"));
    for address in name.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the time that is left until `until`, or an error if no time is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::Error::new(io::ErrorKind::TimedOut, "the other side took too long")),
        false => Ok(left),
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.apply_deadline()?;
        match &mut self.kind {
            SocketKind::Unix(socket) => socket.read(buf),
            SocketKind::Tcp(socket) => socket.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.apply_deadline()?;
        match &mut self.kind {
            SocketKind::Unix(socket) => socket.write(buf),
            SocketKind::Tcp(socket) => socket.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.kind {
            SocketKind::Unix(socket) => socket.flush(),
            SocketKind::Tcp(socket) => socket.flush(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.encryption {
            None => self.socket.read(buf),
            Some(Encryption::Host(tls)) => rustls::Stream::new(&mut **tls, &mut self.socket).read(buf),
            Some(Encryption::Device(tls)) => rustls::Stream::new(&mut **tls, &mut self.socket).read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.encryption {
            None => self.socket.write(buf),
            Some(Encryption::Host(tls)) => rustls::Stream::new(&mut **tls, &mut self.socket).write(buf),
            Some(Encryption::Device(tls)) => rustls::Stream::new(&mut **tls, &mut self.socket).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.encryption {
            None => self.socket.flush(),
            Some(Encryption::Host(tls)) => rustls::Stream::new(&mut **tls, &mut self.socket).flush(),
            Some(Encryption::Device(tls)) => rustls::Stream::new(&mut **tls, &mut self.socket).flush(),
        }
    }
}

/// A socket that waits for connections.
pub(crate) enum Listening {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// The file of a local socket. The file is removed when this value is dropped, unless another file took its
/// place.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file that was made.
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // It is no error if the file is gone already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the device and inode of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// Listens on a local socket. A socket on which no process listens any more is replaced. No other file is
/// replaced.
fn bind_local(path: &Path) -> Result<UnixListener> {
    let refused = |why: String| SmartError::Listen { address: format!("unix:{}", path.display()), why };
    let failed = |error: io::Error| refused(error.to_string());
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if !std::fs::symlink_metadata(path).map_err(failed)?.file_type().is_socket() {
                let why = "a file that is no socket has this path; remove it, or give another path";
                return Err(refused(why.into()));
            }
            match UnixStream::connect(path) {
                Ok(_) => return Err(refused("another process listens there; give another path".into())),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(failed(error)),
            }
            std::fs::remove_file(path).map_err(failed)?;
            UnixListener::bind(path).map_err(failed)
        }
        bound => bound.map_err(failed),
    }
}

impl Listening {
    /// Listens on an address. A local socket on which no process listens any more is replaced.
    pub(crate) fn open(address: &Address) -> Result<Listening> {
        let refused =
            |error: io::Error| SmartError::Listen { address: address.to_string(), why: error.to_string() };
        let listening = match address {
            Address::Tcp(text) => Listening::Tcp(TcpListener::bind(text).map_err(refused)?),
            Address::Unix(path) => Listening::Unix(bind_local(path)?, SocketFile::of(path)?),
        };
        match &listening {
            Listening::Unix(listener, _) => listener.set_nonblocking(true)?,
            Listening::Tcp(listener) => listener.set_nonblocking(true)?,
        }
        Ok(listening)
    }

    /// Returns the address, with the port that was chosen.
    pub(crate) fn address(&self) -> Result<Address> {
        Ok(match self {
            Listening::Unix(_, file) => Address::Unix(file.path.clone()),
            Listening::Tcp(listener) => Address::Tcp(listener.local_addr()?.to_string()),
        })
    }

    /// Returns a connection that waits, if there is one.
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Listening::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Stream::plain(SocketKind::Unix(stream))
            }
            Listening::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Stream::plain(SocketKind::Tcp(stream))
            }
        })
    }
}
