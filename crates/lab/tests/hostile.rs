//! Hostile text: whatever people, other tools or result files contain, the lab does not panic, and its output
//! is bounded by its input.

use proptest::prelude::*;
use proptest::sample::select;
use throughline_lab::compare::{Choice, Comparison, Gate, Limits};
use throughline_lab::record::{Line, Record};
use throughline_lab::report::Report;
use throughline_lab::workload::TargetSpec;
use throughline_lab::workload::fio::Results;
use throughline_testkit::cases::check;

/// The cases are the same in every run.
const SEED: u64 = 7;

/// Numbers, sizes and times at the limits of their types, and invalid values.
const EDGES: &[&str] = &[
    "0",
    "-1",
    "1",
    "255",
    "256",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "-0.0",
    "nan",
    "inf",
    "0.0000001",
    "512",
    "16E",
    "99999999999G",
    "1s",
    "9e18s",
    "584942417355y",
    "\"\"",
    "''",
    "null",
    "true",
    "[]",
    "{}",
    "\u{202e}",
    "\0",
    "é",
    "\r\n",
    "\n",
    "=",
    "[",
    "]",
    ":",
    "?",
    "&",
    ",",
    "%",
    "${X}",
];

/// A change to a text.
#[derive(Clone, Debug)]
enum Change {
    Insert(usize, String),
    Replace(usize, usize, String),
    Repeat(usize, usize, usize),
    Cut(usize, usize),
    End(usize),
}

impl Change {
    fn apply(&self, text: &mut Vec<char>) {
        let len = text.len();
        let span = |at: usize, count: usize| {
            let from = at % (len + 1);
            from..(from + count).min(len)
        };
        match self {
            Change::Insert(at, new) => drop(text.splice(span(*at, 0), new.chars())),
            Change::Replace(at, count, new) => drop(text.splice(span(*at, *count), new.chars())),
            Change::Repeat(at, count, times) => {
                let span = span(*at, *count);
                let again = text[span.clone()].repeat(*times);
                drop(text.splice(span.end..span.end, again));
            }
            Change::Cut(at, count) => drop(text.drain(span(*at, *count))),
            Change::End(at) => text.truncate(at % (len + 1)),
        }
    }
}

/// Changes that insert values at the limits, words of the format, or arbitrary text.
fn change(words: &'static [&'static str]) -> impl Strategy<Value = Change> {
    let word = prop_oneof![
        3 => select(EDGES).prop_map(str::to_owned),
        3 => select(words).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    prop_oneof![
        3 => (any::<usize>(), word.clone()).prop_map(|(at, new)| Change::Insert(at, new)),
        4 => (any::<usize>(), 1usize..24, word).prop_map(|(at, count, new)| Change::Replace(at, count, new)),
        1 => (any::<usize>(), 1usize..80, 1usize..40).prop_map(|(at, count, times)| Change::Repeat(at, count, times)),
        2 => (any::<usize>(), 1usize..40).prop_map(|(at, count)| Change::Cut(at, count)),
        1 => any::<usize>().prop_map(Change::End),
    ]
}

/// One of the texts with some changes, words in any order, or arbitrary text.
fn text(
    samples: &'static [&'static str],
    words: &'static [&'static str],
) -> impl Strategy<Value = String> {
    let changes = proptest::collection::vec(change(words), 0..6);
    let changed = (select(samples), changes).prop_map(|(sample, changes)| {
        let mut text: Vec<char> = sample.chars().collect();
        changes.iter().for_each(|change| change.apply(&mut text));
        text.into_iter().collect()
    });
    let pieces = prop_oneof![select(words), select(EDGES), Just("\n"), Just(" ")];
    let shuffled = proptest::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat());
    prop_oneof![6 => changed, 2 => shuffled, 1 => any::<String>()]
}

const TARGETS: &[&str] = &[
    "dir:/tmp/a b?name=a",
    "make:xfs?mkfs=-m reflink=0&mount=noatime,discard",
    "fuse2fs:?mkfs=-b 1024",
    "file:/dev/null",
];

const TARGET_WORDS: &[&str] = &[
    "dir:", "file:", "make:", "mount:", "fuse2fs:", "name=", "mkfs=", "mount=", "ext4", "/",
];

