//! Tests of the stored form of pages: encoding and decoding, the byte layout, damaged bytes.
//!
//! This module does not know devices.

use proptest::prelude::*;

use super::*;
use crate::base::ids::{Access, PageNo};

const KIND: u8 = page::FIRST_ENGINE_KIND + 3;
const OWNER: u32 = 77;
const SECTOR: usize = 512;
const SECTORS: StoredLengths = StoredLengths::Multiples(SECTOR);
const LZ4: Compression = Compression { algorithm: Algorithm::Lz4, level: 1 };

fn id() -> PageId {
    PageId::new(SpaceId::DATA, PageNo(0x1234))
}

/// Returns a page with this body.
fn image_of(page_size: usize, kind: u8, owner: u32, body: impl Fn(usize) -> u8) -> Image {
    let mut bytes = vec![0; page_size];
    page::set_page_lsn(&mut bytes, Lsn::new(0x55_6677));
    page::format(&mut bytes, id(), kind, owner);
    bytes[PAGE_HEADER_BYTES..].iter_mut().enumerate().for_each(|(at, byte)| *byte = body(at));
    Image::of(id(), &bytes, Access::Random)
}

fn image(page_size: usize, body: impl Fn(usize) -> u8) -> Image {
    image_of(page_size, KIND, OWNER, body)
}

/// Returns the byte at this offset of a body with noise followed by text.
fn mixed(at: usize) -> u8 {
    if at % 8192 < 1500 { noise(at) } else { b"addlink, getlinklist, 12.5; "[at % 28] ^ (at / 997) as u8 }
}

