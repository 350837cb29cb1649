//! varve-smart runs scans of a table inside a *smart device*: a process next to the drive with the data file.
//! Only results cross the interface between the device and the host.
//!
//! The host sends a *program* (condition, columns or aggregates) and a list of leaves. The device reads these
//! leaves from the data file, evaluates the program, and sends batches of Arrow arrays. A leaf for which the
//! device can't decide what the host's snapshot sees is *deferred*: the device leaves it to the host, which
//! scans the keys of the leaf itself.
//!
//! Invariants
//! 1. The result of a scan is exactly that of the host's scan at the same snapshot (decision 0370).
//! 2. Bytes from the other side never cause a panic, and never use more memory than the limits allow.
//! 3. If the device fails, the host scans the rest itself. The result is the same.
//!
//! This crate does not know SQL, transactions or the buffer pool.
//!
//! Source: Do 2012, chapter 5.

mod aggregate;
mod client;
mod command;
mod cost;
mod decode;
mod error;
mod evaluate;
mod host;
mod key;
mod leaf;
mod profile;
mod program;
mod protocol;
mod serve;
mod session;
mod tls;
mod wire;

pub use client::{Address, Client};
pub use command::ServeCommand;
pub use cost::ScanShape;
pub use decode::{RowSource, decode};
pub use error::{Result, SmartError};
pub use evaluate::Evaluator;
pub use host::{HostScan, ScanCounts, SmartDevice, SmartScan};
pub use key::SharedKey;
pub use leaf::{Deferred, LeafReader, LeafTest};
pub use profile::{DeviceProfile, EmulatedTimes};
pub use program::{Aggregate, ColumnKind, Comparison, Condition, Constant, DECIMAL_NAN, Output, Program};
pub use protocol::{Answer, ListedLeaf, OpenRequest, Part, Request};
pub use serve::{Limits, Server, ServerOptions};
pub use tls::{DeviceCertificate, RootCertificates};
