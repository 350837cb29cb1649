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

use crate::error::{Result, SmartError};

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

/// A connection.
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects to a device. Over TCP this takes at most `patience`, not counting the look-up of the name.
    pub(crate) fn connect(address: &Address, patience: Duration) -> Result<Stream> {
        Ok(match address {
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Address::Tcp(text) => {
                let stream = connect_tcp(text, patience)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        })
    }

    /// Returns a second handle of the same connection.
    pub(crate) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }

    /// Ends the connection. Reads and writes that wait fail at once.
    pub(crate) fn shut_down(&self) {
        // It is no error if the connection has ended already.
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Sets the longest time that a read or a write waits.
    pub(crate) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
            }
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
            }
        }
        Ok(())
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

/// A connection whose reads and writes together must end by a time.
pub(crate) struct Until<'s>(pub(crate) &'s mut Stream, pub(crate) Instant);

impl Until<'_> {
    fn ready(&mut self) -> io::Result<&mut Stream> {
        self.0.set_patience(left(self.1)?)?;
        Ok(self.0)
    }
}

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.ready()?.read(buf)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.ready()?.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buf),
            Stream::Tcp(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(buf),
            Stream::Tcp(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.flush(),
            Stream::Tcp(stream) => stream.flush(),
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
                Stream::Unix(stream)
            }
            Listening::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        })
    }
}
