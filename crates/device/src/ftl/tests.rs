//! Tests the model of the flash translation layer against known results for greedy collection, and against
//! its own invariants.

use super::*;

impl Ftl {
    /// Invariants 1 to 3.
    fn check(&self) {
        let mut valid = vec![0; self.valid.len()];
        for (page, place) in self.places.iter().enumerate().filter(|(_, place)| **place != NONE) {
            assert_eq!(self.owners[*place as usize], page as u32);
            valid[(*place / self.block_pages) as usize] += 1;
        }
        let owned = self.owners.iter().filter(|owner| **owner != NONE).count();
        assert_eq!(
            valid.iter().sum::<u32>() as usize,
            owned,
            "a physical page has an owner that is elsewhere"
        );
        assert_eq!(valid, self.valid);
        assert_eq!(self.counts.valid_pages, owned as u64);
        assert!(!self.free.is_empty());
        assert!(self.free.iter().all(|block| self.valid[*block as usize] == 0));
        assert!(self.written.iter().all(|(count, block)| self.valid[*block as usize] == *count));
        let open = [self.host.block, self.collection.block].iter().filter(|block| **block != NONE).count();
        assert_eq!(self.free.len() + self.written.len() + open, self.valid.len());
    }

    /// Writes the pages of `writes`. Returns how many pages the model wrote to flash for each of them.
    fn amplification(&mut self, writes: impl Iterator<Item = u32>) -> f64 {
        let before = self.counts.programmed_pages;
        let count = writes.map(|page| self.write(page)).count();
        (self.counts.programmed_pages - before) as f64 / count as f64
    }
}

fn layer(logical_pages: u32, block_pages: u32, spare_percent: f64) -> Ftl {
    let kind = Mapping::PageMapped;
    Ftl::new(logical_pages, &Translation { kind, page_bytes: 4096, block_pages, spare_percent })
}

/// Returns pseudo-random numbers below `below`, from a xorshift generator.
fn chance(below: u32) -> impl Iterator<Item = u32> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (((state >> 32) * u64::from(below)) >> 32) as u32
    })
}

/// Returns the write amplification of uniform updates of all pages with greedy collection, for many large
/// blocks (Desnoyers 2012; Xiang and Kurkoski 2011). The solution u of u = exp(-(1 + r)(1 - u)) is the valid
/// part of a collected block, and r is the spare part. Then 1 / (1 - u) pages are written for each page of
/// the host.
fn analytic(spare: f64) -> f64 {
    let u = (0..1000).fold(0.5_f64, |u, _| (-(1.0 + spare) * (1.0 - u)).exp());
    1.0 / (1.0 - u)
}

#[test]
fn the_formula_gives_the_published_values() {
    for (spare, value) in [(0.07, 7.82), (0.3, 2.36), (1.0, 1.26)] {
        let off: f64 = analytic(spare) - value;
        assert!(off.abs() < 0.01, "{spare}: {}", analytic(spare));
    }
}

/// All pages have data, and updates are uniform. With 7 % spare, the tolerance is larger, because the blocks
/// that are kept free are a large part of the spare ones.
#[test]
fn uniform_updates_cost_what_the_formula_says() {
    for (spare, within) in [(0.07, 0.15), (0.3, 0.05), (1.0, 0.05)] {
        let pages = 1 << 15;
        let mut ftl = layer(pages, 64, 100.0 * spare);
        ftl.amplification(0..pages);
        ftl.amplification(chance(pages).take(4 * pages as usize));
        let got = ftl.amplification(chance(pages).take(2 * pages as usize));
        ftl.check();
        let wanted = analytic(spare);
        assert!((got / wanted - 1.0).abs() < within, "spare {spare}: {got:.2}, the formula says {wanted:.2}");
    }
}

#[test]
fn sequential_overwrites_cost_nothing_more() {
    let mut ftl = layer(1 << 14, 64, 7.0);
    let got = ftl.amplification((0..10).flat_map(|_| 0..1 << 14));
    ftl.check();
    assert_eq!(got, 1.0);
    assert_eq!(ftl.counts.copied_pages, 0);
}

/// Half of the pages are trimmed. So the other half has as much spare flash as in a device whose flash is
/// about twice as large as its data.
#[test]
fn trimmed_pages_are_as_good_as_spare_ones() {
    let pages = 1 << 15;
    let updates = |ftl: &mut Ftl| {
        ftl.amplification(chance(pages / 2).take(3 * pages as usize));
        ftl.amplification(chance(pages / 2).take(pages as usize))
    };
    let mut full = layer(pages, 64, 7.0);
    full.amplification(0..pages);
    let before = updates(&mut full);
    let mut trimmed = layer(pages, 64, 7.0);
    trimmed.amplification(0..pages);
    (pages / 2..pages).for_each(|page| trimmed.trim(page));
    let after = updates(&mut trimmed);
    trimmed.check();
    assert!(after < before / 1.2, "{before:.2} without trims, {after:.2} with them");
    let wanted = analytic(2.0 * 1.07 - 1.0);
    assert!((after / wanted - 1.0).abs() < 0.05, "{after:.2}, the formula says {wanted:.2}");
}

/// If whole blocks are trimmed before they are written again, no page has to be copied.
#[test]
fn blocks_trimmed_whole_cost_nothing_more() {
    let (pages, block) = (1 << 14, 64);
    let mut ftl = layer(pages, block, 7.0);
    ftl.amplification(0..pages);
    let before = ftl.counts;
    for extent in chance(pages / block).take(2000) {
        let range = extent * block..(extent + 1) * block;
        range.clone().for_each(|page| ftl.trim(page));
        range.for_each(|page| ftl.write(page));
    }
    ftl.check();
    assert_eq!(ftl.counts.copied_pages, before.copied_pages);
}

/// Even on the smallest devices, when they are full, the collection always finds a block with an invalid
/// page.
#[test]
fn the_smallest_devices_keep_a_block_free() {
    for (pages, block) in [(1, 2), (2, 2), (7, 2), (64, 64), (65, 64), (300, 16)] {
        let mut ftl = layer(pages, block, 0.0);
        ftl.amplification(0..pages);
        for (turn, page) in chance(pages).take(5000).enumerate() {
            if turn % 7 == 3 {
                ftl.trim(page)
            } else {
                ftl.write(page)
            }
            if turn % 100 == 0 {
                ftl.check();
            }
        }
        ftl.check();
    }
}
