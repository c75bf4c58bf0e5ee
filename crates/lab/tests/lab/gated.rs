//! `lab run`, `lab compare` and `lab gate` with commands and targets measured now, and the gate's rate of
//! false alarms.

use throughline_lab::record::{Line, Record};

use crate::common::{Ran, fails, run};

/// A directory with commands.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Bench {
        Bench(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a lab command on targets; the record is `run.jsonl`.
    fn lab(&self, command: &[&str]) -> Ran {
        let out = self.path("run.jsonl");
        let fixed = ["-q", "lab"].into_iter();
        run(fixed.chain(command.iter().copied()).chain(["--out", &out]))
    }

    fn record(&self) -> Record {
        Record::read(self.path("run.jsonl").as_ref()).unwrap()
    }
}

fn ended(record: &Record) -> &str {
    match record.lines.last() {
        Some(Line::End { why }) => why,
        other => panic!("no end: {other:?}"),
    }
}

#[test]
fn two_builds_are_gated_by_what_they_print_or_take() {
    let bench = Bench::new();
    for (build, speed) in [("old", 100), ("new", 90)] {
        std::fs::create_dir(bench.path(build)).unwrap();
        // Noise that differs for each process.
        let text = format!("echo warming up\nexpr {speed}000 + $$ % 200\n");
        std::fs::write(bench.path(&format!("{build}/bench")), text).unwrap();
    }
    let target = |build: &str| format!("cmd:sh bench?name={build}&dir={}", bench.path(build));
    let (old, new) = (target("old"), target("new"));
    let gate = |base: &str, new: &str, limit: &str| {
        bench.lab(&[
            "gate",
            base,
            new,
            "--figure=higher",
            "--max-regression",
            limit,
        ])
    };
    let ran = gate(&old, &new, "3");
    assert_eq!(ran.code, Some(1), "{}{}", ran.text(), ran.stderr);
    let said = ran.text();
    let (_, worse) = said
        .split_once("figure of new: regression: worse by ")
        .expect("the loss");
    let (percent, _) = worse.split_once(' ').expect("a number");
    // Between 90000 / 100199 and 90199 / 100000.
    let percent: f64 = percent.parse().expect("a number");
    assert!((9.80..=10.18).contains(&percent), "{said}");
    assert_eq!(ended(&bench.record()), "certain");
    assert_eq!(gate(&old, &new, "15").code, Some(0));
    assert_eq!(gate(&new, &old, "3").code, Some(0), "better is fine");
    let again = format!("{old}&name=again").replacen("name=old&", "", 1);
    assert_eq!(gate(&old, &again, "3").code, Some(0), "the same");
    // The file gives the same result as the run, from the same pairs.
    let ran = bench.lab(&["compare", &old, &new, "--figure", "higher", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (live, record) = (ran.json(), bench.record());
    assert_eq!(record.head.max_rounds, Some(1000));
    let kept = run([
        "lab",
        "compare",
        "--json",
        &bench.path("run.jsonl"),
        "--base-series=old",
        "--new-series=new",
        "--quantity=figure",
    ]);
    assert_eq!(
        live["rows"][0]["judgement"],
        kept.json()["rows"][0]["judgement"]
    );
    assert_eq!(live["rows"][0]["judgement"]["verdict"], "slower");
}

#[test]
fn time_is_measured_where_nothing_is_printed_and_the_order_is_drawn() {
    let bench = Bench::new();
    let ran = bench.lab(&[
        "gate",
        "cmd:true",
        "cmd:sleep 0.2",
        "--max-regression=3",
        "--rounds=30",
    ]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.text(), ran.stderr);
    let ran = bench.lab(&[
        "run",
        "--target=cmd:true",
        "--target=cmd:true",
        "--rounds=40",
        "--seed=5",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let record = bench.record();
    assert_eq!(ended(&record), "rounds");
    let order = record.head.settings["order of targets"].as_str().unwrap();
    assert!(order.ends_with("seed 5"), "{order}");
    let samples = record.lines.iter().filter_map(|line| match line {
        Line::Sample(sample) if sample.quantity == "time" && sample.round > 0 => Some(sample),
        _ => None,
    });
    let firsts: Vec<&str> = samples
        .step_by(2)
        .map(|sample| sample.series.as_str())
        .collect();
    let first = firsts
        .iter()
        .filter(|series| **series == "cmd:true")
        .count();
    assert_eq!(firsts.len(), 40);
    assert!(
        (8..=32).contains(&first),
        "{first} of 40 rounds begin with the first target"
    );
}

#[test]
fn a_failed_measurement_is_not_a_verdict_of_the_gate() {
    let bench = Bench::new();
    let gate = |sides: &[&str], code, expected: &str| {
        let out = bench.path("run.jsonl");
        let args = ["lab", "gate", "--max-regression=3", "--out", &out];
        fails(args.iter().chain(sides), code, expected);
    };
    gate(&["cmd:true", "cmd:exit 7"], 65, "ended with 7");
    gate(
        &["cmd:true", "cmd:true", "--figure=lower"],
        65,
        "printed nothing",
    );
    gate(
        &["cmd:true", "cmd:true?dir=/no/such"],
        65,
        "no such directory",
    );
    gate(&["cmd:true", "dir:."], 64, "needs a job file");
    gate(&["cmd:true"], 64, "a second one");
    gate(&["cmd:true", "cmd:"], 64, "needs a command");
    gate(
        &["cmd:true", "cmd:true", "--skip=3"],
        64,
        "apply to files only",
    );
    gate(
        &["cmd:true", "cmd:true", "--quantity=x", "--rounds=9"],
        65,
        "there are cpu; time",
    );
    let limit = [
        "lab",
        "gate",
        "cmd:true",
        "cmd:true",
        "--limit=cpu=3",
        "--quantity=time",
    ];
    fails(limit, 64, "no limit is given for 'time'");
    fails(["lab", "compare", "dir:.", "dir:."], 2, "needs a job file");
    let work = bench.path("work.fio");
    std::fs::write(&work, "[a]\nrw=randread\nsize=64k\n").unwrap();
    fails(["lab", "compare", "--workload", &work, "dir:."], 2, "<NEW>");
    fails(
        ["lab", "compare", "--workload", &work, "dir:.", "nothing"],
        2,
        "KIND:WHAT",
    );
}

#[test]
fn two_targets_are_measured_until_it_is_certain() {
    if !throughline_testkit::program::has(&["fio"]) {
        return;
    }
    let bench = Bench::new();
    let work = bench.path("work.fio");
    std::fs::write(&work, "[a]\nrw=read\nsize=256k\n").unwrap();
    // A threshold larger than any difference between two reads of the same file.
    let wide = ["--threshold=1e12", "--dir", &bench.path("."), "--json"];
    let args = [
        "compare",
        "--workload",
        &work,
        "dir:/tmp",
        "dir:/tmp?name=again",
    ];
    let ran = bench.lab(&[&args[..], &wide].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(
        ran.json()["rows"][0]["judgement"]["verdict"],
        "no-difference"
    );
    assert_eq!(ended(&bench.record()), "certain");
}

/// How often a gate of identical commands raises an alarm on this machine, and whether it finds a loop that
/// does 6 % more work. Takes 20 minutes on a quiet machine:
/// `THROUGHLINE_SOAK=1 cargo test -p throughline-lab --test lab equal_commands -- --nocapture`.
///
/// The limit is 0, exactly the change of identical code, so only the statistics prevent an alarm. Without
/// `THROUGHLINE_SOAK`, few gates are run, and one must find a loop that does three times the work.
#[test]
fn equal_commands_raise_no_alarm_and_five_percent_more_is_found() {
    let soak = std::env::var_os("THROUGHLINE_SOAK").is_some();
    let gates = if soak { 300 } else { 6 };
    let bench = Bench::new();
    let work = |units: u32, name: &str| {
        let line =
            "awk -v n=$n \"BEGIN { for (i = 0; i < n; i++) s += i % 7; print n }\" >/dev/null";
        format!("cmd:n={units}; {line}?name={name}")
    };
    let codes = |new: u32, quantity: &str, rounds: &str, gates: u32| {
        let (base, new) = (work(40_000, "base"), work(new, "new"));
        let mut codes = [0; 3];
        for _ in 0..gates {
            let asked = [
                "--quantity",
                quantity,
                "--rounds",
                rounds,
                "--max-regression=0",
            ];
            let ran = bench.lab(&[&["gate", &base, &new], &asked[..]].concat());
            let code = ran.code.and_then(|code| usize::try_from(code).ok());
            let place = code.and_then(|code| codes.get_mut(code));
            *place.unwrap_or_else(|| panic!("{:?}: {}", ran.code, ran.stderr)) += 1;
        }
        let [fine, regression, open] = codes;
        println!(
            "{gates} gates, {quantity}: {regression} regressions, {fine} fine, {open} without enough evidence"
        );
        codes
    };
    for quantity in ["time", "cpu"] {
        let [_, alarms, _] = codes(40_000, quantity, if soak { "60" } else { "12" }, gates);
        assert!(alarms * 100 <= gates.max(100), "{alarms} of {gates}");
    }
    // With 42500, the loop does 6 % more work, the whole process less than 5 % more. Processor time depends
    // little on the load of the machine.
    let (work, rounds, planted, least) = match soak {
        true => (42_500, "400", 30, 27),
        false => (120_000, "60", 1, 1),
    };
    let [_, found, _] = codes(work, "cpu", rounds, planted);
    assert!(found >= least, "{found} of {planted}");
}
