//! Whatever the kernel's trace contains, nothing panics, and memory stays bounded. And its filters.

use proptest::prelude::*;
use proptest::sample::select;
use throughline_testkit::cases::check;

use super::devices::Dev;
use super::events::{decode, tracepoints};
use super::filters;
use super::format::Format;
use super::instance::Raw;
use super::pages::records;
use super::router::Router;
use crate::table;

/// The cases are the same in every run.
const SEED: u64 = 11;

/// All fields that are read from records.
const FIELDS: &[&str] = &[
    "common_pid",
    "dev",
    "sector",
    "nr_sector",
    "new_sector",
    "rwbs",
    "comm",
    "error",
    "bytes",
    "nr_bytes",
    "ret",
    "child_pid",
    "flags",
    "name",
    "bdi",
    "pause",
    "wrote",
    "count",
    "length",
    "transaction",
];

const RECORD_BYTES: usize = 96;

/// A format with fields at random positions, some of them beyond the record.
fn format() -> impl Strategy<Value = String> {
    let place = (
        0..RECORD_BYTES,
        select(vec![0usize, 1, 2, 4, 8, 16]),
        0..2u8,
    );
    proptest::collection::vec(place, FIELDS.len()).prop_map(|places| {
        let line = |(name, (offset, size, signed)): (&&str, (usize, usize, u8))| {
            format!("\tfield:int {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
        };
        FIELDS.iter().zip(places).map(line).collect()
    })
}

/// Bytes like those in records: mostly small numbers, operation letters and edge values.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => Just(0u8),
        2 => 0..16u8,
        2 => select(b"RWFSMDAE0:1jbd2/".to_vec()),
        1 => Just(0xFF),
        1 => any::<u8>(),
    ];
    proptest::collection::vec(byte, 0..RECORD_BYTES)
}

#[test]
fn texts_of_formats() {
    let pieces = select(vec![
        "ID:",
        "field:",
        "int x",
        "timestamp",
        "commit",
        "data",
        "char y[16]",
        ";",
        "\t",
        "\n",
        "offset:",
        "size:",
        "signed:",
        "0",
        "8",
        "4080",
        "-1",
        "18446744073709551615",
        "99999999999999999999",
        "é",
    ]);
    let shuffled = proptest::collection::vec(pieces, 0..60).prop_map(|pieces| pieces.concat());
    check(SEED, 2000, prop_oneof![shuffled, any::<String>()], |text| {
        if let Ok(format) = Format::parse(&text) {
            for name in ["x", "y", "timestamp"] {
                let _ = (format.number(&[1; 16], name), format.text(&[1; 16], name));
            }
        }
    });
}

#[test]
fn pages() {
    check(
        SEED,
        4000,
        proptest::collection::vec(any::<u8>(), 0..300),
        |mut page| {
            if page.len() > 16 && page[16] % 2 == 0 {
                page[8..16].copy_from_slice(&240u64.to_ne_bytes());
            }
            let mut bytes = 0;
            records(&page, |_, record| bytes += record.len());
            assert!(bytes <= page.len());
        },
    );
}

#[test]
fn records_of_every_tracepoint() {
    let times = prop_oneof![4 => 0..1_000_000u64, 1 => any::<u64>()];
    let points = tracepoints();
    let event = (0..points.len(), times, record());
    let events = proptest::collection::vec(event, 0..64);
    check(
        SEED,
        throughline_testkit::tier::pick(100, 300, 1000),
        (format(), events, any::<u64>()),
        |(format, events, end_ns)| {
            let format = Format::parse(&format).expect("a format");
            let mut router = Router::new(500, 0, &[]);
            for (point, at_ns, bytes) in &events {
                let raw = Raw {
                    point: &points[*point],
                    at_ns: *at_ns,
                    format: &format,
                    bytes,
                };
                if let Some(seen) = decode(&raw) {
                    router.take(&seen);
                }
            }
            assert!(router.in_flight() <= events.len());
            router.end(end_ns);
            let explained = router.finish(0, &[]);
            let accounts: Vec<_> = explained.iter().map(|one| &one.account).collect();
            assert!(accounts.is_empty() || !table(&accounts, false).is_empty());
            for one in &explained {
                assert!(one.trace.len() <= 4 * events.len(), "{}", one.trace.len());
                serde_json::to_string(&one.account).expect("JSON");
            }
        },
    );
}

#[test]
fn the_kernel_leaves_out_other_devices() {
    assert!(filters(&[]).is_empty());
    let devices = [Dev(4095 << 20), Dev(4095 << 20 | 1)];
    let filters = filters(&devices);
    assert_eq!(filters[0].1, "dev == 4293918720 || dev == 4293918721");
    assert_eq!(filters[1].1, "name == \"4095:0\" || name == \"4095:1\"");
}