#[test]
fn targets() {
    check(SEED, 1500, text(TARGETS, TARGET_WORDS), |text| {
        if let Ok(spec) = TargetSpec::parse(&text) {
            assert_eq!(spec.to_string(), text);
            assert!(!spec.label().is_empty());
        }
    });
}

const FIO: &[&str] = &[
    r#"{"fio version":"fio-3.33","jobs":[{"jobname":"a","groupid":0,"error":0,"read":{"io_bytes":2097152,"bw_bytes":69905066,"iops":17066.6,"runtime":30,"total_ios":512,"clat_ns":{"N":512,"percentile":{"50.000000":45312,"99.000000":1089536},"bins":{"30080":1,"30336":511}}},"sync":{"total_ios":0,"lat_ns":{"N":0}}}]}"#,
    "note: capped\n{\"jobs\":[{\"jobname\":\"b\",\"write\":{\"bw_bytes\":1,\"iops\":1,\"runtime\":1,\"total_ios\":1}},{\"jobname\":\"b\",\"trim\":{\"bw_bytes\":1,\"iops\":1,\"runtime\":1,\"total_ios\":1}}]}",
];

const FIO_WORDS: &[&str] = &[
    "\"jobs\":",
    "\"error\":",
    "\"read\":",
    "\"runtime\":",
    "\"bw_bytes\":",
    "\"bins\":",
    "\"1\":",
    "\"jobname\":",
];

#[test]
fn results_of_fio() {
    check(SEED, 1500, text(FIO, FIO_WORDS), |text| {
        let Ok(results) = Results::parse(&text) else {
            return;
        };
        let figures = results.figures();
        assert!(figures.len() >= 2 && figures.len() <= text.len(), "{text}");
        for (quantity, value) in figures {
            assert!(value.is_finite() && value >= 0.0, "{quantity}: {value}");
            assert!(quantity.len() < 200 && quantity.is_ascii(), "{quantity}");
        }
    });
}

const HEAD: &str = r#"{"schema":1,"name":"a","started":"2026-01-02T03:04:05Z","machine":{"cpu":"c","cpus":2,"memory_mib":1,"kernel":"6.1","version":"1","optimised":true,"wake_up_us":2.5},"settings":{"scale":10,"targets":["a","b"]}}"#;

const LINES: &[&str] = &[
    r#"{"kind":"sample","series":"a","quantity":"throughput","unit":"MB/s","better":"higher","round":1,"value":100.5,"at_s":1.5}"#,
    r#"{"kind":"sample","series":"a","quantity":"throughput","unit":"MB/s","better":"higher","round":2,"value":101}"#,
    r#"{"kind":"sample","series":"b","quantity":"throughput","unit":"MB/s","better":"higher","round":1,"value":90.25}"#,
    r#"{"kind":"sample","series":"b","quantity":"throughput","unit":"MB/s","better":"higher","round":2,"value":91}"#,
    r#"{"kind":"sample","series":"b","quantity":"time","unit":"s","better":"lower","round":3,"value":0.001}"#,
    r#"{"kind":"latencies","series":"a","quantity":"write","round":1,"classes_us":[[1.5,10],[2.5,20],[100,1]]}"#,
    r#"{"kind":"trace","series":"a","events":[{"at_us":0,"what":"build","detail":"write","offset_bytes":0,"len_bytes":4096},{"at_us":1.5,"what":"submit","detail":"write","len_bytes":4096},{"at_us":9,"what":"complete","detail":"write","len_bytes":4096,"took_us":7.5},{"at_us":9,"what":"pause","took_us":3}]}"#,
    r#"{"kind":"ratio","name":"a over b","ratio":{"value":1.1,"low":1.0,"high":1.2}}"#,
    r#"{"kind":"account","series":"a","wall_us":1e6,"asked":{"write":{"count":2,"bytes":8192}},"bios":{"write data":{"count":1,"bytes":8192}},"bio_sizes":{"write":[[4096,1],[8192,2]]},"splits":{"device limit":3},"first_bio_us":2.5,"latency":{"write":{"count":1,"total_us":9,"p50_us":9,"p90_us":9,"p99_us":9,"max_us":9}},"depth":{"most":2,"mean_busy":1.5,"busy":0.5,"slot_us":10,"over_time":[0,1,2]},"cache":{"hits":1,"hit_bytes":4096,"misses":0,"miss_bytes":0},"writeback_sizes":[[4096,1]]}"#,
    r#"{"kind":"count","name":"bios","value":12}"#,
    r#"{"kind":"note","text":"<script>alert(1)</script>"}"#,
    r#"{"kind":"end","why":"rounds"}"#,
];

