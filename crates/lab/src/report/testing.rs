//! Generated records.

use crate::record::{
    Bar, Better, Head, Latencies, Line, Machine, Ratio, Record, SCHEMA, Sample, TraceEvent,
    throughput,
};
use crate::stats::normal;

use super::Report;

/// A throughput in MB/s.
pub(super) fn sample(series: &str, round: u32, value: f64) -> Line {
    Line::Sample(throughput(series, round, value))
}

/// A complete run on a machine like that of report 5.
pub(super) fn record(mut lines: Vec<Line>) -> Record {
    lines.push(Line::End {
        why: "rounds".into(),
    });
    Record {
        head: Head {
            schema: SCHEMA,
            name: "seqwr".into(),
            started: "2015-02-25T15:50:22Z".into(),
            machine: Machine {
                cpu: "Intel(R) Core(TM)2 Duo CPU E7500 @ 2.93GHz".into(),
                cpus: 2,
                memory_mib: 1968,
                kernel: "4.0.0-rc1".into(),
                version: "0.1.0".into(),
                optimised: true,
                wake_up_us: 0.0,
                guest_halt_poll_ns: None,
                free_memory_leaves: false,
            },
            max_rounds: None,
            settings: [("scale".to_owned(), 100.into())].into(),
        },
        lines,
    }
}

/// `count` samples around a mean. They are the same on every call.
pub(super) fn samples(series: &str, count: u32, mean: f64, stdev: f64) -> Vec<Line> {
    let mut random = fastrand::Rng::with_seed(mean.to_bits());
    (1..=count)
        .map(|round| sample(series, round, mean + stdev * normal(&mut random)))
        .collect()
}

/// Latencies around a median, some of them a hundred times longer.
fn latencies(series: &str, median_us: f64) -> Line {
    let class = |power: i32| {
        let limit = median_us * 1.25f64.powi(power);
        let share =
            (-f64::from(power * power) / 18.0).exp() + 2e-4 * (-f64::from(power) / 9.0).exp();
        (limit, (1e5 * share) as u64)
    };
    Line::Latencies(Latencies {
        series: series.into(),
        quantity: "write".into(),
        round: 1,
        classes_us: (-6..30).map(class).collect(),
    })
}

/// A request of 32 MiB in bios of one size. They are built one after the other, with `deep` of them in
/// flight.
pub(super) fn request(series: &str, bio_bytes: u64, deep: usize) -> Line {
    let (build_us, device_us) = (bio_bytes as f64 / 16_000.0, bio_bytes as f64 / 2_000.0);
    let mut events = Vec::new();
    let mut ends = vec![0.0f64; deep];
    let mut device_free = 0.0f64;
    let mut now = 0.0f64;
    let event = |at_us, what: &str, offset_bytes, took_us| TraceEvent {
        at_us,
        what: what.into(),
        detail: "read".into(),
        offset_bytes,
        len_bytes: bio_bytes,
        took_us,
    };
    for number in 0..(32 << 20) / bio_bytes {
        let (offset, slot) = (number * bio_bytes, number as usize % deep);
        now = now.max(ends[slot]);
        events.push(event(now, "build", offset, 0.0));
        now += build_us;
        events.push(event(now, "submit", offset, 0.0));
        device_free = device_free.max(now) + device_us;
        ends[slot] = device_free + 60.0;
        events.push(event(ends[slot], "complete", offset, ends[slot] - now));
        if number % 16 == 15 {
            events.push(event(now, "pause", 0, build_us));
        }
    }
    events.push(event(now, "commit", 0, 900.0));
    events.sort_by(|a, b| a.at_us.total_cmp(&b.at_us));
    Line::Trace {
        series: series.into(),
        events,
    }
}

