//! The first inputs of the targets: bytes that the database itself has written, and the statements of the SQL
//! tests.
//!
//! `fuzz/corpus` has the inputs that earlier searches found.

use std::collections::BTreeSet;

use varve_device::MemoryImage;
use varve_engine::fuzzing;
use varve_pager::page;

use crate::input::{PAGE_BYTES, page_runs};
use crate::opening::crashed_files;

/// A target, a number, and the bytes.
pub type Seed = (&'static str, usize, Vec<u8>);

const DEFINITION_BYTES_MAX: usize = 700;
const FIRST_UNDO_KIND: u8 = 40;

/// Returns all first inputs.
pub fn seeds() -> Vec<Seed> {
    let mut seeds = Seeds::default();
    for (name, image) in crashed_files() {
        match name.as_str() {
            "data.varve" | "rollback.varve" => pages(&image).iter().for_each(|page| seeds.page(page)),
            _ => {}
        }
    }
    statements().iter().for_each(|sql| seeds.statement(sql));
    seeds.records();
    seeds.values();
    seeds.texts();
    seeds.openings();
    seeds.small();
    seeds.smart();
    seeds.0.into_iter().enumerate().map(|(number, (target, bytes))| (target, number, bytes)).collect()
}

#[derive(Default)]
struct Seeds(BTreeSet<(&'static str, Vec<u8>)>);

impl Seeds {
    fn add(&mut self, target: &'static str, parts: &[&[u8]]) {
        self.0.insert((target, parts.concat()));
    }

    fn page(&mut self, bytes: &[u8]) {
        let runs = page_runs(bytes);
        let head: Vec<u8> = [&bytes[16..18], &bytes[4..8]].concat();
        self.add("page", &[&head, &runs]);
        self.add("page_redo", &[&runs, &[4, 5, 100, 1, 2, 3, 4, 3, 2, 40, 9]]);
        if page::page_kind(bytes) < FIRST_UNDO_KIND {
            self.add("node", &[&runs, b"\x01\x80"]);
            self.add(
                "node_redo",
                &[&runs, &[3, 2, 0, 0], &[1, 8, 0, 0, 2, 0, b'k', b'k', 1, 1], &[6, 2, 0, 0]],
            );
        } else {
            self.add(
                "undo_page",
                &[&runs, &[2, 0], &[1, 3, 1, 2, 3], &[3, 5, 0, 0, 0, 0, 1], &[7, 4, 9, 0, 0, 0]],
            );
            fuzzing::undo_records(bytes).iter().for_each(|record| self.add("undo_record", &[record]));
        }
        for algorithm in 1..=7_u8 {
            self.add("stored_page", &[&head, &[algorithm, 3], &runs, &[0]]);
        }
        self.definitions(bytes);
        self.add("catalog", &[&runs]);
        self.add("opening", &[&[3, 0], &runs]);
    }

    /// Adds the definitions that are anywhere in a page.
    fn definitions(&mut self, bytes: &[u8]) {
        let begins = (0..bytes.len() - 8).filter(|at| bytes[*at] == 2 && (1..=6).contains(&bytes[at + 1]));
        for at in begins {
            let ends = (at + 8..(at + DEFINITION_BYTES_MAX).min(bytes.len())).rev();
            if let Some(end) = ends.into_iter().find(|end| fuzzing::definition(&bytes[at..*end])) {
                self.add("catalog", &[&bytes[at..end]]);
            }
        }
    }

    fn statement(&mut self, sql: &str) {
        let text = sql.as_bytes();
        self.add("sql_bind", &[text]);
        self.add("sql_parse", &[text]);
        self.add("sql_run", &[text]);
        let mut message = vec![0, b'Q'];
        message.extend_from_slice(&(text.len() as u32 + 5).to_be_bytes());
        if text.len() < 40 {
            self.add("conversation", &[&message, text, b"\0"]);
        }
    }

    fn records(&mut self) {
        let group = b"\x01\x01\xac\x02\x11\x03abc\x02\x02\x09z\x02\x04\x02\x02\xac\x02\x05";
        self.add("log_records", &[group]);
        let discard = b"\x02\x0d\x01\x40\0\0\0\x01\0\0\0\x40\0\0\0";
        self.add("log_records", &[discard]);
        let block = |place: u8, durable: u32, group: &[u8]| {
            let durable = durable.to_le_bytes();
            [&[place, 0, 1][..], &durable, &[0, 0, group.len() as u8 + 1, group.len() as u8], group].concat()
        };
        let head = [0, 0, 0, 0, 0, 0, 0, 0, 0];
        self.add("log_reader", &[&head, &block(0, 0, group), &block(2, 4608, discard)]);
        self.add(
            "log_reader",
            &[&head, &block(0, 4096, group), &block(4, 5000, discard), &block(1, 0, group)],
        );
        let messages: &[&[u8]] = &[
            b"P\0\0\0\x11\0select $1\0\0\0",
            b"B\0\0\0\x11\0\0\0\0\0\x01\0\0\0\x011\0\0",
            b"D\0\0\0\x06P\0",
            b"E\0\0\0\x09\0\0\0\0\0",
            b"S\0\0\0\x04",
        ];
        self.add("frames", &[&[3], &messages.concat()]);
        self.add("conversation", &[&[0], &messages.concat()]);
        self.add("conversation", &[&[0], b"Q\0\0\0\x1acopy u (v) from stdin\0d\0\0\0\x06x\nc\0\0\0\x04"]);
        let startup = b"\0\0\0\x20\0\x03\0\0user\0me\0options\0-c a=1\0\0\0";
        self.add("frames", &[&[1], startup]);
        self.add("conversation", &[&[1], b"\0\0\0\x08\x04\xd2\x16\x2f", startup]);
    }

    fn values(&mut self) {
        let texts = [
            "1",
            "-2.5e3",
            "NaN",
            "infinity",
            "2020-02-29",
            "1999-12-31 23:59:59.999999+05:30",
            "t",
            "\\xdeadbeef",
            "a\\\\b\\001",
            "0044-03-15 BC",
            "99999999999999999999.123456789",
        ];
        for kind in 0..15_u8 {
            let limit: &[u8] = if matches!(kind, 6) {
                &[5, 2]
            } else if matches!(kind, 7 | 9) {
                &[20]
            } else {
                &[]
            };
            texts.iter().for_each(|text| self.add("types", &[&[kind], limit, &[0], text.as_bytes()]));
            self.add("types", &[&[kind], limit, &[1], &[0, 0, 0, 0, 0, 0, 0, 1]]);
            self.add(
                "key",
                &[&[1, kind], limit, &[2], &[1, 5, 0, 0, 0, 9, 9, 9, 9, 1, 1, 0, 1, 6, 0, 0, 0, 0, 0, 0, 0]],
            );
            self.add(
                "row",
                &[&[2, kind], limit, &[10], &[0, 1, 3, 0, 0, 120, 0, 0, 0, 0, 0, 1, 2, b'h', b'i']],
            );
            self.add("row", &[&[2, kind], limit, &[10], &[1, 1, 0], &[0; 12]]);
        }
        self.add("types", &[&[5, 1], b"\0\x02\0\0\x40\0\0\x02\0\x01\x0b\xb8"]);
        for digits in [
            &[2, 0, 0x39, 0x30][..],
            &[0, 0],
            &[0xFF, 0xFF],
            &[3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x80],
        ] {
            self.add("numeric", &[&[10, 0, 3, 0], digits]);
        }
    }

    fn texts(&mut self) {
        let intervals = [
            "1 year 2 mons -3 days +04:05:06.789|-1 day",
            "P1Y2M3DT4H5M6.5S|P-1-2-3T04:05:06",
            "@ 3 hours 2 minutes ago|1 2:03",
            "1.5 weeks, 2 us|-178956970 years -8 mons",
            "2-3 4:5:6|1 millennium 2 cent 1 decade",
        ];
        let head = [&[4][..], &1.5_f64.to_bits().to_le_bytes(), &[0; 8]].concat();
        intervals.iter().for_each(|text| self.add("interval", &[&head, text.as_bytes()]));
        let configs = [
            "",
            "[devices.fast]\npath = \"/mnt/nvme\"\nprofile = \"none\"\ndirect = false\n[spaces]\nlog = \"fast\"\n",
            "[pool]\nsize = \"2GiB\"\nreplacement = \"lru2\"\npage_writers = 2\npage_size = \"8KiB\"\n",
            "[log]\nsegment = \"64 MiB\"\ncapacity = 0x4000_0000\n[protection]\nkind = 'none'\n",
            "server = { listen = \"[::1]:5433\", max_connections = 1_000 } # all in one\n",
            "[devices.\"a b\"]\npath = \"\"\"x\"\"\"\n[spaces]\ndata = \"a b\"\ntemporary = \"nowhere\"\n",
            "[pool]\nsise = 1\n[log]\ncapacity = 2097152\nsegment = 1979-05-27\n",
        ];
        configs.iter().for_each(|text| self.add("config", &[text.as_bytes()]));
    }

    /// Adds scan programs with rows, and messages to and from a smart device.
    fn smart(&mut self) {
        let columns = r#""columns":["Int4",{"Decimal":2},"Text","Float8"]"#;
        let conditions = [
            r#"null"#,
            r#"{"Compare":[0,"Greater",{"Int":3}]}"#,
            r#"{"And":[{"Not":{"IsNull":2}},{"Or":[{"Prefix":[2,"a"]},{"Between":[1,{"Decimal":-5},{"Decimal":99}]}]}]}"#,
            r#"{"Compare":[3,"NotEqual",{"Float":9221120237041090560}]}"#,
        ];
        let outputs = [
            r#"{"Columns":[0,2]}"#,
            r#"{"Groups":{"keys":[2],"aggregates":["CountRows",{"Sum":1},{"Average":0},{"Min":2},{"Max":3}]}}"#,
            r#"{"Groups":{"keys":[],"aggregates":[{"Count":1}]}}"#,
        ];
        // 7, 1.25, "ab" and 0.5; then NULLs; then -1, NULL, "" and NaN.
        let rows: &[u8] = b"\x05\x07\0\0\0\x07\x02\0\x01\0\x19\0\x03ab\x09\0\0\0\0\0\0\xe0\x3f\0\0\0\0\x05\xff\xff\xff\xff\0\x01\x09\0\0\0\0\0\0\xf8\x7f";
        for condition in conditions {
            for output in outputs {
                let program = format!("{{{columns},\"condition\":{condition},\"output\":{output}}}");
                let length = (program.len() as u16).to_le_bytes();
                self.add("smart_program", &[&length, program.as_bytes(), rows]);
                let length = (program.len() as u32).to_le_bytes();
                let head = [&[1, 9, 0, 0, 0][..], &[7; 16], &[0, 32, 0, 0], &[1; 8], b"\x0a\0\0\0data.varve"];
                let leaves = [&[1, 0, 0, 0][..], &[5, 0, 0, 0, 0, 0, 0, 0], &[8; 8]].concat();
                self.add("smart_protocol", &[&head.concat(), &length, program.as_bytes(), &leaves]);
            }
        }
        for message in [
            &[2, 7, 0, 0, 0][..],
            &[3, 7, 0, 0, 0],
            b"\x04no",
            &[2, 5, 0, 0, 0, 1, 1, 0, 0, 0, 4, 0, 0, 0, 9],
        ] {
            self.add("smart_protocol", &[message]);
        }
    }

    /// Adds changes of the places after the pages: slots, segments, blocks.
    fn openings(&mut self) {
        for place in 0..u8::MAX {
            let change = [1, 8 + place % 40, 0, 1, place];
            self.add("opening", &[&[place, place & 1], &change]);
        }
    }

    fn starts(&mut self) {
        for choice in 0..4 {
            self.add("starts", &[&[0; 4], &[choice, 0, 0]]);
        }
        // A file that is too short, another number of starts, and another id of the newest start.
        self.add("starts", &[&[0; 4], &[1, 1, 0]]);
        self.add("starts", &[&[1, 12, 0, 1, 2], &[0; 3], &[1, 0, 0]]);
        self.add("starts", &[&[1, 24, 0, 1, 9], &[0; 3], &[3, 0, 0]]);
    }

    fn small(&mut self) {
        let steps: Vec<u8> = (0..60_u8).flat_map(|step| [step % 9, 3, 1, step % 7, step / 3, step]).collect();
        self.add("archive", &[&crate::archive::first_input()]);
        crate::archive::first_notes().iter().for_each(|note| self.add("archive", &[note]));
        self.add("backup", &[&crate::backup::first_input()]);
        self.add("node_model", &[&[0], &steps]);
        self.add("node_model", &[&[1], &steps]);
        self.add("node_columns", &[&[3, 4, 0, 8, 0], &steps]);
        self.add("allocation", &[&[0, 9, 0, 0, 0], &steps]);
        self.add("allocation", &[&[1, 9, 0, 1, 52, 0, 4, 30, 0, 0, 0, 1, 0, 1, 4, 17, 0, 0, 0], &steps]);
        for partitions in 0..5_u8 {
            let row = |number: u8| [&[2, number, 7, 3, 1, 2, 3], &[number % 16][..]].concat();
            let rows: Vec<u8> = (0..60).flat_map(row).collect();
            let head = [partitions, partitions, 1, 60];
            self.add("spill_file", &[&head, &rows]);
            // One page with other lengths, and one with another link.
            self.add(
                "spill_file",
                &[&head, &rows, &[1, 1, 4, 0, 2, 9, 0], &[2, 1, 8, 0, 8, 1, 0, 0, 0, 1, 0, 0, 0]],
            );
        }
        self.add("control", &[&[0; 4]]);
        self.add(
            "control",
            &[&[1, 40, 0, 8, 0, 32, 0, 0, 0, 0, 0, 0, 0, 1, 16, 0, 1, 9, 0], &[0, 48, 0, 0, 0, 0, 0, 0]],
        );
        for flags in [1, 3, 6, 8, 16, 27, 32, 65, 99, 128, 131, 136] {
            let region = [flags, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
            self.add("control", &[&[0; 4], &[0, 48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &region]);
        }
        self.add("control", &[&[2, 208, 15, 10, 9, 0, 0, 0, 0, 0, 0, 0, 3, 5, 8, 0, 1, 2, 0, 0, 0]]);
        self.starts();
        // A page that is written, one that is moved, and pages that are discarded.
        let said = [0, 16, 0, 2, 0, 7, 0, 9, 0, 100, 0, 4, 1, 1, 0, 0, 0, 120, 0, 4];
        self.add("packed_map", &[&[0; 12], &said, &[1, 32, 0, 1, 0, 3, 0]]);
        self.add("packed_map", &[&[0, 0, 1, 60, 0, 1, 9, 0], &[0; 8], &said, &[2, 64, 0, 5, 1, 7, 0, 80, 8]]);
        for block in 0..6_usize {
            let change = [&vec![0; 2 * block][..], &[1, 8, 0, 1, 1, 1], &vec![0; 10 - 2 * block]].concat();
            self.add("packed_map", &[&change, &said]);
        }
        let slot = [2, 4, 0, 4, 1, 0, 0, 0, 8, 0, 11, 200, 0, 0, 0, 0, 0, 0, 0, 1, 0, 20, 0];
        self.add("doublewrite", &[&[0; 8], &[0, 0, 0, 1, 0, 1], &slot, &slot]);
        // Two versions of a page and one of another page. The same with a version whose LSN is after the end
        // of the log, with damage, and with another header.
        let slots = [[1, 9, 0, 3, 0, 0, 0, 0], [1, 7, 0, 5, 0, 0, 0, 0], [2, 8, 0, 4, 0, 0, 0, 0]].concat();
        for durable in [9, 8] {
            self.add("nvm_region", &[&[durable, 0, 0, 0], &[0, 0], &slots]);
        }
        let damaged: &[u8] = &[1, 9, 0, 3, 1, 100, 0, 2, 7, 7, 0, 1, 16, 0, 1, 5, 0];
        self.add("nvm_region", &[&[9, 0, 0, 0], &[0, 0], damaged, &slots]);
        self.add("nvm_region", &[&[9, 0, 0, 0], &[0, 1, 52, 0, 1, 4], &slots]);
        self.add("overflow", &[&[1, 16, 0, 2, 16, 0, 3, 16, 0, 0, 16, 0], &[0, 64, 0, 0, 0, 4]]);
        for options in [0, 1, 2, 4, 6, 12, 28, 36, 68] {
            let data = "7\tx\n8\t\\N\n9,\"a\"\"b\nc\"\n\\.\n";
            self.add("copy", &[&[options, 2, 4, 4, 1, 3], data.as_bytes()]);
            self.add(
                "copy",
                &[
                    &[options, 2, 4, 4, 1, 3],
                    b"7,1.5,2.5,one,a,\\x01,2020-01-01,2020-01-01 10:00,2020-01-01 10:00+02,t\n",
                ],
            );
        }
    }
}

fn pages(image: &MemoryImage) -> Vec<Vec<u8>> {
    let read = |no| {
        let mut bytes = vec![0; PAGE_BYTES];
        image.read(no * PAGE_BYTES as u64, &mut bytes);
        bytes
    };
    let all = (0..image.len_bytes() / PAGE_BYTES as u64).map(read);
    all.filter(|bytes| page::verify_checksum(bytes).is_ok()).collect()
}

/// Returns the statements of the SQL tests.
fn statements() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql/tests");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let of_text = |text: String| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix("> ")).map(str::to_owned).collect()
    };
    texts.flat_map(of_text).collect()
}
