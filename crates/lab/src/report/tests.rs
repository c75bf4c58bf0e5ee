//! Pages of generated records.

use super::*;
use crate::record::{Latencies, Ratio, Sample, throughput};

/// A name that would close an element or an attribute, or reverse the text direction.
const HOSTILE: &str =
    "</pre><script>document.title='broken'</script><img src=x>\"'&\n\u{202e}`x` 10 %";

fn record(mut lines: Vec<Line>) -> Record {
    lines.push(Line::End {
        why: "rounds".into(),
    });
    Record {
        head: crate::record::Head::new("seqwr", "2015-02-25T15:50:22Z", [].into()),
        lines,
    }
}

fn samples(series: &str, count: u32, mean: f64) -> Vec<Line> {
    let sample = |round| {
        let value = mean + f64::from(round * 7 % 11);
        Line::Sample(throughput(series, round, value))
    };
    (1..=count).map(sample).collect()
}

fn event(at_us: f64, what: &str, offset_bytes: u64) -> crate::record::TraceEvent {
    crate::record::TraceEvent {
        at_us,
        what: what.into(),
        detail: "read".into(),
        offset_bytes,
        len_bytes: 4096,
        took_us: 1.0,
    }
}

/// A line of each kind, with this name.
fn whole(name: &str, value: f64) -> Vec<Line> {
    let mut lines = samples(name, 40, 100.0);
    lines.push(Line::Sample(Sample {
        quantity: name.into(),
        unit: name.into(),
        ..throughput(name, 1, value)
    }));
    lines.push(Line::Latencies(Latencies {
        series: name.into(),
        quantity: name.into(),
        round: 1,
        classes_us: vec![(10.0, 5), (value, 3), (20.0, 1)],
    }));
    lines.push(Line::Ratio {
        name: name.into(),
        ratio: Ratio {
            value,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        },
    });
    let events = [
        (0.0, "build"),
        (2.0, "submit"),
        (value, "submit"),
        (9.0, "complete"),
    ];
    lines.push(Line::Trace {
        series: name.into(),
        events: events.map(|(at, what)| event(at, what, 0)).into(),
    });
    lines.push(Line::Note { text: name.into() });
    lines
}

fn page(runs: Vec<(&str, Record)>) -> String {
    let runs = runs
        .into_iter()
        .map(|(name, record)| (name.to_owned(), record));
    Report::of(runs.collect()).expect("there are runs").html()
}

#[test]
fn every_kind_of_line_has_its_picture() {
    let page = page(vec![("run", record(whole("a", 12.0)))]);
    assert_eq!(page.matches("<svg").count(), 2 + 1 + 1 + 1, "{page}");
    assert!(page.contains("n=40"), "the table of the terminal");
    assert!(Report::of(Vec::new()).is_err());
}

#[test]
fn names_from_a_file_are_no_markup() {
    for value in [f64::NAN, f64::INFINITY, -1.0] {
        let mut one = record(whole(HOSTILE, value));
        one.head.name = HOSTILE.into();
        one.head.settings.insert(HOSTILE.into(), HOSTILE.into());
        let page = page(vec![(HOSTILE, one.clone()), ("other", one)]);
        assert!(
            !page.contains("<script") && !page.contains("<img"),
            "{page}"
        );
        assert!(
            !page.contains('\u{202e}') && !page.contains("NaN\""),
            "{page}"
        );
    }
}

#[test]
fn a_page_is_bounded() {
    let many: Vec<Line> = (0..12)
        .flat_map(|number| samples(&format!("variant {number}"), 20_000, f64::from(number)))
        .collect();
    let page = page(vec![("many", record(many))]);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let mut events = Vec::new();
    for number in 0..50_000_u32 {
        events.push(event(f64::from(number), "submit", u64::from(number)));
    }
    let trace = Line::Trace {
        series: "a".into(),
        events,
    };
    let page = self::page(vec![("trace", record(vec![trace]))]);
    assert!(page.len() < 1 << 18, "{} bytes", page.len());
}

#[test]
fn a_run_beside_another_is_compared() {
    let (before, after) = (
        record(samples("a", 9, 100.0)),
        record(samples("a", 9, 90.0)),
    );
    let page = page(vec![("before", before.clone()), ("after", after)]);
    assert!(page.contains("1 not enough evidence"), "one pair: {page}");
    let other = record([samples("b", 9, 100.0), samples("c", 9, 100.0)].concat());
    let page = self::page(vec![("before", before), ("other", other)]);
    assert!(page.contains("Not compared"), "{page}");
}
