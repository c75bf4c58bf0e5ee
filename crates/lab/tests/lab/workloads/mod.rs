//! `lab run` with workload files: every kind of target, cleanup, and the record. Figures are not judged.

mod devices;
mod ended;
mod fio;
mod kept;

use std::path::Path;

use throughline_lab::record::{Line, Record};

use crate::common::{Image, fails, is_root, ok, run, str, tool, tools_are_missing};
use ended::assert_no_traces;

/// A directory with a workload file.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// A workload of 1 MiB, with additional lines.
    fn new(lines: &str) -> Bench {
        let bench = Bench {
            dir: tempfile::tempdir().unwrap(),
        };
        let text = format!("block = \"16k\"\nsize = \"1M\"\nrounds = 2\n{lines}\n");
        std::fs::write(bench.path("work.toml"), text).unwrap();
        std::fs::create_dir(bench.path("made")).unwrap();
        bench
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// The command line, with additional arguments.
    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let (file, out, made) = (
            self.path("work.toml"),
            self.path("out.jsonl"),
            self.path("made"),
        );
        let fixed = [
            "-q",
            "lab",
            "run",
            str(&file),
            "--out",
            str(&out),
            "--dir",
            str(&made),
        ];
        fixed.iter().chain(more).map(|&word| word.into()).collect()
    }

    /// Runs it and returns the record. Asserts that the directory for files is empty afterwards.
    #[track_caller]
    fn run(&self, more: &[&str]) -> Record {
        ok(self.arguments(more));
        self.assert_nothing_left();
        let record = Record::read(&self.path("out.jsonl")).unwrap();
        assert!(record.is_whole());
        record
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        let left: Vec<_> = std::fs::read_dir(self.path("made")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Asserts that both rounds of these series are recorded, with operations done.
#[track_caller]
fn assert_measured(record: &Record, series: &[&str]) {
    for series in series {
        let columns = record.columns();
        let throughput = columns
            .iter()
            .find(|c| c.series == *series && c.quantity == "throughput")
            .unwrap_or_else(|| panic!("no throughput of {series}"));
        assert_eq!(throughput.samples.len(), 2, "{series}");
        assert!(throughput.values().iter().all(|value| *value > 0.0));
        let counted = |line: &Line| match line {
            Line::Latencies(l) if l.series == *series && l.quantity != "sync" => {
                l.classes_us.iter().map(|(_, count)| count).sum::<u64>()
            }
            _ => 0,
        };
        let operations: u64 = record.lines.iter().map(counted).sum();
        assert_eq!(operations % 64, 0, "{series}: whole passes");
        assert!(
            operations >= 3 * 64,
            "{series}: {operations}, warm-up included"
        );
    }
}

#[test]
fn the_example_runs() {
    let bench = Bench::new("pattern = \"random-read\"");
    std::fs::write(bench.path("work.toml"), ok(["lab", "run", "--example"])).unwrap();
    let record = bench.run(&["--target", "memory:", "--rounds", "2"]);
    assert_eq!(record.head.name, "work");
    let columns = record.columns();
    assert!(
        columns
            .iter()
            .any(|c| c.quantity == "read, median" && c.samples.len() == 2)
    );
}

#[test]
fn memory_plain_files_and_directories() {
    for lines in [
        "pattern = \"sequential-write\"\nlayout = \"empty\"",
        "pattern = \"random-mixed\"\nthreads = 2\nqueue-depth = 4\nsync = \"every 8\"",
        "pattern = \"random-write\"\nthreads = 2\nfiles = \"per-thread\"\nsync = \"dsync\"",
        "pattern = \"sequential-read\"\nthreads = 4\noffset = \"1M\"",
    ] {
        let bench = Bench::new(lines);
        let (raw, file) = (bench.path("made/raw"), bench.path("made/file"));
        let (raw, file) = (
            format!("raw:{}?name=raw", str(&raw)),
            format!("file:{}?name=file", str(&file)),
        );
        let dir = format!("dir:{}?name=dir", str(&bench.path("made")));
        let record = bench.run(&[
            "--target", "memory:", "--target", &raw, "--target", &file, "--target", &dir,
            "--target", "memory:",
        ]);
        assert_measured(&record, &["memory:", "memory: #2", "raw", "file", "dir"]);
    }
}

#[test]
fn images_made_and_named() {
    if tools_are_missing() {
        return;
    }
    let bench = Bench::new("pattern = \"random-mixed\"\ncache = \"direct\"");
    let image = Image::ext4();
    ok(["mkdir", &image.at("/d")]);
    let (path, image_path) = (image.at("/d/file"), image.path());
    let (named, whole) = (
        format!("image:{path}?name=named"),
        format!("image:{}?name=whole", str(&image_path)),
    );
    let record = bench.run(&[
        "--target",
        "image:?name=new&mkfs=-O ^has_journal",
        "--target",
        &named,
    ]);
    assert_measured(&record, &["new", "named"]);
    let mkfs = record.head.settings["targets"]["new"]["mkfs"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(mkfs.ends_with("-O ^has_journal"), "{mkfs}");
    assert_measured(&bench.run(&["--target", &whole]), &["whole"]);
    // The files that it created are gone, and the image is unchanged.
    assert_eq!(ok(["ls", "-A", &image.at("/")]), "d\nlost+found\n");
    assert_eq!(ok(["ls", &image.at("/d")]), "");
    image.assert_clean();
}

#[test]
fn existing_files_are_not_overwritten_without_the_option() {
    if tools_are_missing() {
        return;
    }
    let bench = Bench::new("pattern = \"random-write\"");
    let (image, keep) = (Image::ext4(), bench.path("keep"));
    std::fs::write(&keep, vec![7; 2 << 20]).unwrap();
    ok(["cp", str(&keep), &image.at("/keep")]);
    let targets = [
        format!("raw:{}", str(&keep)),
        format!("file:{}", str(&keep)),
        format!("image:{}", image.at("/keep")),
    ];
    for target in &targets {
        let refused = bench.arguments(&["--target", target]);
        fails(&refused, 1, "--overwrite");
        assert_eq!(std::fs::read(&keep).unwrap(), vec![7; 2 << 20], "{target}");
    }
    assert_eq!(image.contents("/keep"), vec![7; 2 << 20]);
    for target in &targets {
        bench.run(&["--overwrite", "--target", target]);
    }
    assert_ne!(std::fs::read(&keep).unwrap(), vec![7; 2 << 20]);
    assert_ne!(image.contents("/keep"), vec![7; 2 << 20]);
    // For reading, an existing file needs no permission to overwrite; it must only be long enough.
    let reads = Bench::new("pattern = \"random-read\"");
    std::fs::write(&keep, vec![9; 2 << 20]).unwrap();
    for target in &targets {
        reads.run(&["--target", target]);
    }
    assert_eq!(std::fs::read(&keep).unwrap(), vec![9; 2 << 20]);
    let far = Bench::new("pattern = \"random-read\"\noffset = \"8M\"");
    fails(
        far.arguments(&["--target", &targets[0]]),
        1,
        "make size or offset smaller",
    );
    fails(
        far.arguments(&["--target", &targets[1]]),
        1,
        "make size or offset smaller",
    );
}

#[test]
fn file_systems_made_for_the_run() {
    if tools_are_missing() {
        return;
    }
    let bench = Bench::new("pattern = \"sequential-write\"\nlayout = \"empty\"");
    if !is_root() {
        fails(bench.arguments(&["--target", "make:ext4"]), 1, "root");
        throughline_testkit::missing!("loop devices need root");
        return;
    }
    let fuse = Path::new("/dev/fuse").exists();
    let there = |program: &str| tool(program).arg("-V").output().is_ok();
    let kinds = [
        ("make:xfs", there("mkfs.xfs")),
        ("make:btrfs", there("mkfs.btrfs")),
        ("mount:", fuse),
        ("fuse2fs:", fuse && there("fuse2fs")),
    ];
    let mut targets = vec!["make:ext4?name=made&mount=noatime"];
    let mut names = vec!["made"];
    for (target, possible) in kinds {
        match possible {
            true => {
                targets.push(target);
                names.push(target);
            }
            false => throughline_testkit::missing!("{target}: its program or /dev/fuse is missing"),
        }
    }
    let arguments: Vec<&str> = targets
        .iter()
        .flat_map(|target| ["--target", target])
        .collect();
    let record = bench.run(&arguments);
    assert_measured(&record, &names);
    assert_no_traces(bench.dir.path());
}

#[test]
fn wrong_files_and_targets_are_explained() {
    let bench = Bench::new("pattern = \"random-read\"\nspeed = 9");
    fails(
        bench.arguments(&["--target", "memory:"]),
        2,
        "unknown field `speed`",
    );
    let bench = Bench::new("pattern = \"random-read\"");
    fails(bench.arguments(&[]), 1, "--target");
    fails(bench.arguments(&["--target", "disk"]), 2, "KIND:WHAT");
    fails(
        bench.arguments(&["--target", "model:no-such"]),
        1,
        "there are",
    );
    fails(
        bench.arguments(&["--target", "raw:/no/such/place"]),
        1,
        "No such file",
    );
    fails(
        bench.arguments(&["--target", "file:/dev/null"]),
        1,
        "neither a plain file nor",
    );
    fails(
        bench.arguments(&["--target", "dir:/no/such/place"]),
        1,
        "No such file",
    );
    fails(["lab", "run", "no-such.toml"], 1, "No such file");
    let huge = Bench::new("pattern = \"random-read\"\noffset = \"1023P\"");
    fails(
        huge.arguments(&["--target", "memory:"]),
        1,
        "make size or offset smaller",
    );
    fails(huge.arguments(&["--target", "image:"]), 1, "no room");
    huge.assert_nothing_left();
}

#[test]
fn the_record_goes_to_standard_output_when_asked() {
    let bench = Bench::new("pattern = \"random-read\"");
    let file = bench.path("work.toml");
    let ran = run([
        "lab",
        "run",
        str(&file),
        "--target",
        "memory:",
        "--out",
        "-",
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let record = Record::from_lines(&*ran.stdout).unwrap();
    assert_measured(&record, &["memory:"]);
}
