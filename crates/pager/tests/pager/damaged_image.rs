//! Damages the bytes of a stopped database. Opening it must not panic, and must not give wrong contents.
//! Either the contents are right, or an error names the damage.
//!
//! Only damage to the very last block of the log cannot be distinguished from an unfinished flush.
//!
//! The environment variable `VARVE_FUZZ_CASES` sets how many damages are tried.

use std::sync::Arc;

use crate::common::{Random, add, config, set};
use varve_device::{Directory, MemoryDirectory, MemoryImage};
use varve_pager::{Access, PageId, Pager, SpaceId};

const PAGES: u64 = 40;
const STEPS: u64 = 120;

/// Returns a database that stopped without a checkpoint at its end. Step n wrote n to the first page and to
/// another page.
fn stopped() -> (Vec<(String, MemoryImage)>, Vec<PageId>) {
    let directory = MemoryDirectory::new();
    let pager = crate::common::open(&config(&directory, 64));
    let owner = pager.create_segment(SpaceId::DATA).unwrap();
    let pages: Vec<_> = (0..PAGES).map(|_| add(&pager, owner, 0).unwrap()).collect();
    for step in 1..=STEPS {
        let mut mtr = pager.begin().unwrap();
        let handles = [pages[0], pages[other_page(step)]].map(|id| mtr.x(id).unwrap());
        handles.into_iter().for_each(|h| mtr.write(h, 100, &step.to_le_bytes()));
        let lsn = mtr.commit();
        pager.flush_log(lsn).unwrap();
        if step % 25 == 0 {
            pager.tick_write(10).unwrap();
        }
        if step == 70 {
            pager.checkpoint().unwrap();
        }
    }
    drop(pager);
    (directory.images(), pages)
}

fn other_page(step: u64) -> usize {
    1 + (step % (PAGES - 1)) as usize
}

/// Returns the number that page `at` has after `steps` steps.
fn expected(at: usize, steps: u64) -> u64 {
    if at == 0 { steps } else { (1..=steps).rev().find(|step| other_page(*step) == at).unwrap_or(0) }
}

/// Damages one file. Returns a description of the damage.
fn damage(images: &mut Vec<(String, MemoryImage)>, random: &mut Random) -> String {
    let file = random.below(images.len() as u64) as usize;
    let (name, image) = &mut images[file];
    let name = name.clone();
    let length = image.len_bytes();
    let at = random.below(length);
    match random.below(6) {
        0 => {
            image.set_len(at / 512 * 512);
            format!("{name} cut off at {}", at / 512 * 512)
        }
        1 => {
            image.zero(at / 512 * 512, 512);
            format!("{name} zeroed at {}", at / 512 * 512)
        }
        2 => {
            let mut sector = vec![0; 512];
            image.read(random.below(length) / 512 * 512, &mut sector);
            image.write(at / 512 * 512, &sector);
            image.set_len(length);
            format!("{name} misdirected to {}", at / 512 * 512)
        }
        3 if random.below(20) == 0 => {
            images.remove(file);
            format!("{name} removed")
        }
        _ => {
            let mut byte = [0];
            image.read(at, &mut byte);
            byte[0] ^= 1 << random.below(8);
            image.write(at, &byte);
            format!("{name} bit flipped at {at}")
        }
    }
}

fn read(pager: &Pager, id: PageId) -> Option<u64> {
    let page = pager.fix_s(id, Access::Random).ok()?;
    Some(u64::from_le_bytes(page[100..108].try_into().unwrap()))
}

/// Opens the database, and checks that no page has wrong contents. Errors are allowed. Returns whether there
/// were none.
fn verify(directory: Arc<MemoryDirectory>, pages: &[PageId], what: &str) -> bool {
    let Ok(pager) = Pager::open(config(&directory, 64), Arc::new(crate::common::NoOps)) else { return false };
    let Some(steps) = read(&pager, pages[0]) else { return false };
    let may_lack_last = what.starts_with("log.");
    assert!(steps == STEPS || (may_lack_last && steps == STEPS - 1), "{what}: {steps} steps of {STEPS}");
    let mut is_whole = true;
    for (at, id) in pages.iter().enumerate() {
        match read(&pager, *id) {
            Some(number) => assert_eq!(number, expected(at, steps), "{what}: page {at}"),
            None => is_whole = false,
        }
    }
    let damages = pager.check().unwrap().damages;
    assert!(is_whole || !damages.is_empty(), "{what}: an unreadable page is not reported");
    set(&pager, pages[1], 1).is_ok() && is_whole
}

#[test]
fn no_damage_gives_wrong_contents() {
    let cases_count: u64 = std::env::var("VARVE_FUZZ_CASES").map_or(600, |text| text.parse().unwrap());
    let (images, pages) = stopped();
    assert!(verify(MemoryDirectory::from_images(images.clone()), &pages, "nothing"));
    let mut survived = 0;
    for case in 0..cases_count {
        let mut random = Random((case + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut damaged = images.clone();
        let what = damage(&mut damaged, &mut random);
        let directory = MemoryDirectory::from_images(damaged);
        assert!(!directory.list().unwrap().is_empty());
        survived += u64::from(verify(directory, &pages, &what));
    }
    assert!(survived > 0 && survived < cases_count, "{survived} of {cases_count} damages did no harm");
}
