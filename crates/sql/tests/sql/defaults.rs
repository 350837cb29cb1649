//! A column's DEFAULT is stored as text and parsed again for each plan. It must always mean the same, even
//! after a restart.

use crate::support::{Recorder, reopened, session};
use varve_device::MemoryDirectory;

/// Types, defaults, and the values that PostgreSQL 15 gives for them.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("text", "'it''s'", "it's"),
    ("text", "'a''''b'", "a''b"),
    ("text", "'''quoted'''", "'quoted'"),
    ("text", "'back\\slash'", "back\\slash"),
    ("text", r"E'it\'s\n\\ \x41\u00e9'", "it's\n\\ Aé"),
    ("text", r"E'\\'", "\\"),
    ("text", "$$dollar''s$$", "dollar''s"),
    ("text", "$tag$a $$ b$tag$", "a $$ b"),
    ("text", "N'nation''s'", "nation's"),
    ("text", "'a' || '''' || \"upper\"('b')", "a'B"),
    ("text", "upper(replace('a''b', '''', '\"'))", "A\"B"),
    ("text", "trim(leading from '  x')", "x"),
    ("text", "substring('abc' from 2 for 1)", "b"),
    ("text", "case when 1 < 2 then 'y''y' else 'n' end", "y'y"),
    ("text", "coalesce(null, nullif('a', 'b'), 'c')", "a"),
    ("varchar(3)", "'ab'::varchar(3)", "ab"),
    ("char(3)", "'a'::character(3)", "a  "),
    ("numeric(5,2)", "1.50::numeric(5,2)", "1.50"),
    ("numeric", "-(1.5 + 2) * 3", "-10.5"),
    ("int", "2 + 3 * 4 % 5", "4"),
    ("int", "(2 + 3) * 4", "20"),
    ("int", "-(-5)", "5"),
    // If this were printed without a blank, it would begin a comment.
    ("int", "- - 5", "5"),
    ("int", "cast('7' as int)", "7"),
    ("int", "1 - -1", "2"),
    ("int", "position('b' in 'abc')", "2"),
    ("bool", "(not (1 between symmetric 3 and 2))", "t"),
    ("bool", "(2 between symmetric (1 + 2) * 1 and (1))", "t"),
    ("bool", "('a' like 'A' or 'a' ilike 'A')", "t"),
    ("bool", "(1 in (1, 2) and 3 is distinct from 4)", "t"),
    ("date", "date '2024-02-29'", "2024-02-29"),
    ("timestamp", "timestamp '2024-02-29 12:00:00' + interval '1 day'", "2024-03-01 12:00:00"),
    ("bytea", r"'\x00ff'", "\\x00ff"),
    ("float8", "1e3", "1000"),
];

#[test]
fn defaults_keep_their_meaning_over_a_restart() {
    let directory = MemoryDirectory::new();
    let mut refused = Vec::new();
    {
        let db = reopened(&directory);
        let mut s = session(&db);
        for (n, (ty, default, _)) in DEFAULTS.iter().enumerate() {
            let mut sink = Recorder::default();
            sink.simple(&mut s, &format!("create table d{n} (a int, v {ty} default {default} not null)"));
            sink.simple(&mut s, &format!("create table e{n} (a int, v {ty})"));
            sink.simple(&mut s, &format!("alter table e{n} alter v set default {default}"));
            let errors = sink.lines.into_iter().filter(|l| l.starts_with('!'));
            refused.extend(errors.map(|l| format!("{default}: {l}")));
        }
        drop(s);
        db.engine().shutdown().unwrap();
    }
    assert!(refused.is_empty(), "{refused:#?}");
    let db = reopened(&directory);
    let mut s = session(&db);
    for (n, (_, default, expected)) in DEFAULTS.iter().enumerate() {
        for table in ["d", "e"] {
            let mut sink = Recorder::default();
            sink.simple(&mut s, &format!("insert into {table}{n} (a) values (1) returning v"));
            assert_eq!(sink.lines.first().map(String::as_str), Some(*expected), "{default}");
        }
    }
}
