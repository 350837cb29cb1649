//! Connections over TCP that are encrypted by TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use varve_device::MemoryDirectory;
use varve_engine::{Database, LeafLayout, Options};
use varve_pager::PagerConfig;
use varve_smart::{
    Address, Client, DeviceCertificate, Limits, RootCertificates, Server, ServerOptions, SmartDevice,
    SmartError,
};

use crate::bed::{Bed, RR, by_host, key};

const PATIENCE: Duration = Duration::from_secs(20);

/// Files with the certificates of a root, and of a device.
struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    /// Makes a root, and a certificate for this name or IP address.
    fn of(name: &str) -> Certificates {
        let folder = tempfile::tempdir().unwrap();
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
        let secret = KeyPair::generate().unwrap();
        let device = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&secret, &root).unwrap();
        let made = Certificates { folder };
        std::fs::write(made.file("root"), root.pem()).unwrap();
        std::fs::write(made.file("device"), device.pem()).unwrap();
        std::fs::write(made.file("secret"), secret.serialize_pem()).unwrap();
        std::fs::set_permissions(made.file("secret"), PermissionsExt::from_mode(0o600)).unwrap();
        made
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn device(&self) -> DeviceCertificate {
        DeviceCertificate::of_files(&self.file("device"), &self.file("secret")).unwrap()
    }

    fn root(&self) -> RootCertificates {
        RootCertificates::of_file(&self.file("root")).unwrap()
    }
}

/// Returns a database whose device uses TLS, on a port of 127.0.0.1.
fn encrypted(certificates: &Certificates) -> Bed {
    let directory = MemoryDirectory::new();
    let mut pager = PagerConfig::new(directory.clone());
    pager.pool_bytes = 8 << 20;
    let database = Database::open(Options::new(pager)).unwrap();
    let limits = Limits { proof_time: Duration::from_millis(500), ..Limits::default() };
    let options =
        ServerOptions { key: key(), certificate: Some(certificates.device()), limits, profile: None };
    let address = Address::Tcp("127.0.0.1:0".into());
    let server = Server::start(&address, options, &*directory, &["data.varve".into()]).unwrap();
    let device = SmartDevice::new(server.address().clone(), key(), PATIENCE);
    let device = device.with_tls(certificates.root()).unwrap();
    Bed { database, server: Some(server), device, _socket: tempfile::tempdir().unwrap() }
}

fn connected(address: &Address, roots: Option<&RootCertificates>) -> Result<Client, SmartError> {
    Client::connect(address, &key(), roots, PATIENCE)
}

#[test]
fn a_scan_over_tls_gives_the_rows_of_the_host() {
    let bed = encrypted(&Certificates::of("127.0.0.1"));
    let def = bed.table(LeafLayout::ByColumns);
    bed.load(&def, 0..50_000);
    bed.settle();
    let mut txn = bed.begin(RR);
    let expected = by_host(&mut txn, &def);
    assert_eq!(bed.scanned(&mut txn, &def), expected);
    let (by_device, _) = bed.leaves();
    assert!(by_device > 100, "{by_device}; {:?}", bed.device.last_failure());
}

#[test]
fn both_sides_refuse_what_is_not_the_agreed_encryption() {
    let certificates = Certificates::of("127.0.0.1");
    let bed = encrypted(&certificates);
    let address = bed.device.address().clone();
    let told = |roots: Option<&RootCertificates>| connected(&address, roots).err().unwrap().to_string();
    assert!(connected(&address, Some(&certificates.root())).is_ok());
    // A host without TLS waits for the greeting until the device's patience ends.
    let plain = told(None);
    assert!(plain.contains("sent no greeting") && plain.contains("tls_root_certificate"), "{plain}");
    // Another root, and a certificate for another address.
    let other = told(Some(&Certificates::of("127.0.0.1").root()));
    assert!(other.contains("TLS failed: invalid peer certificate"), "{other}");
    let elsewhere = Certificates::of("10.1.2.3");
    let wrong = encrypted(&elsewhere);
    let told = connected(wrong.device.address(), Some(&elsewhere.root())).err().unwrap().to_string();
    assert!(told.contains("TLS failed") && told.contains("10.1.2.3"), "{told}");
    // The device has no TLS.
    let directory = MemoryDirectory::new();
    let mut pager = PagerConfig::new(directory.clone());
    pager.pool_bytes = 8 << 20;
    let _database = Database::open(Options::new(pager)).unwrap();
    let open = crate::bed::serve(&*directory, &Address::Tcp("127.0.0.1:0".into()), Limits::default());
    let told = connected(open.address(), Some(&certificates.root())).err().unwrap().to_string();
    assert!(told.contains("did not answer with TLS"), "{told}");
}

#[test]
fn bytes_that_are_no_tls_end_the_connection_within_the_time_for_the_proof() {
    let certificates = Certificates::of("127.0.0.1");
    let bed = encrypted(&certificates);
    let Address::Tcp(address) = bed.device.address() else { panic!("no port") };
    let mut garbage = TcpStream::connect(address).unwrap();
    let _the_device_may_end_it = garbage.write_all(&[0x5a; 4096]);
    let begin = Instant::now();
    // Either end of the connection is right. Only bytes before it may come.
    let _ = garbage.read_to_end(&mut Vec::new());
    // The bytes of a record come one by one, and never all.
    let mut slow = TcpStream::connect(address).unwrap();
    let record = [&[22, 3, 1, 0x20, 0][..], &[0; 8192]].concat();
    let is_over = record.iter().any(|byte| {
        std::thread::sleep(Duration::from_millis(20));
        slow.write_all(&[*byte]).is_err()
    });
    assert!(is_over);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert!(connected(bed.device.address(), Some(&certificates.root())).is_ok());
}

#[test]
fn files_and_addresses_that_cannot_be_used_are_named() {
    let certificates = Certificates::of("127.0.0.1");
    let file = |name: &str| certificates.file(name);
    let told = |certificate: &Path, secret: &Path| {
        DeviceCertificate::of_files(certificate, secret).unwrap_err().to_string()
    };
    assert!(told(&file("none"), &file("secret")).contains("none"));
    let empty = told(&file("secret"), &file("secret"));
    assert!(empty.contains("it holds no certificate"), "{empty}");
    let other = Certificates::of("127.0.0.1");
    let unfit = told(&file("device"), &other.file("secret"));
    assert!(unfit.contains("can't be used with its key"), "{unfit}");
    std::fs::set_permissions(file("secret"), PermissionsExt::from_mode(0o644)).unwrap();
    let exposed = told(&file("device"), &file("secret"));
    assert!(exposed.contains("others may read this private key"), "{exposed}");
    assert!(RootCertificates::of_file(&file("secret")).is_err());
    let local = SmartDevice::new(Address::Unix("/run/device".into()), key(), PATIENCE);
    let refused = local.with_tls(certificates.root()).err().unwrap().to_string();
    assert!(refused.contains("unix:/run/device") && refused.contains("give HOST:PORT"), "{refused}");
}
