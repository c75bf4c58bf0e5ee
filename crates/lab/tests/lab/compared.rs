//! `lab compare` and `lab gate` on generated runs. For their own measurements, see `gated`.

use std::path::{Path, PathBuf};

use serde_json::json;
use throughline_lab::record::{Better, Line};

use crate::common::{fails, ok, run};
use crate::runs::{Runs, SPEED, Series, TIME};

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
        "Not enough evidence: -4.",
        "1 pair of runs is too few for a confidence of 99.5 %: 9 are needed, taken in turns",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    assert!(!text.contains("warning"), "{text}");
    let json = run(["lab", "compare", "--json", &base, &new]).json();
    let found = &json["rows"][0]["judgement"];
    assert_eq!(found["verdict"], "not-enough");
    assert_eq!((&found["of"], &found["pairs"]), (&json!("runs"), &json!(1)));
    assert_eq!(json["rows"][0]["base"]["count"], 40);
    assert!(found["high"].is_null(), "nothing is known of other runs");
    let of_sides = |runs: Vec<String>| -> String {
        let all: Vec<&str> = runs.iter().map(String::as_str).collect();
        ok([&["lab", "compare"], &all[..]].concat())
    };
    let (speed, loss) = ([SPEED(135.7)], [SPEED(135.7 * 0.955)]);
    let text = of_sides(runs.sides(10, true, &speed, &loss));
    for part in [
        "testcnt=10",
        "Slower: -4.",
        "10 pairs of runs could have detected",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    assert!(!text.contains("warning"), "{text}");
    let text = of_sides(runs.sides(10, false, &speed, &loss));
    for part in [
        "18 runs have no run of the other side",
        "Not enough evidence",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
}

#[test]
fn series_are_matched_by_name_or_by_the_option() {
    let runs = Runs::new();
    let two = |name: &str, factor: f64| {
        let of = |series, level| Series(series, "throughput", "MB/s", Better::Higher, level);
        runs.write(name, 40, &[of("old", 100.0), of("new", 100.0 * factor)])
    };
    let (one, other) = (two("one", 0.9), two("other", 0.9));
    let json = run(["lab", "compare", "--json", &one, &other]).json();
    assert_eq!(json["rows"].as_array().unwrap().len(), 2);
    // The confidence holds for both together, so each has half of the error probability.
    assert_eq!(json["rows"][0]["judgement"]["confidence"], 0.9975);
    assert_eq!(json["confidence"], 0.995);
    let json = run(["lab", "compare", "--json", "--series", "new", &one, &other]).json();
    assert_eq!(json["rows"].as_array().unwrap().len(), 1);
    assert_eq!(json["rows"][0]["new"]["series"], "new");
    let names = ["--base-series", "old", "--new-series", "new"];
    let crossed = run([&["lab", "compare", "--json", &one, &other], &names[..]].concat()).json();
    assert_eq!(crossed["rows"][0]["judgement"]["verdict"], "not-enough");
    let within = run([&["lab", "compare", "--json", &one], &names[..]].concat()).json();
    assert_eq!(within["rows"][0]["judgement"]["verdict"], "slower");
    assert_eq!(within["rows"][0]["judgement"]["of"], "samples");
    assert_eq!(within["rows"][0]["judgement"]["pairs"], 40);
    assert_eq!(within["new"], json!([]));
    let skipped =
        run([&["lab", "compare", "--json", "--skip=25", &one], &names[..]].concat()).json();
    assert_eq!(skipped["rows"][0]["judgement"]["pairs"], 15);
    let text = ok([&["lab", "compare", &one], &names[..]].concat());
    assert!(text.contains("40 pairs could have detected"), "{text}");

    fails(["lab", "compare", &one], 1, "'new' and 'old'");
    fails(
        ["lab", "compare", "--series=none", &one, &other],
        1,
        "series 'none' is not in both",
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
        "not a percentage of 0 or more",
    );
    fails(
        ["lab", "compare", "--confidence=100", &one, &other],
        2,
        "above 50",
    );
}

#[test]
fn other_differences_are_reported_first() {
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
        "different name: streams against random",
        "against another processor",
        "different cpus: ",
        "different memory_mib: ",
        "different kernel: ",
        "different version: ",
        "different optimised: true against false",
        "different wake_up_us: 20.0 against 3.0",
        "different scale: 100 against 10",
        "different sync: nothing against each",
        "different workload: block = \"4k\" against block = \"8k\"",
        "is incomplete",
        "debug build",
        "'p99' has the unit 'us' on one side and 'ms' on the other: not compared",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let json = run(["lab", "compare", "--json", &base, &other]).json();
    assert!(json["warnings"].as_array().unwrap().len() >= 11);
    let lone = runs.write("lone", 20, &[TIME(9.0)]);
    fails(
        ["lab", "compare", &lone, &other],
        1,
        "no quantity in common",
    );
}

#[test]
fn the_gate_answers_by_its_exit_code() {
    let runs = Runs::new();
    let of = |name, quantity, better, level| {
        let unit = if quantity == "p99" { "us" } else { "MB/s" };
        Series(name, quantity, unit, better, level)
    };
    let rounds = |name: &str, rounds, speed, time| {
        let series = [
            of("old", "throughput", Better::Higher, 100.0),
            of("new", "throughput", Better::Higher, speed),
            of("old", "p99", Better::Lower, 50.0),
            of("new", "p99", Better::Lower, time),
        ];
        runs.write(name, rounds, &series)
    };
    let same = rounds("same", 40, 100.0, 50.0);
    let slow = rounds("slow", 40, 95.5, 50.0);
    let late = rounds("late", 40, 100.0, 60.0);
    let few = rounds("few", 4, 50.0, 50.0);
    let gate = |args: &[&str]| {
        let names = ["--base-series", "old", "--new-series", "new"];
        run([&["lab", "gate"], &names[..], args].concat())
    };
    for (args, code, why) in [
        (&[&same[..], "--max-regression=3"][..], 0, "nothing differs"),
        (&[&slow, "--max-regression=3"], 1, "slower than the limit"),
        (
            &[&slow, "--max-regression=4.5"],
            2,
            "the limit lies within the interval",
        ),
        (&[&slow, "--max-regression=7"], 0, "within the limit"),
        (&[&late, "--max-regression=3"], 1, "a longer time is worse"),
        (
            &[&few, "--max-regression=3"],
            2,
            "half as fast, but only four rounds",
        ),
        (
            &[&late, "--max-regression=3", "--limit=p99=30"],
            0,
            "the quantity has its own limit",
        ),
        (
            &[&late, "--limit", "throughput=3"],
            0,
            "no other quantity is judged",
        ),
        (
            &[&late, "--quantity", "throughput", "--max-regression=3%"],
            0,
            "no other quantity is judged here either",
        ),
    ] {
        assert_eq!(gate(args).code, Some(code), "{why}");
    }
    let json = gate(&[&slow, "--max-regression=3", "--json"]).json();
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
    let text = gate(&[&slow, "--max-regression=3"]).text();
    assert!(
        text.contains("throughput of new: regression: worse by 4."),
        "{text}"
    );
}

#[test]
fn the_gate_of_runs_goes_by_runs() {
    let runs = Runs::new();
    let base = runs.write("base", 40, &[SPEED(100.0)]);
    let slow = runs.write("slow", 40, &[SPEED(50.0)]);
    let ran = run(["lab", "gate", &base, &slow, "--max-regression=3"]);
    assert_eq!(ran.code, Some(2), "one run a side: {}", ran.text());
    let code = |loss: f64, turns| {
        let sides = runs.sides(10, turns, &[SPEED(100.0)], &[SPEED(100.0 - loss)]);
        let sides: Vec<&str> = sides.iter().map(String::as_str).collect();
        run([&["lab", "gate", "--max-regression=3"], &sides[..]].concat()).code
    };
    assert_eq!(code(0.0, true), Some(0));
    assert_eq!(code(7.0, true), Some(1));
    assert_eq!(
        code(7.5, false),
        Some(2),
        "runs taken in blocks are not pairs"
    );
    // The same runs with both series in each file.
    let both = |i: u32| {
        let of = |series, level| Series(series, "throughput", "MB/s", Better::Higher, level);
        runs.write(
            &format!("both-{i}"),
            5,
            &[of("old", 100.0), of("new", 93.0)],
        )
    };
    let files: Vec<String> = (0..10).map(both).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let names = ["--base-series", "old", "--new-series", "new", "--new"];
    let ran = run([&["lab", "gate", "--max-regression=3"], &names[..], &files].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.text());
    assert!(ran.text().contains("10 pairs of runs"), "{}", ran.text());
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
        "not a result of 'lab run'",
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
    // A line that was torn when the run was killed is dropped, with a note.
    let torn = runs.path("torn");
    std::fs::write(&torn, &text[..text.len() - 40]).unwrap();
    let ran = run(["lab", "gate", &base, &torn, "--max-regression=5"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.text().contains("is incomplete"), "{}", ran.text());
    // A file that lacks newer fields of the machine can still be read.
    let old = runs.path("old");
    std::fs::write(&old, text.replace("\"wake_up_us\":20.0", "\"once\":1")).unwrap();
    let ran = run(["lab", "gate", &base, &old, "--max-regression=5"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}
