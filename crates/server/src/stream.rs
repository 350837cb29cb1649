//! The socket of a connection. The connection's thread and the table of connections (`registry`) share one
//! file descriptor. If the client asks for TLS, the stream is encrypted.
//!
//! Invariants
//! 1. A deadline limits the time of all reads together, so many small reads cannot extend it.
//! 2. Once encryption has begun, every clone of the stream reads and writes encrypted data.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection};
use socket2::{SockRef, TcpKeepalive};
use varve_sql::Probing;

/// The system's default values of TCP keepalive.
static USUAL_PROBES: OnceLock<Probing> = OnceLock::new();

fn usual_probes(socket: &SockRef<'_>) -> Probing {
    let seconds = |time: io::Result<Duration>| time.map_or(0, |time| time.as_secs() as u32);
    Probing {
        idle_s: seconds(socket.tcp_keepalive_time()),
        interval_s: seconds(socket.tcp_keepalive_interval()),
        count: socket.tcp_keepalive_retries().unwrap_or(0),
        unanswered_ms: 0,
    }
}

/// Reads from and writes to a shared socket.
#[derive(Debug, Clone)]
pub struct Stream {
    /// The socket.
    pub socket: Arc<TcpStream>,
    /// The time after which reads fail.
    deadline: Option<Instant>,
    encryption: Arc<OnceLock<Mutex<ServerConnection>>>,
}

impl Stream {
    /// Returns a stream that waits for its peer without a limit.
    pub fn new(socket: Arc<TcpStream>) -> Stream {
        Stream { socket, deadline: None, encryption: Arc::default() }
    }

    /// Returns whether the stream uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.encryption.get().is_some()
    }

    /// Starts TLS. The client has already received the answer to its request.
    pub fn encrypt(&self, config: &Arc<ServerConfig>) -> io::Result<()> {
        let mut connection = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut Plain(self))?;
        }
        // Encryption is accepted only once, so the value is not set yet.
        let _ = self.encryption.set(Mutex::new(connection));
        Ok(())
    }

    /// Tells the peer that no more data will be sent.
    pub fn finish(&self) {
        if let Some(connection) = self.encryption.get() {
            let mut connection = connection.lock();
            connection.send_close_notify();
            // If the peer has closed the connection, it does not need this message.
            let _ = connection.complete_io(&mut Plain(self));
        }
    }

    /// Makes the system check whether a silent client is still there (TCP keepalive). 0 keeps the system's
    /// own value. A value that the system refuses is ignored.
    pub fn probe(&self, how: Probing) {
        let socket = SockRef::from(&*self.socket);
        // The first connection that reads the usual values has not changed them yet.
        let usual = USUAL_PROBES.get_or_init(|| usual_probes(&socket));
        let set = |n: u32, usual: u32| if n > 0 { n } else { usual };
        let seconds = |n: u32, usual: u32| Duration::from_secs(u64::from(set(n, usual)));
        // Keepalive is on for every connection, as in PostgreSQL. Each value is set by a call of its own, so
        // a value that the system refuses does not prevent the others.
        let _ = socket.set_keepalive(true);
        for probes in [
            TcpKeepalive::new().with_time(seconds(how.idle_s, usual.idle_s)),
            TcpKeepalive::new().with_interval(seconds(how.interval_s, usual.interval_s)),
            TcpKeepalive::new().with_retries(set(how.count, usual.count)),
        ] {
            let _ = socket.set_tcp_keepalive(&probes);
        }
        let limit = Duration::from_millis(u64::from(how.unanswered_ms));
        let _ = socket.set_tcp_user_timeout(Some(limit).filter(|limit| !limit.is_zero()));
    }

    /// Sets or removes the deadline of all reads.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let was = std::mem::replace(&mut self.deadline, deadline);
        if deadline.is_none() && was.is_some() { self.socket.set_read_timeout(None) } else { Ok(()) }
    }
}

/// The bytes on the socket, encrypted or not.
struct Plain<'s>(&'s Stream);

impl Read for Plain<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Stream { socket, deadline, .. } = self.0;
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket.set_read_timeout(Some(left))?;
        }
        (&**socket).read(buf)
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self.0.socket).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(connection) = self.encryption.get() else { return Plain(self).read(buf) };
        let read = rustls::Stream::new(&mut *connection.lock(), &mut Plain(self)).read(buf);
        match read {
            // Clients may close the connection without a TLS close message. An incomplete message is noticed
            // by its length.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self.encryption.get() {
            None => Plain(self).write(buf),
            Some(connection) => rustls::Stream::new(&mut *connection.lock(), &mut Plain(self)).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.encryption.get() {
            None => Ok(()),
            Some(connection) => rustls::Stream::new(&mut *connection.lock(), &mut Plain(self)).flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// In an earlier version, a setting that was reset stayed in force, and a setting that the system refused
    /// prevented the others.
    #[test]
    fn probes_are_taken_back_and_each_is_set_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Stream::new(Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()));
        let socket = SockRef::from(&*stream.socket);
        let usual = socket.tcp_keepalive_time().unwrap();
        stream.probe(Probing { idle_s: 10, ..Probing::default() });
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(10));
        stream.probe(Probing { idle_s: 1_000_000, count: 3, ..Probing::default() });
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        stream.probe(Probing::default());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), usual);
    }

    /// In an earlier version with a time-out for each read, a client that sent single bytes could extend its
    /// start-up for ever.
    #[test]
    fn a_peer_that_dribbles_meets_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = Stream::new(Arc::new(listener.accept().unwrap().0));
        let dribble = std::thread::spawn(move || {
            while peer.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        stream.set_deadline(Some(Instant::now() + Duration::from_millis(100))).unwrap();
        let end = loop {
            match stream.read(&mut [0]) {
                Ok(count) => assert_eq!(count, 1),
                Err(error) => break error.kind(),
            }
        };
        assert!(matches!(end, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{end:?}");
        drop(stream);
        dribble.join().unwrap();
    }
}
