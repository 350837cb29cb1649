//! One connection from its first byte to its last.
//!
//! ```text
//! serve -> opening -> greet -> run { step } -> farewell
//!
//! in step:  Query ----------------> simple ---> ready
//!           Sync -----------------> sync -----> ready (everything is written)
//!           the other messages ---> extended.rs
//!           any of them fails ----> fail ----> skipping until Sync
//! ```
//!
//! Invariants
//! 1. Each Query and each Sync message gets exactly one ReadyForQuery, even after an error. The only
//!    exception is a connection that ends.
//! 2. After an error in an extended-protocol message, messages are skipped until the next Sync.
//! 3. A message is decoded completely before it has any effect.
//! 4. A panic while a message is processed is sent as the error of that message. A panic while a message is
//!    read ends the connection.
//! 5. The buffers of an idle connection are small. Buffers longer than `TEXT_KEEP_BYTES` are freed.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgwire::messages::startup::{Authentication, BackendKeyData, SecretKey};
use varve_sql::oid::Oid;
use varve_sql::panics::caught;
use varve_sql::scram::Verifier;
use varve_sql::{Probing, SessionParams, SqlError, log};

use crate::auth::prove;
use crate::error::{Severity, WireError};
use crate::frame::{Frame, FrameEnd, FrameReader};
use crate::message::{Message, decode};
use crate::options::{Encryption, Options, Proof};
use crate::out::Out;
use crate::portal::Portals;
use crate::registry::{Registration, Seat};
use crate::results::{self, ColumnFormats, Results};
use crate::session::{Backend, Session};
use crate::startup::{Opening, StartUp, open};
use crate::stream::Stream;
use crate::transcode;
use crate::visit::{Visit, Visitor};

/// The time for which a client may be silent after the end of its connection. Then the server no longer waits
/// until the client has read the reason of the end.
const LINGER_SILENCE: Duration = Duration::from_millis(500);
/// The limits of time and of bytes for reading from a client that continues to send after the end of its
/// connection. The bytes are the rest of a message of PostgreSQL's largest size.
const LINGER: Duration = Duration::from_secs(10);
const LINGER_BYTES: usize = 1 << 30;
const TEXT_KEEP_BYTES: usize = 16 << 10;

/// Serves a connection until it ends.
pub fn serve<B: Backend>(stream: Stream, registration: &Registration, backend: &Arc<B>, options: &Options) {
    let mut reader = FrameReader::new(stream.clone());
    let mut out = Out::new(stream.clone());
    let mut visit = Visit::new(registration);
    let end = match opening(registration, &mut visit, backend, options, &mut reader, &mut out) {
        Ok(Some((session, seat))) => {
            let mut talk = Talk::new(session, &mut out);
            let end = talk.run(&mut reader, registration);
            drop(talk);
            // The session's locks and its seat are released before the client can notice the end.
            drop(seat);
            visit.end();
            end
        }
        Ok(None) => return,
        Err(FrameEnd::Io(error)) if is_timeout(&error) => {
            FrameEnd::Broken(WireError::fatal("57014", "canceling authentication due to timeout"))
        }
        Err(end) => end,
    };
    tell(&end, registration);
    if farewell(end, registration, &mut out) {
        drain(&stream, reader.refused_bytes());
        linger(&stream);
    }
}

/// Writes to the server's log the reason why a connection ends, if the client did not end it. The reason may
/// be a failed login, a time-out, or invalid bytes.
fn tell(end: &FrameEnd, registration: &Registration) {
    let FrameEnd::Broken(error) = end else { return };
    if registration.is_ending() {
        return;
    }
    let peer = registration.peer().map_or(String::new(), |peer| format!(" (client {peer})"));
    let source = log::Source { process_id: registration.key().process, session: None };
    let message = format!("{}{peer}", error.message);
    let event = log::Event::new(source, log::Severity::Fatal, &message);
    log::Event { code: Some(error.sqlstate), ..event }.write();
}

/// Returns whether a read ended at its deadline.
fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

type Opened<S> = Option<(S, Seat)>;

