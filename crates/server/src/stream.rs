//! A socket shared by its connection's thread and the registry, on one descriptor.
//!
//! Invariants
//! 1. With a deadline, no number of small reads goes beyond it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// Reads and writes a shared socket.
#[derive(Debug, Clone)]
pub struct Stream {
    /// The socket.
    pub socket: Arc<TcpStream>,
    /// Reads fail from then on.
    deadline: Option<Instant>,
}

impl Stream {
    /// A stream that waits for its peer as long as it takes.
    pub fn new(socket: Arc<TcpStream>) -> Stream {
        Stream { socket, deadline: None }
    }

    /// Sets or lifts the time by which all reads must be done.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        if deadline.is_none() { self.socket.set_read_timeout(None) } else { Ok(()) }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
        }
        (&*self.socket).read(buf)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self.socket).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// Each byte came in time for a time-out per read, so that a start-up could take for ever.
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