fn noise(at: usize) -> u8 {
    let state = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((state ^ state >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) as u8
}

fn every_way() -> impl Iterator<Item = Compression> {
    Algorithm::ALL.into_iter().flat_map(|algorithm| {
        let levels = algorithm.levels();
        [*levels.start(), *levels.end()].map(|level| Compression { algorithm, level })
    })
}

/// Checks that both ways of decoding give the image. Returns the form.
fn decoded(stored: &[u8], image: &Image) -> Form {
    let size = image.bytes().len();
    let mut apart = vec![0xEE; size];
    let form = decode(stored, id(), &mut apart).unwrap();
    assert!(apart == image.bytes(), "another page comes back");
    // In place, followed by bytes of a longer page that was stored there before.
    let mut inside = vec![0xEE; size];
    inside[..stored.len()].copy_from_slice(stored);
    assert_eq!(decode_in(&mut inside, id()), Ok(form));
    assert!(inside == image.bytes(), "another page comes back in place");
    form
}

#[test]
fn pages_come_back() {
    for size in [4096, 8192, 16384, 32768, 65536] {
        let images = [
            image(size, |_| 0),
            image(size, mixed),
            image(size, noise),
            image(size, |at| u8::from(at == 900)),
        ];
        for how in every_way() {
            for unit in [SECTOR, 4096] {
                for (no, image) in images.iter().enumerate() {
                    let stored = Stored::of(image, how, StoredLengths::Multiples(unit));
                    let bytes = stored.bytes();
                    assert!(bytes.len().is_multiple_of(unit) && bytes.len() <= size);
                    assert_eq!(stored.is_compressed(), bytes.len() < size, "compressed if that saves a unit");
                    let shrinks = !how.is_none() && no != 2 && size > unit;
                    assert_eq!(stored.is_compressed(), shrinks, "{how:?}, {size}, {unit}, image {no}");
                    match decoded(bytes, image) {
                        Form::Plain => assert!(bytes == image.bytes()),
                        Form::Compressed(algorithm, used) => {
                            assert_eq!(
                                (algorithm, used.next_multiple_of(unit)),
                                (how.algorithm, bytes.len())
                            );
                        }
                    }
                }
            }
        }
    }
}

/// An atomic write has a power of two as its length, at least the least one of the device.
#[test]
fn lengths_of_atomic_writes_are_powers_of_two() {
    for size in [4096, 8192, 16384, 65536] {
        let zeros = |from: usize| move |at: usize| if at < from { noise(at) } else { 0 };
        for least in [SECTOR, 4096] {
            let images =
                [image(size, |_| 0), image(size, mixed), image(size, zeros(size / 3)), image(size, noise)];
            for (no, image) in images.iter().enumerate() {
                let stored = Stored::of(image, LZ4, StoredLengths::PowersOfTwo(least));
                let len_bytes = stored.bytes().len();
                assert!(
                    len_bytes.is_power_of_two() && (least..=size).contains(&len_bytes),
                    "{size}, {least}"
                );
                assert_eq!(stored.is_compressed(), no != 3 && size > least, "{size}, {least}, image {no}");
                if no == 2 && size > 2 * least {
                    assert_eq!(len_bytes, size / 2, "a third of the page does not shrink");
                }
                decoded(stored.bytes(), image);
            }
        }
    }
}

#[test]
fn pages_that_are_read_first_stay_plain() {
    let plain = |image: &Image| !Stored::of(image, LZ4, SECTORS).is_compressed();
    for kind in [kind::SPACE_HEADER, kind::DESCRIPTOR, kind::ROOT] {
        assert!(plain(&image_of(4096, kind, OWNER, |_| 0)), "kind {kind}");
    }
    assert!(plain(&image_of(4096, KIND, OWNER_SYSTEM, |_| 0)));
    let mut bytes = image(4096, |_| 0).bytes().to_vec();
    let temporary = PageId::new(SpaceId::TEMPORARY, PageNo(3));
    page::format(&mut bytes, temporary, KIND, OWNER);
    assert!(plain(&Image::of(temporary, &bytes, Access::Random)));
    assert!(!plain(&image(4096, |_| 0)));
}

/// If this test fails, the format has changed, and existing databases can't be read.
#[test]
fn the_stored_form_keeps_its_layout() {
    let image = image(4096, |at| b"varve"[at % 5]);
    let stored = Stored::of(&image, LZ4, SECTORS);
    assert_eq!(stored.bytes().len(), SECTOR);
    let checksum: [u8; 4] = image.bytes()[..4].try_into().unwrap();
    let bytes = stored.bytes();
    let used = STORED_HEADER_BYTES + usize::from(bytes[28]);
    assert_eq!(bytes[..4], crc32c::crc32c(&bytes[4..used]).to_le_bytes());
    assert_eq!(bytes[4..24], *b"\x34\x12\0\0\x77\x66\x55\0\0\0\0\0\x01\0\x13\x01\x4d\0\0\0");
    assert_eq!(bytes[24..32], [1, 12, 0, 0, (used - 40) as u8, 0, 0, 0]);
    assert_eq!(bytes[32..40], [checksum, [0; 4]].concat()[..]);
    assert_eq!(bytes[40..46], *b"\x5fvarve");
    assert!(bytes[used..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_flipped_byte_is_damage_or_padding() {
    let image = image(4096, mixed);
    for how in every_way().filter(|how| !how.is_none()) {
        let stored = Stored::of(&image, how, SECTORS);
        let Form::Compressed(_, used) = decoded(stored.bytes(), &image) else { panic!("{how:?}") };
        // For one algorithm every byte is changed. For the slower ones only some bytes are.
        let step = if how == LZ4 { 1 } else { 11 };
        for at in (0..stored.bytes().len()).step_by(step) {
            for flip in [1, 0x80] {
                let mut bytes = stored.bytes().to_vec();
                bytes[at] ^= flip;
                let mut frame = vec![0; 4096];
                let result = decode(&bytes, id(), &mut frame);
                assert_eq!(result.is_ok(), at >= used, "{how:?}: byte {at}: {result:?}");
                bytes.resize(4096, 0);
                assert_eq!(decode_in(&mut bytes, id()).is_ok(), at >= used, "{how:?}: byte {at} in place");
            }
        }
    }
}

#[test]
fn a_cut_page_is_damage() {
    for how in every_way() {
        let image = image(16384, mixed);
        let stored = Stored::of(&image, how, SECTORS);
        for cut in (0..stored.bytes().len()).step_by(SECTOR) {
            let result = decode(&stored.bytes()[..cut], id(), &mut vec![0; 16384]);
            let damage = matches!(result, Err(PageDamage::Stored { what: StoredDamage::Length { .. } }));
            assert!(damage, "{how:?}: {cut} bytes: {result:?}");
        }
    }
}

/// Decodes a stored page after a change of its bytes. The checksum is computed again, over the length in the
/// changed header.
fn resealed(change: impl Fn(&mut [u8])) -> Result<Form, PageDamage> {
    let image = image(8192, mixed);
    let mut bytes = Stored::of(&image, LZ4, SECTORS).bytes().to_vec();
    change(&mut bytes);
    let used = STORED_HEADER_BYTES.saturating_add(u32_at(&bytes, LENGTH) as usize).min(bytes.len());
    let checksum = crc32c::crc32c(&bytes[4..used]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    decode(&bytes, id(), &mut vec![0; 8192])
}

/// All fields are checked even if the checksum is right, because another version may have written the page,
/// or the codec may be faulty.
#[test]
fn fields_are_checked() {
    assert!(resealed(|_| ()).is_ok());
    let is = |what| Err(PageDamage::Stored { what });
    assert_eq!(resealed(|bytes| bytes[24] = 0), is(StoredDamage::Algorithm(0)));
    assert_eq!(resealed(|bytes| bytes[24] = 8), is(StoredDamage::Algorithm(8)));
    assert_eq!(resealed(|bytes| bytes[25] = 12), is(StoredDamage::PageSize(12)));
    assert_eq!(resealed(|bytes| bytes[26] = 1), is(StoredDamage::Reserved));
    assert_eq!(resealed(|bytes| bytes[39] = 1), is(StoredDamage::Reserved));
    assert_eq!(resealed(|bytes| bytes[33] ^= 1), is(StoredDamage::Contents));
    // The checksum of the plain page also covers its header.
    assert_eq!(resealed(|bytes| bytes[20] ^= 1), is(StoredDamage::Contents));
    let other = PageDamage::Identity { space: SpaceId::DATA, no: PageNo(0x1235) };
    assert_eq!(resealed(|bytes| bytes[4] ^= 1), Err(other));
    assert_eq!(resealed(|bytes| bytes[28] -= 1), is(StoredDamage::Decompress(Algorithm::Lz4)));
    let length = resealed(|bytes| bytes[28..32].fill(0xFF));
    assert!(matches!(length, Err(PageDamage::Stored { what: StoredDamage::Length { says: u32::MAX, .. } })));
    assert_eq!(resealed(|bytes| bytes[28..32].fill(0)), is(StoredDamage::Decompress(Algorithm::Lz4)));
}

/// If the header names another algorithm, the page is damaged.
#[test]
fn another_algorithm_is_damage() {
    for algorithm in
        Algorithm::ALL.into_iter().filter(|other| ![Algorithm::None, Algorithm::Lz4].contains(other))
    {
        let result = resealed(|bytes| bytes[24] = algorithm.code());
        assert!(matches!(result, Err(PageDamage::Stored { .. })), "{algorithm}: {result:?}");
    }
}

#[test]
fn what_was_never_written_is_told_apart() {
    assert_eq!(decode(&[0; 4096], id(), &mut [1; 4096]), Err(PageDamage::Zero));
    assert_eq!(decode_in(&mut [0; 4096], id()), Err(PageDamage::Zero));
}

/// Decodes arbitrary bytes, as a device might have them at the address of a page. There must be no panic, and
/// a result must be a valid page.
fn try_bytes(stored: &[u8]) {
    let mut frame = vec![0; 4096];
    if decode(stored, id(), &mut frame).is_ok() {
        assert_eq!(page::verify(&frame, id()), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_page_comes_back(seed in any::<u64>(), spread in 1_u64..200, way in 0_usize..16) {
        let body = |at: usize| (noise(at ^ seed as usize) as u64 % spread) as u8;
        let image = image(4096, body);
        let how = every_way().nth(way).unwrap();
        decoded(Stored::of(&image, how, SECTORS).bytes(), &image);
    }

    #[test]
    fn any_bytes_are_judged(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..700),
        code in 0_u8..9,
        sealed in any::<bool>(),
    ) {
        try_bytes(&bytes);
        if bytes.len() > STORED_HEADER_BYTES {
            let page = image(4096, |_| 0);
            let count = bytes.len() - STORED_HEADER_BYTES;
            put_header(&mut bytes, page.bytes(), Algorithm::Lz4, count);
            bytes[ALGORITHM] = code;
            bytes[ZERO_1..LENGTH].fill(0);
            bytes[ZERO_2..STORED_HEADER_BYTES].fill(0);
            if sealed {
                let checksum = crc32c::crc32c(&bytes[4..]);
                bytes[..4].copy_from_slice(&checksum.to_le_bytes());
            }
            try_bytes(&bytes);
        }
    }
}