/// Handles the start-up until the client may send its first query. Returns `None` if the connection was a
/// cancel request.
fn opening<B: Backend>(
    registration: &Registration,
    visit: &mut Visit,
    backend: &Arc<B>,
    options: &Options,
    reader: &mut FrameReader<Stream>,
    out: &mut Out<Stream>,
) -> Result<Opened<B::Session>, FrameEnd> {
    reader.source_mut().set_deadline(Some(Instant::now() + options.patience))?;
    let start = match encrypted_open(options, reader, out)? {
        Opening::Session(start) => start,
        Opening::Cancel(key) => {
            registration.registry().cancel(key);
            return Ok(None);
        }
    };
    // A client that has not logged in takes no seat.
    let proved = match options.proof {
        Proof::Password => Some(backend.verifier(&start.user)),
        Proof::Nothing => None,
    };
    if let Some(verifier) = &proved {
        let binding = options.encryption.end_point().filter(|_| reader.source_mut().is_encrypted());
        prove(&start.user, verifier, binding, reader, out)?;
    }
    let Some(seat) = registration.registry().sit() else {
        let limit = registration.registry().sessions_max();
        let error = WireError::fatal("53300", "sorry, too many clients already").hint(format!(
            "The limit is {limit}: raise max_connections in section [server] of varve.toml, or pool connections."
        ));
        return Err(FrameEnd::Broken(error));
    };
    visit.authenticated(&start.user, proved.is_some());
    let visitor = Visitor::of(&start, reader.source_mut().is_encrypted());
    let opened = backend.open(params(start, proved, registration));
    let mut session = opened.map_err(|error| FrameEnd::Broken(WireError::from(error).into_fatal()))?;
    visit.authorized(visitor);
    session.set_fact("max_connections", &registration.registry().sessions_max().to_string());
    session.set_fact("authentication_timeout", &options.patience.as_millis().to_string());
    registration.set_cancel_token(session.cancel_token());
    session.set_ender(registration.ender());
    reader.source_mut().set_deadline(None)?;
    out.message(&Authentication::Ok);
    Ok(Some((greet(session, registration, out)?, seat)))
}

/// Reads the start-up packets, and encrypts the connection if both sides want it. The error is FATAL 28000 if
/// a session is not encrypted but must be.
fn encrypted_open(
    options: &Options,
    reader: &mut FrameReader<Stream>,
    out: &mut Out<Stream>,
) -> Result<Opening, FrameEnd> {
    let opening = match &options.encryption {
        Encryption::Off => open(reader, out, None)?,
        Encryption::Offered(tls) | Encryption::Required(tls) => {
            open(reader, out, Some(&|stream: &mut Stream| stream.encrypt(&tls.config)))?
        }
    };
    let must = matches!(options.encryption, Encryption::Required(_));
    if must && matches!(opening, Opening::Session(_)) && !reader.source_mut().is_encrypted() {
        let error = WireError::fatal("28000", "connection without encryption refused")
            .hint("This server requires TLS: connect with sslmode=require.");
        return Err(FrameEnd::Broken(error));
    }
    Ok(opening)
}

fn params(start: StartUp, proved: Option<Verifier>, registration: &Registration) -> SessionParams {
    SessionParams {
        user: start.user,
        proved,
        database: start.database,
        process_id: registration.key().process,
        peer: registration.peer(),
        settings: start.settings,
    }
}

fn greet<S: Session>(
    mut session: S,
    registration: &Registration,
    out: &mut Out<Stream>,
) -> Result<S, FrameEnd> {
    out.set_encoding(session.client_encoding());
    report(&mut session, out);
    let key = registration.key();
    out.message(&BackendKeyData::new(key.process, SecretKey::I32(key.secret)));
    out.ready(session.transaction_status());
    out.flush()?;
    Ok(session)
}

/// Sends notices that belong to no statement, and settings that changed.
fn report<S: Session>(session: &mut S, out: &mut Out<Stream>) {
    if !session.has_news() {
        return;
    }
    for (severity, notice) in session.take_notices() {
        results::tell(out, severity, notice);
    }
    for (name, value) in session.take_reports() {
        out.parameter(name, &value);
    }
}

/// Returns the error 57P05 or 25P03: the client was silent for too long.
fn too_silent(in_block: bool) -> FrameEnd {
    let (sqlstate, message) = match in_block {
        false => ("57P05", "terminating connection due to idle-session timeout"),
        true => ("25P03", "terminating connection due to idle-in-transaction timeout"),
    };
    FrameEnd::Broken(WireError::fatal(sqlstate, message))
}

/// Sends the client the reason why the connection ends, if it may still read. Returns whether it may.
fn farewell(end: FrameEnd, registration: &Registration, out: &mut Out<Stream>) -> bool {
    let error = match end {
        _ if registration.is_ending() => {
            WireError::fatal("57P01", "terminating connection due to administrator command")
        }
        FrameEnd::Broken(error) => error,
        FrameEnd::Closed | FrameEnd::Io(_) => return false,
    };
    out.error(&error);
    // A failed write means that the client does not read any more.
    out.flush().is_ok()
}

/// Reads the rest of a refused message. libpq does not look at the reason if it sees the end of the stream
/// while it still sends, so the stream ends only when the client has sent the message.
fn drain(stream: &Stream, bytes: usize) {
    // Encryption adds at most this number of bytes.
    let bytes = bytes.saturating_add(bytes / 16);
    if bytes > 0 {
        read_on(stream, bytes.min(LINGER_BYTES));
    }
}