const RECORD_WORDS: &[&str] = &[
    "{\"kind\":\"account\"}\n",
    "\"round\":4294967295",
    "\"value\":-1e308",
    "\"value\":1e308",
    "\"value\":0",
    "\"series\":\"\"",
    "\"at_us\":1e308",
    "\"at_us\":-1e308",
    "\"len_bytes\":18446744073709551615",
    "\"offset_bytes\":18446744073709551615",
    "[1e308,18446744073709551615],",
    "[-5,0],",
    "\"a\"",
    "\"b\"",
    "-",
    "e300",
    "9",
];

/// A head and some lines, with changes to the lines or, sometimes, to the head.
fn record() -> impl Strategy<Value = String> {
    let lines = proptest::collection::vec(select(LINES), 0..40);
    let changes = proptest::collection::vec(change(RECORD_WORDS), 0..5);
    (lines, changes, 0..8u8).prop_map(|(lines, changes, whole)| {
        let mut body: Vec<char> = lines.join("\n").chars().collect();
        let mut head: Vec<char> = HEAD.chars().chain(['\n']).collect();
        let changed = if whole == 0 { &mut head } else { &mut body };
        changes.iter().for_each(|change| change.apply(changed));
        head.into_iter().chain(body).collect()
    })
}

/// Computes everything that is derived from a record.
fn use_record(record: &Record) {
    let columns = record.columns();
    for (one, other) in columns.iter().zip(columns.iter().skip(1)) {
        let (left, right) = one.paired(other);
        assert_eq!(left.len(), right.len());
        assert!(left.len() <= one.samples.len());
    }
    let choice = Choice {
        base: Some("a".into()),
        new: Some("b".into()),
        ..Choice::default()
    };
    let compared = [
        Comparison::of_runs(&[("x", record)], &[("y", record)], &Choice::default()),
        Comparison::of_runs(&[("x", record); 9], &[("y", record); 9], &Choice::default()),
        Comparison::within(&[("x", record)], &choice),
        Comparison::within(&[("x", record); 9], &choice),
    ];
    for comparison in compared.into_iter().flatten() {
        assert!(!comparison.to_string().is_empty());
        serde_json::to_string(&comparison).expect("JSON");
        let limits = Limits {
            max_regression_percent: Some(5.0),
            ..Limits::default()
        };
        if let Ok(gate) = Gate::of(&comparison, &limits) {
            assert!(!gate.to_string().is_empty());
        }
    }
    let accounts: Vec<_> = record
        .lines
        .iter()
        .filter_map(|line| match line {
            Line::Account(account) => Some(&**account),
            _ => None,
        })
        .collect();
    let _ = throughline_explain::table(&accounts, true);
}

#[test]
fn results() {
    let reports = std::cell::Cell::new(0);
    check(SEED, 400, record(), |text| {
        let Ok(record) = Record::from_lines(text.as_bytes()) else {
            return;
        };
        use_record(&record);
        let runs = vec![
            ("one".to_owned(), record.clone()),
            ("other".to_owned(), record),
        ];
        for runs in [runs[..1].to_vec(), runs] {
            if let Ok(report) = Report::of(runs) {
                let html = report.html();
                reports.set(reports.get() + 1);
                assert!(!html.contains("<script>alert"), "not escaped");
                let limit = (1 << 20) + 100 * text.len();
                assert!(html.len() < limit, "{}", html.len());
            }
        }
    });
    let reports = reports.get();
    assert!(reports > 20, "only {reports} came to a report");
}

#[test]
fn results_of_any_bytes() {
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    check(SEED, 500, bytes, |bytes| {
        assert!(Record::from_lines(&bytes[..]).is_err());
        let whole = [HEAD.as_bytes(), b"\n", &bytes].concat();
        if let Ok(record) = Record::from_lines(&whole[..]) {
            use_record(&record);
        }
    });
    let deep = format!("{HEAD}\n{}\n", "{\"kind\":".repeat(100_000));
    assert!(Record::from_lines(deep.as_bytes()).is_err());
}
