//! The HTTP endpoint: `/metrics` for Prometheus, `/` for the live page, `/figures.json` for the page's figures.
//!
//! Invariants
//! 1. Requests have limits: of bytes, of the time until the headers are there, of the time of a connection,
//!    and of the number of connections. A client that exceeds a limit only loses its connection. If there are
//!    too many connections, the oldest one is closed. So connections without a request cannot lock out others.
//! 2. The page and its figures have statements of clients. They are sent only to this machine, and only if
//!    the request names this machine as its host. So a page of another site cannot read them through a
//!    browser on this machine.
//!
//! This module does not know what the figures mean.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use varve_engine::Database;
use varve_sql::SqlDatabase;

use super::exposition::{MEDIA_TYPE, exposition};
use super::figures::Watched;

/// The most connections at the same time.
const CONNECTIONS_MAX: usize = 32;
/// The most bytes of the headers of a request.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// The time that a client has to send the headers of a request.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// The longest life of a connection.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(300);
/// The pause after a failed `accept`, which fails while there are too few descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const PAGE: &str = include_str!("page.html");
/// The page loads nothing from elsewhere, and no other page may show it.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                           connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The reason why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be used.
    #[error(
        "The endpoint of metrics can't listen on {address}: {error}. Choose another address: listen in section [metrics] of varve.toml."
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        error: io::Error,
    },
    /// The thread cannot be started.
    #[error("The endpoint of metrics can't be started: {0}.")]
    Start(io::Error),
}

/// A running endpoint. Dropping it ends it.
pub struct Endpoint {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Opens the address. Clients that connect wait until `start`.
    pub fn bind(address: SocketAddr) -> Result<TcpListener, EndpointError> {
        TcpListener::bind(address).map_err(|error| EndpointError::Listen { address, error })
    }

    /// Starts to answer requests about a database.
    pub fn start(
        listener: TcpListener,
        engine: &Arc<Database>,
        sql: &Arc<SqlDatabase>,
    ) -> Result<Endpoint, EndpointError> {
        let address = listener.local_addr().map_err(EndpointError::Start)?;
        listener.set_nonblocking(true).map_err(EndpointError::Start)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(EndpointError::Start)?;
        let watched = Watched { engine: Arc::clone(engine), sql: Arc::clone(sql), opened: Instant::now() };
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            runtime.block_on(async move {
                let accepting = tokio::spawn(accept(listener, Arc::new(watched)));
                // The sender is used or dropped when the endpoint ends.
                let _ = stopped.await;
                accepting.abort();
            });
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(run);
        let thread = Some(thread.map_err(EndpointError::Start)?);
        Ok(Endpoint { address, stop: Some(stop), thread })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Panics of requests are caught by the runtime.
            let _ = thread.join();
        }
    }
}

/// Accepts connections, and answers each in a task of its own.
async fn accept(listener: TcpListener, watched: Arc<Watched>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let watched = Arc::clone(&watched);
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer(&watched, peer, &request);
            async move { Ok::<_, Infallible>(answer) }
        });
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let task = tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_PATIENCE)
                .max_buf_size(REQUEST_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service);
            // A wrong request ends its connection, and needs no other consequence.
            let _ = tokio::time::timeout(CONNECTION_PATIENCE, connection).await;
        });
        connections.push_back(task.abort_handle());
    }
}

type Answer = Response<Full<Bytes>>;

fn answer<B>(watched: &Watched, peer: SocketAddr, request: &Request<B>) -> Answer {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are answered.\n");
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    let is_local = peer.ip().to_canonical().is_loopback() && names_this_machine(request);
    match request.uri().path() {
        "/metrics" => match exposition(watched.counters()) {
            Ok(text) => of_type(MEDIA_TYPE, text),
            Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "The metrics can't be written.\n"),
        },
        "/" | "/figures.json" if !is_local => plain(
            StatusCode::FORBIDDEN,
            "The live page shows statements, so only clients on the server's machine get it. \
             Use a tunnel, such as ssh -L.\n",
        ),
        "/" => {
            let mut answer = of_type("text/html; charset=utf-8", PAGE);
            let policy = HeaderValue::from_static(PAGE_POLICY);
            answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
            answer
        }
        "/figures.json" => match serde_json::to_string(&watched.figures()) {
            Ok(text) => of_type("application/json", text),
            Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "The figures can't be written.\n"),
        },
        _ => plain(StatusCode::NOT_FOUND, "There are / (a live page) and /metrics (for Prometheus).\n"),
    }
}

/// Returns whether the header Host is a loopback address or localhost. A name of another site that leads to
/// this machine is not.
fn names_this_machine<B>(request: &Request<B>) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(authority) = host.and_then(|host| host.parse::<hyper::http::uri::Authority>().ok()) else {
        return false;
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn of_type(media_type: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = of_type("text/plain; charset=utf-8", text);
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_host() {
        for (host, expect) in [
            ("localhost:9187", true),
            ("127.0.0.1", true),
            ("[::1]:9187", true),
            ("evil.example:9187", false),
            ("127.0.0.1.evil.example", false),
            ("192.168.1.2:9187", false),
            ("", false),
        ] {
            let request = Request::builder().header("host", host).body(()).unwrap();
            assert_eq!(names_this_machine(&request), expect, "{host}");
        }
        assert!(!names_this_machine(&Request::new(())));
    }
}