/// Continues to read for a short time. Closing a socket with unread input resets the connection, and then the
/// client may not get the error message.
fn linger(stream: &Stream) {
    stream.finish();
    let _ = stream.socket.shutdown(Shutdown::Write);
    read_on(stream, LINGER_BYTES);
}

/// Reads and drops bytes until the client is silent.
fn read_on(stream: &Stream, bytes_max: usize) {
    let _ = stream.socket.set_read_timeout(Some(LINGER_SILENCE));
    let deadline = Instant::now() + LINGER;
    let (mut rest, mut taken) = (vec![0; 64 << 10], 0);
    while Instant::now() < deadline && taken < bytes_max {
        match (&*stream.socket).read(&mut rest) {
            Ok(count @ 1..) => taken += count,
            _ => return,
        }
    }
}

/// The state of a connection between messages.
pub struct Talk<'a, S: Session> {
    pub(crate) session: S,
    pub(crate) out: &'a mut Out<Stream>,
    pub(crate) portals: Portals<S>,
    /// Parameter types of the present Parse message.
    pub(crate) oids: Vec<Oid>,
    /// Text of the present Query message, or the portal's name in the present Execute message.
    text: String,
    skipping: bool,
    /// Whether all messages are answered, so that the server waits for the client.
    is_idle: bool,
    /// The present settings of TCP keepalive.
    probing: Option<Probing>,
    /// The kind of the present message. It is 0 while the message is read.
    kind: u8,
}

/// The reason why a step failed.
pub(crate) enum Failed {
    /// The message or its statement failed. The client gets the error, and the connection continues.
    Message(WireError),
    /// The connection failed.
    Connection(FrameEnd),
}

impl From<WireError> for Failed {
    fn from(error: WireError) -> Self {
        match error.severity {
            Severity::Error => Failed::Message(error),
            Severity::Fatal => Failed::Connection(FrameEnd::Broken(error)),
        }
    }
}

impl From<SqlError> for Failed {
    fn from(error: SqlError) -> Self {
        Failed::Message(error.into())
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Failed::Connection(error.into())
    }
}

impl<'a, S: Session> Talk<'a, S> {
    /// Returns the state at the beginning of a connection.
    pub fn new(session: S, out: &'a mut Out<Stream>) -> Self {
        let portals = Portals::default();
        Self {
            session,
            out,
            portals,
            oids: Vec::new(),
            text: String::new(),
            skipping: false,
            is_idle: true,
            probing: None,
            kind: 0,
        }
    }

    /// Answers messages until the connection ends.
    pub fn run(&mut self, reader: &mut FrameReader<Stream>, registration: &Registration) -> FrameEnd {
        loop {
            // Panics are caught around the loop and not around each message, because that would make each
            // message slower.
            let panic = match caught("(a message)", || self.answer(reader, registration)) {
                Ok(end) => return end,
                Err(panic) => panic,
            };
            let told = match std::mem::take(&mut self.kind) {
                0 => Err(FrameEnd::Broken(WireError::from(panic).into_fatal())),
                kind => self.fail(kind, &panic.into()),
            };
            if let Err(end) = told {
                return end;
            }
        }
    }

    fn answer(&mut self, reader: &mut FrameReader<Stream>, registration: &Registration) -> FrameEnd {
        loop {
            if let Err(end) = self.step(reader, registration) {
                return end;
            }
        }
    }

