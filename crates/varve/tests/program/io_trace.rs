//! The setting `trace_entries` and the view `varve_io_trace` of a running server.

use super::serve::Served;

/// ALTER SYSTEM begins and ends the trace. A start begins it again, because the setting is kept.
#[test]
fn the_trace_of_requests_is_switched_on_line() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.connect();
    let counted = "select count(*) from varve_io_trace where space = 'log' and purpose = 'log'
                   and operation <> 'read' and length_bytes > 0 and duration_us > 0";
    let mut count = |sql: &str| {
        client.batch_execute(sql).unwrap();
        client.query_one(counted, &[]).unwrap().get::<_, i64>(0)
    };
    assert_eq!(count("create table t (a int primary key)"), 0);
    // Background work may write to the log before the insert does, so this count need not be 0.
    let at_the_begin = count("alter system set trace_entries = 5000");
    assert!(count("insert into t values (1)") > at_the_begin);
    assert_eq!(count("alter system set trace_entries = 0"), 0);
    assert_eq!(count("insert into t values (2)"), 0);
    assert!(client.batch_execute("alter system set trace_entries = 1000001").is_err());
    client.batch_execute("alter system set trace_entries = 5000").unwrap();
    drop(client);
    served.stop("-TERM");
    let served = Served::start(directory.path());
    let mut client = served.connect();
    client.batch_execute("insert into t values (3)").unwrap();
    assert!(client.query_one(counted, &[]).unwrap().get::<_, i64>(0) > 0);
    drop(client);
    served.stop("-TERM");
}
