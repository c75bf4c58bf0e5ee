//! `lab compare` and `lab gate`, on runs that were written for them.

use std::path::{Path, PathBuf};

use serde_json::json;
use throughline_lab::Machine;
use throughline_lab::record::{Better, Head, Line, Record, SCHEMA, Sample};

use crate::common::{fails, ok, run};

/// A folder of runs.
struct Runs(tempfile::TempDir);

/// One series' samples of one quantity: name, quantity, unit, better, and the value of a round.
struct Series(&'static str, &'static str, &'static str, Better, f64);

impl Runs {
    fn new() -> Runs {
        Runs(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a run of so many rounds, with a noise of about 1.2 % that no two series share.
    fn write(&self, name: &str, rounds: u32, series: &[Series]) -> String {
        self.write_changed(name, rounds, series, |_| ())
    }

    fn write_changed(
        &self,
        name: &str,
        rounds: u32,
        series: &[Series],
        change: impl FnOnce(&mut Record),
    ) -> String {
        let mut lines = Vec::new();
        let mut noise = name
            .bytes()
            .fold(7u64, |seed, byte| seed * 131 + u64::from(byte));
        for round in 0..=rounds {
            for Series(series, quantity, unit, better, level) in series {
                // Knuth's generator; four of it are near enough to normal.
                let mut throws = 0.0;
                for _ in 0..4 {
                    noise = noise
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    throws += (noise >> 40) as f64 / f64::from(1 << 24) - 0.5;
                }
                // The round of warming up must not count.
                let cold = if round == 0 { 0.1 } else { 1.0 };
                lines.push(Line::Sample(Sample {
                    series: (*series).into(),
                    quantity: (*quantity).into(),
                    unit: (*unit).into(),
                    better: *better,
                    round,
                    value: cold * level * (1.0 + 0.02 * throws),
                    at_s: None,
                }));
            }
        }
        lines.push(Line::End {
            why: "rounds".into(),
        });
        let mut machine = Machine::here();
        machine.optimised = true;
        machine.wake_up_us = 20.0;
        let head = Head {
            schema: SCHEMA,
            name: "streams".into(),
            started: "2026-01-02T03:04:05Z".into(),
            machine,
            settings: [
                ("scale".to_owned(), json!(100)),
                (
                    "workload".to_owned(),
                    json!("block = \"4k\"\nthreads = 2\n"),
                ),
            ]
            .into(),
        };
        let mut record = Record { head, lines };
        change(&mut record);
        let path = self.0.path().join(name);
        record.write(&path).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

const SPEED: fn(f64) -> Series =
    |level| Series("write", "throughput", "MB/s", Better::Higher, level);
const TIME: fn(f64) -> Series = |level| Series("write", "p99", "us", Better::Lower, level);

#[test]
fn a_planted_loss_is_shown_in_the_form_of_the_report() {
    let runs = Runs::new();
    let base = runs.write("base", 40, &[SPEED(135.7)]);
    let new = runs.write("new", 40, &[SPEED(135.7 * 0.955)]);
    let text = ok(["lab", "compare", &base, &new]);
    for part in [
        "throughput (MB/s), higher is better",
        "base write : testcnt=40 average=135.",
        "] stdev=",
        " cv=1.",
        "Slower: -4.",
        "99.5 % sure",
        "40 and 40 samples could have seen",
        "separate runs, not pairs",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    assert!(!text.contains("warning"), "{text}");
    let equal = ok(["lab", "compare", "--threshold", "2", &base, &base]);
    assert!(
        equal.contains("No difference larger than 2 %: +0.00 %"),
        "{equal}"
    );
    let json = run(["lab", "compare", "--json", &base, &new]).json();
    let found = &json["rows"][0]["judgement"];
    assert_eq!(found["verdict"], "slower");
    assert_eq!(found["paired"], false);
    assert_eq!(json["rows"][0]["base"]["count"], 40);
    assert!(found["high"].as_f64().unwrap() < 1.0);
    // A handful of samples is no evidence, however far apart they lie.
    let few = runs.write("few", 3, &[SPEED(60.0)]);
    let text = ok(["lab", "compare", &few, &few]);
    assert!(text.contains("Not enough evidence"), "{text}");
    assert!(
        text.contains("3 and 3 samples are too few to be 99.5 % sure"),
        "{text}"
    );
}

#[test]
fn series_are_matched_by_name_or_as_they_are_told() {
    let runs = Runs::new();
    let two = |name: &str, factor: f64| {
        let of = |series, level| Series(series, "throughput", "MB/s", Better::Higher, level);
        runs.write(name, 40, &[of("old", 100.0), of("new", 100.0 * factor)])
    };
    let (one, other) = (two("one", 0.9), two("other", 0.9));
    let json = run(["lab", "compare", "--json", &one, &other]).json();
    assert_eq!(json["rows"].as_array().unwrap().len(), 2);
    // The confidence is of both together: each has half of what may go wrong.
    assert_eq!(json["rows"][0]["judgement"]["confidence"], 0.9975);
    assert_eq!(json["confidence"], 0.995);
    let json = run(["lab", "compare", "--json", "--series", "new", &one, &other]).json();
    assert_eq!(json["rows"].as_array().unwrap().len(), 1);
    assert_eq!(json["rows"][0]["new"]["series"], "new");
    let names = ["--base-series", "old", "--new-series", "new"];
    let crossed = run([&["lab", "compare", "--json", &one, &other], &names[..]].concat()).json();
    assert_eq!(crossed["rows"][0]["judgement"]["verdict"], "slower");
    let within = run([&["lab", "compare", "--json", &one], &names[..]].concat()).json();
    assert_eq!(within["rows"][0]["judgement"]["verdict"], "slower");
    assert_eq!(within["rows"][0]["judgement"]["paired"], true);
    assert_eq!(within["rows"][0]["judgement"]["pairs"], 40);
    assert!(within["new"].is_null());
    let skipped =
        run([&["lab", "compare", "--json", "--skip=25", &one], &names[..]].concat()).json();
    assert_eq!(skipped["rows"][0]["judgement"]["pairs"], 15);
    let text = ok([&["lab", "compare", &one], &names[..]].concat());
    assert!(text.contains("40 pairs could have seen"), "{text}");

    fails(["lab", "compare", &one], 1, "'new' and 'old'");
    fails(
        ["lab", "compare", "--series=none", &one, &other],
        1,
        "not both have a series 'none'",
    );
    fails(
        ["lab", "compare", "--quantity=none", &one, &other],
        1,
        "both have 'throughput'",
    );
    fails(
        ["lab", "compare", "--base-series=x", &one, &other],
        1,
        "no series 'x'",
    );
    fails(
        ["lab", "compare", "--skip=40", &one, &other],
        1,
        "no samples",
    );
    let alone = runs.write("alone", 40, &[TIME(5.0)]);
    fails(["lab", "compare", &alone, &one], 1, "no series is in both");
    let renamed = [Series("written", "p99", "us", Better::Lower, 5.0)];
    let renamed = runs.write("renamed", 40, &renamed);
    let text = ok(["lab", "compare", &alone, &renamed]);
    assert!(
        text.contains("base write") && text.contains("new written"),
        "{text}"
    );
    fails(
        ["lab", "compare", "--threshold=-1", &one, &other],
        2,
        "no percentage from 0",
    );
    fails(
        ["lab", "compare", "--confidence=100", &one, &other],
        2,
        "above 50",
    );
}

#[test]
fn what_else_differs_is_said_first() {
    let runs = Runs::new();
    let base = runs.write("base", 20, &[SPEED(100.0), TIME(9.0)]);
    let other = runs.write_changed("other", 20, &[SPEED(100.0), TIME(9.0)], |record| {
        let head = &mut record.head;
        head.name = "random".into();
        head.machine.cpu = "another processor".into();
        head.machine.cpus += 6;
        head.machine.memory_mib *= 2;
        head.machine.kernel = "9.9".into();
        head.machine.version = "0.0.1".into();
        head.machine.optimised = false;
        head.machine.wake_up_us = 3.0;
        head.settings = [
            ("scale".to_owned(), json!(10)),
            ("sync".to_owned(), json!("each")),
            (
                "workload".to_owned(),
                json!("block = \"8k\"\nthreads = 2\n"),
            ),
        ]
        .into();
        record.lines.pop();
        for line in &mut record.lines {
            if let Line::Sample(sample) = line
                && sample.quantity == "p99"
            {
                sample.unit = "ms".into();
            }
        }
    });
    let text = ok(["lab", "compare", &base, &other]);
    for part in [
        "different workloads: streams against random",
        "against another processor",
        "different numbers of processors",
        "different sizes of memory",
        "against 9.9",
        "against 0.0.1",
        "different builds",
        "different times of a wake-up (µs): 20.0 against 3.0",
        "different settings of 'scale': 100 against 10",
        "different settings of 'sync': nothing against each",
        "different settings of 'workload': block = \"4k\" against block = \"8k\"",
        "cut short",
        "debug build",
        "'p99' is in 'us' here and in 'ms' there: not compared",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let json = run(["lab", "compare", "--json", &base, &other]).json();
    assert!(json["warnings"].as_array().unwrap().len() >= 12);
    let lone = runs.write("lone", 20, &[TIME(9.0)]);
    fails(
        ["lab", "compare", &lone, &other],
        1,
        "no quantity in common",
    );
}

#[test]
fn what_warms_up_or_lies_far_out_is_named_and_counted_in() {
    let runs = Runs::new();
    let base = runs.write("base", 40, &[SPEED(100.0)]);
    let odd = runs.write_changed("odd", 40, &[SPEED(100.0)], |record| {
        for line in &mut record.lines {
            let Line::Sample(sample) = line else { continue };
            match sample.round {
                1..=3 => sample.value = 80.0,
                30 => sample.value = 40.0,
                _ => (),
            }
        }
    });
    let text = ok(["lab", "compare", &base, &odd]);
    assert!(text.contains("new write  : testcnt=40"), "{text}");
    assert!(
        text.contains("the first 3 of 40 samples look like warming up"),
        "{text}"
    );
    assert!(text.contains("40.000 (sample 30 far)"), "{text}");
    let text = ok(["lab", "compare", "--skip", "3", &base, &odd]);
    assert!(
        text.contains("testcnt=37") && !text.contains("warming up"),
        "{text}"
    );
}

#[test]
fn the_gate_answers_by_its_exit_code() {
    let runs = Runs::new();
    let base = runs.write("base", 40, &[SPEED(100.0), TIME(50.0)]);
    let same = runs.write("same", 40, &[SPEED(100.0), TIME(50.0)]);
    let slow = runs.write("slow", 40, &[SPEED(95.5), TIME(50.0)]);
    let late = runs.write("late", 40, &[SPEED(100.0), TIME(60.0)]);
    let few = runs.write("few", 4, &[SPEED(50.0), TIME(50.0)]);
    let code = |args: &[&str]| run([&["lab", "gate"], args].concat()).code;
    assert_eq!(code(&[&base, &same, "--max-regression=3"]), Some(0));
    assert_eq!(code(&[&base, &slow, "--max-regression=3"]), Some(1));
    assert_eq!(
        code(&[&base, &slow, "--max-regression=4.5"]),
        Some(2),
        "the interval lies around it"
    );
    assert_eq!(code(&[&base, &slow, "--max-regression=7"]), Some(0));
    assert_eq!(
        code(&[&base, &late, "--max-regression=3"]),
        Some(1),
        "of a time, more is worse"
    );
    assert_eq!(
        code(&[&late, &base, "--max-regression=3"]),
        Some(0),
        "better is fine"
    );
    assert_eq!(
        code(&[&base, &few, "--max-regression=3"]),
        Some(2),
        "half as fast, but seen four times"
    );
    assert_eq!(
        code(&[&base, &late, "--max-regression=3", "--limit=p99=30"]),
        Some(0)
    );
    assert_eq!(
        code(&[&base, &late, "--limit", "throughput=3"]),
        Some(0),
        "nothing else is looked at"
    );
    assert_eq!(
        code(&[
            &base,
            &late,
            "--quantity",
            "throughput",
            "--max-regression=3%"
        ]),
        Some(0)
    );
    let ran = run(["lab", "gate", &base, &slow, "--max-regression=3", "--json"]);
    assert_eq!(ran.code, Some(1));
    let json = ran.json();
    assert_eq!(json["gate"]["outcome"], "regression");
    assert_eq!(json["gate"]["rows"][0]["quantity"], "p99");
    assert_eq!(json["gate"]["rows"][0]["outcome"], "fine");
    assert_eq!(json["gate"]["rows"][1]["outcome"], "regression");
    assert!(
        json["gate"]["rows"][1]["worse_low_percent"]
            .as_f64()
            .unwrap()
            > 3.0
    );
    assert_eq!(
        json["comparison"]["rows"][1]["judgement"]["verdict"],
        "slower"
    );
    let ran = run(["lab", "gate", &base, &slow, "--max-regression=3"]);
    assert!(
        ran.text()
            .contains("throughput of write: regression: worse by 4."),
        "{}",
        ran.text()
    );
}

#[test]
fn the_gate_never_mistakes_a_wrong_call_or_file_for_an_answer() {
    let runs = Runs::new();
    let base = runs.write("base", 20, &[SPEED(100.0)]);
    for wrong in [
        &["lab", "gate"][..],
        &["lab", "gate", &base, &base],
        &["lab", "gate", &base, &base, "--max-regression=much"],
        &["lab", "gate", &base, &base, "--limit=throughput"],
        &["lab", "gate", &base, &base, "--limit", "=3"],
        &[
            "--engine",
            "auto",
            "lab",
            "gate",
            &base,
            &base,
            "--no-such-option",
        ],
        &["-q", "lab", "gate", &base, &base],
    ] {
        fails(wrong, 64, "");
    }
    let broken = runs.path("broken");
    let text = std::fs::read_to_string(&base).unwrap();
    std::fs::write(
        &broken,
        text.replacen("\"kind\":\"sample\"", "\"kind\":", 1),
    )
    .unwrap();
    fails(
        ["lab", "gate", &base, &broken, "--max-regression=3"],
        65,
        "line 2",
    );
    fails(["lab", "compare", &base, &broken], 1, "line 2");
    let image = runs.path("no-run");
    std::fs::write(&image, [0u8; 4096]).unwrap();
    fails(
        ["lab", "gate", &image, &base, "--max-regression=3"],
        65,
        "no result of 'lab run'",
    );
    let missing: PathBuf = Path::new(&base).with_file_name("missing");
    let missing = missing.to_str().unwrap();
    fails(
        ["lab", "gate", &base, missing, "--max-regression=3"],
        65,
        "No such file",
    );
    fails(
        ["lab", "gate", &base, "/", "--max-regression=3"],
        65,
        "directory",
    );
    fails(
        ["lab", "gate", &base, &base, "--limit=nothing=3"],
        65,
        "'nothing'",
    );
    // What was torn when the run was killed is left out, and said.
    let torn = runs.path("torn");
    std::fs::write(&torn, &text[..text.len() - 40]).unwrap();
    let ran = run(["lab", "gate", &base, &torn, "--max-regression=5"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.text().contains("cut short"), "{}", ran.text());
    // Files of a machine that is not known to newer fields still read.
    let old = runs.path("old");
    std::fs::write(&old, text.replace("\"wake_up_us\":20.0", "\"once\":1")).unwrap();
    let ran = run(["lab", "gate", &base, &old, "--max-regression=5"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn two_targets_are_measured_until_it_is_certain() {
    let runs = Runs::new();
    let work = runs.path("work.toml");
    let text =
        "pattern = \"sequential-read\"\nblock = \"4K\"\nsize = \"64K\"\nlayout = \"written\"\n";
    std::fs::write(&work, text).unwrap();
    // No read takes so much longer than the same again.
    let wide = ["--threshold=1e12", "--dir", &runs.path(".")];
    let args = [
        "lab",
        "compare",
        "--workload",
        &work,
        "memory:",
        "memory:?name=again",
    ];
    let ran = run([&args[..], &wide, &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = Record::from_lines(&ran.stdout[..]).unwrap();
    let Some(Line::End { why }) = record.lines.last() else {
        panic!("no end: {}", ran.text());
    };
    assert_eq!(why, "certain");
    let series: Vec<String> = record
        .columns()
        .into_iter()
        .map(|column| column.series)
        .collect();
    assert!(
        series.contains(&"memory:".into()) && series.contains(&"again".into()),
        "{series:?}"
    );
    fails(
        ["lab", "compare", "--workload", &work, "memory:"],
        2,
        "<NEW>",
    );
    fails(
        ["lab", "compare", "--workload", &work, "memory:", "nothing"],
        2,
        "KIND:WHAT",
    );
    fails(["lab", "compare", "memory:", "memory:"], 1, "--workload");
}