    fn step(
        &mut self,
        reader: &mut FrameReader<Stream>,
        registration: &Registration,
    ) -> Result<(), FrameEnd> {
        self.kind = 0;
        self.wait(reader)?;
        let frame = reader.frame()?;
        if registration.is_ending() {
            return Err(FrameEnd::Closed);
        }
        let kind = frame.kind;
        self.kind = kind;
        if self.skipping && !matches!(kind, b'S' | b'X') || is_stray_copy(frame) {
            return Ok(());
        }
        let encoding = self.session.client_encoding();
        self.out.set_encoding(encoding);
        let converted = match transcode::to_utf8(frame, encoding) {
            Ok(converted) => converted,
            Err(error) => return self.fail(kind, &error),
        };
        let frame = converted.as_deref().map_or(frame, |body| Frame { kind, body });
        // A Query or an Execute message continues to read from the connection if it is a COPY, so it can't
        // keep the frame. Its text is moved out of the frame.
        let done = match decode(frame) {
            Ok(Message::Query(sql)) => {
                self.text.push_str(sql);
                self.simple(reader)
            }
            Ok(Message::Execute(portal, row_limit)) => {
                self.text.push_str(portal);
                self.execute_named(reader, row_limit)
            }
            Ok(Message::Parse(parse)) => self.parse(&parse),
            Ok(Message::Bind(bind)) => self.bind(&bind),
            Ok(Message::Describe(target)) => self.describe(target),
            Ok(Message::Close(target)) => self.close(target),
            Ok(Message::Flush) => self.out.flush().map_err(Failed::from),
            Ok(Message::Sync) => self.sync(),
            Ok(Message::Terminate) => return Err(FrameEnd::Closed),
            Ok(Message::FunctionCall) => Err(function_call().into()),
            Ok(Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_)) => Ok(()),
            Err(error) => Err(error.into()),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Failed::Connection(end)) => Err(end),
            // The statement was cancelled because the session ends, so the client gets the reason of the end.
            Err(Failed::Message(error)) if error.sqlstate == "57014" && registration.is_ending() => {
                Err(FrameEnd::Closed)
            }
            Err(Failed::Message(error)) => self.fail(kind, &error),
        }
    }

    /// Waits for the next message, with the limit of the client's silence. The limit also applies to an
    /// incomplete message.
    fn wait(&mut self, reader: &mut FrameReader<Stream>) -> Result<(), FrameEnd> {
        if !std::mem::take(&mut self.is_idle) {
            return Ok(());
        }
        let probing = self.session.probing();
        if self.probing != Some(probing) {
            self.probing = Some(probing);
            reader.source().probe(probing);
        }
        let Some((limit, in_block)) = self.session.silence_limit() else { return Ok(()) };
        reader.source_mut().set_deadline(Some(Instant::now() + limit))?;
        let came = reader.await_frame();
        reader.source_mut().set_deadline(None)?;
        match came {
            Ok(_) => Ok(()),
            Err(FrameEnd::Io(error)) if is_timeout(&error) => Err(too_silent(in_block)),
            Err(end) => Err(end),
        }
    }

    /// Reports an error. After an error in an extended-protocol message, messages are skipped until Sync. The
    /// report is sent at once, because a client may wait for it with Flush before it sends its Sync. Other
    /// messages are whole conversations, which end here.
    fn fail(&mut self, kind: u8, error: &WireError) -> Result<(), FrameEnd> {
        self.out.error(error);
        self.session.fail();
        match kind {
            b'Q' | b'F' | b'S' => self.ready(),
            _ => {
                self.skipping = true;
                Ok(self.out.flush()?)
            }
        }
    }

    fn ready(&mut self) -> Result<(), FrameEnd> {
        report(&mut self.session, self.out);
        let status = self.session.transaction_status();
        if status == b'I' {
            self.portals.clear();
        }
        self.out.ready(status);
        self.is_idle = true;
        Ok(self.out.flush()?)
    }

    fn sync(&mut self) -> Result<(), Failed> {
        self.skipping = false;
        self.session.sync()?;
        self.ready().map_err(Failed::Connection)
    }

    fn simple(&mut self, reader: &mut FrameReader<Stream>) -> Result<(), Failed> {
        self.portals.close("");
        let text = std::mem::take(&mut self.text);
        let done = self.simple_text(reader, &text);
        self.keep_text(text);
        done?;
        self.ready().map_err(Failed::Connection)
    }

    fn simple_text(&mut self, reader: &mut FrameReader<Stream>, sql: &str) -> Result<(), Failed> {
        let formats = ColumnFormats::default();
        let forms = self.session.forms().clone();
        let (out, columns) = (&mut *self.out, &[]);
        let mut results =
            Results { out, reader, formats: &formats, columns, forms, binary: None, broken: None };
        let done = self.session.simple(sql, &mut results);
        match results.broken {
            Some(end) => Err(Failed::Connection(end)),
            None => Ok(done?),
        }
    }

    fn execute_named(&mut self, reader: &mut FrameReader<Stream>, row_limit: u32) -> Result<(), Failed> {
        let name = std::mem::take(&mut self.text);
        let done = self.execute(reader, &name, row_limit);
        self.keep_text(name);
        done
    }

    fn keep_text(&mut self, mut text: String) {
        if text.capacity() <= TEXT_KEEP_BYTES {
            text.clear();
            self.text = text;
        }
    }
}

/// Returns whether this is a message of a COPY that has failed. The client may not have noticed the error
/// yet, so the protocol says to ignore such messages.
fn is_stray_copy(frame: Frame<'_>) -> bool {
    matches!(frame.kind, b'd' | b'c' | b'f')
}

fn function_call() -> WireError {
    WireError::error("0A000", "the function call protocol is not supported")
        .hint("Call functions with SELECT.")
}