/// A run with lines of every kind.
fn whole() -> Record {
    let mut lines: Vec<Line> = Vec::new();
    for (series, mean, stdev) in [
        ("buffered", 326.4, 3.1),
        ("direct", 330.2, 1.9),
        ("old way", 204.8, 6.0),
    ] {
        lines.extend((0..2).map(|_| sample(series, 0, mean * 0.8)));
        lines.extend(samples(series, 40, mean, stdev));
        lines.push(sample(series, 41, mean * 0.93));
        lines.push(latencies(series, 40_000.0 / mean));
    }
    let of_cpu = samples("buffered", 40, 0.8, 0.02)
        .into_iter()
        .chain(samples("direct", 40, 0.11, 0.004));
    lines.extend(of_cpu.map(|line| match line {
        Line::Sample(sample) => Line::Sample(Sample {
            quantity: "cpu".into(),
            unit: "s/GiB".into(),
            better: Better::Lower,
            ..sample
        }),
        other => other,
    }));
    let ratio = |name: &str, value: f64, low: f64, high: f64| Line::Ratio {
        name: name.into(),
        ratio: Ratio { value, low, high },
    };
    lines.push(ratio("buffered / direct", 0.989, 0.985, 0.993));
    lines.push(ratio("old way / direct", 0.62, 0.61, 0.63));
    let bar = |name: &str, value: f64, target: f64| {
        Line::Bar(Bar {
            name: name.into(),
            value,
            target,
            at_least: true,
            met: value >= target,
        })
    };
    lines.push(bar("buffered / direct", 0.989, 0.99));
    lines.push(bar("direct, MB/s", 330.2, 320.0));
    lines.push(request("one bio", 32 << 20, 1));
    lines.push(request("1 MiB bios", 1 << 20, 32));
    lines.push(request("64 KiB bios", 64 << 10, 32));
    lines.push(Line::Count {
        name: "balance calls per MiB".into(),
        value: 1.0,
    });
    lines.push(Line::Note {
        text: "O_DIRECT is not there on tmpfs: left out.".into(),
    });
    record(lines)
}

/// A name that would close an element, an attribute or a line, reverse the text direction, or become markup.
pub(super) const HOSTILE: &str = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)>\"'&\n# \u{202e}`x` 10 %";

fn hostile() -> Record {
    let mut lines = samples(HOSTILE, 8, 10.0, 1.0);
    lines.push(sample(HOSTILE, 9, f64::NAN));
    lines.push(sample("infinite", 1, f64::INFINITY));
    for line in &mut lines {
        if let Line::Sample(sample) = line {
            sample.quantity = format!("throughput {HOSTILE}");
            sample.unit = HOSTILE.into();
        }
    }
    lines.push(latencies(HOSTILE, 7.0));
    lines.push(request(HOSTILE, 8 << 20, 2));
    lines.push(Line::Ratio {
        name: HOSTILE.into(),
        ratio: Ratio {
            value: f64::NAN,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        },
    });
    lines.push(Line::Count {
        name: HOSTILE.into(),
        value: f64::NAN,
    });
    lines.push(Line::Note {
        text: HOSTILE.into(),
    });
    let mut record = record(lines);
    record.head.name = HOSTILE.into();
    record.head.settings.insert(HOSTILE.into(), HOSTILE.into());
    record
}

/// Reports of every shape: name, report, and number of plots.
pub(super) fn reports() -> Vec<(&'static str, Report, usize)> {
    let of = |runs: Vec<(&str, Record)>| {
        let runs = runs
            .into_iter()
            .map(|(label, record)| (label.to_owned(), record));
        Report::of(runs.collect()).expect("there are runs")
    };
    let run = |mean, stdev| record(samples("seqwr", 40, mean, stdev));
    let mut cut_short = record(vec![sample("a", 1, 4.0)]);
    cut_short.lines.pop();
    let many =
        (0..12).flat_map(|i| samples(&format!("variant {i}"), 2500, f64::from(i + 1) * 100.0, 3.0));
    vec![
        (
            "compared",
            of(vec![
                ("v3.19-rc1", run(135.677, 1.61)),
                ("v4.0-rc1", run(130.97, 1.012)),
            ]),
            3,
        ),
        (
            "same",
            of(vec![
                ("a", run(100.0, 5.0)),
                ("b", run(100.1, 5.0)),
                ("b", run(104.1, 5.0)),
            ]),
            3,
        ),
        ("whole", of(vec![("whole", whole())]), 4 + 1 + 1 + 4 * 3),
        (
            "hostile",
            of(vec![(HOSTILE, hostile()), ("other", hostile())]),
            2 + 3 + 1 + 2 * 4,
        ),
        ("one sample", of(vec![("one sample", cut_short)]), 1),
        ("many", of(vec![("many", record(many.collect()))]), 2),
        ("nothing", of(vec![("nothing", record(Vec::new()))]), 0),
    ]
}
