//! Measures the cost of decoding the four messages of a prepared point query, by this crate and by
//! `pgwire::messages` (decision 0701):
//!
//! ```text
//! cargo run --release -p varve-server --example codec_cost
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::hint::black_box;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use pgwire::messages::extendedquery::{Bind, Describe, Execute, Sync};
use pgwire::messages::{DecodeContext, Message, PgWireFrontendMessage, ProtocolVersion};
use varve_server::frame::FrameReader;
use varve_server::message::decode;

const ROUNDS: u32 = 200_000;
const KINDS: u32 = 4;

fn main() {
    let group = group();
    let mut reader = FrameReader::new(Again(&group));
    let own = time(|| {
        for _ in 0..KINDS {
            black_box(decode(reader.frame().unwrap()).unwrap());
        }
    });
    let mut context = DecodeContext::new(ProtocolVersion::PROTOCOL3_0);
    context.awaiting_frontend_ssl = false;
    context.awaiting_frontend_startup = false;
    let mut buffer = BytesMut::with_capacity(4096);
    let library = time(|| {
        buffer.clear();
        buffer.extend_from_slice(&group);
        for _ in 0..KINDS {
            black_box(PgWireFrontendMessage::decode(&mut buffer, &context).unwrap());
        }
    });
    println!("Bind, Describe, Execute, Sync: {own:.0} ns here, {library:.0} ns with pgwire::messages");
}

/// Returns Bind, Describe, Execute and Sync as sysbench sends them.
fn group() -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let value = Some(Bytes::from_static(b"500100"));
    let bind = Bind::new(None, Some("sbstmt1234".to_owned()), vec![], vec![value], vec![1]);
    bind.encode(&mut bytes).unwrap();
    Describe::new(b'P', None).encode(&mut bytes).unwrap();
    Execute::new(None, 0).encode(&mut bytes).unwrap();
    Sync::new().encode(&mut bytes).unwrap();
    bytes.to_vec()
}

/// Returns the same bytes in every read, in the way of a socket.
struct Again<'a>(&'a [u8]);

impl std::io::Read for Again<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        buffer[..self.0.len()].copy_from_slice(self.0);
        Ok(self.0.len())
    }
}

/// Returns the nanoseconds of one call, the best of five runs.
fn time(mut call: impl FnMut()) -> f64 {
    let mut run = || {
        let began = Instant::now();
        (0..ROUNDS).for_each(|_| call());
        began.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    };
    (0..5).map(|_| run()).fold(f64::INFINITY, f64::min)
}
