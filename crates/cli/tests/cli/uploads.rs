//! `overlay upload`, and images that were uploaded: to a server of the tests that does what servers and
//! networks do wrong, and to a real one (versitygw). The judges of what is there are `overlay commit`, whose
//! output others check, and `e2fsck -fn`.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use throughline_testkit::bucket::{Bucket, Step, Wrong};

use crate::common::{Ran, fsck, good, noise, throughline, tools_are_missing};
use crate::s3::S3;

/// A bucket with a base, and a machine with an overlay over it.
struct Machine {
    bucket: Bucket,
    folder: tempfile::TempDir,
}

const BASE: &str = "s3://bucket/images/base.img";

impl Machine {
    /// `None` if a tool is missing.
    fn new(size: &str) -> Option<Machine> {
        if tools_are_missing() {
            return None;
        }
        let machine = Machine {
            bucket: Bucket::new(),
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(machine.path("tree")).unwrap();
        fs::write(machine.path("tree/kept"), noise(9 << 20, 1)).unwrap();
        fs::write(machine.path("tree/changed"), "old\n").unwrap();
        let (tree, base) = (machine.text("tree"), machine.text("base.img"));
        machine.good(&["pack", "-q", "--size", size, &tree, "-o", &base]);
        let bytes = fs::read(&base).unwrap();
        machine.bucket.put("images/base.img", bytes);
        fs::write(machine.path("new"), "new\n").unwrap();
        machine.write("over.qcow2", BASE, "changed");
        Some(machine)
    }

    /// Writes `new` through an overlay.
    fn write(&self, overlay: &str, base: &str, name: &str) {
        let (overlay, new) = (self.text(overlay), self.text("new"));
        let place = format!("{base}:/{name}");
        let backing = "s3://bucket/images";
        self.good(&[
            "cp",
            "--backing",
            backing,
            "--overlay",
            &overlay,
            &new,
            &place,
        ]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = throughline();
        command.args(arguments).envs(self.bucket.environment());
        command.env("THROUGHLINE_CACHE", self.path("cache"));
        command.env("THROUGHLINE_OBJECT_TIMEOUT", "2");
        command
    }

    #[track_caller]
    fn good(&self, arguments: &[&str]) -> Ran {
        good(&mut self.command(arguments))
    }

    #[track_caller]
    fn fails(&self, arguments: &[&str]) -> String {
        let ran = Ran::from(self.command(arguments).output().unwrap());
        assert_eq!(
            ran.code,
            Some(1),
            "{arguments:?}: {}{}",
            ran.text(),
            ran.stderr
        );
        ran.stderr
    }

    /// The arguments of an upload of the overlay.
    fn upload<'a>(&self, overlay: &'a str, flags: &[&'a str], to: &'a str) -> Vec<&'a str> {
        let mut arguments = vec!["overlay", "upload", "--backing", BASE];
        arguments.extend(flags);
        arguments.extend([overlay, to]);
        arguments
    }

    fn assert_absent(&self, key: &str) {
        assert!(self.bucket.bytes(key).is_none(), "half an object is there");
        assert_eq!(self.bucket.open_uploads(), 0, "it was not aborted");
    }
}

#[test]
fn an_uploaded_overlay_is_an_image_and_a_base_elsewhere() {
    let Some(machine) = Machine::new("40M") else {
        return;
    };
    let (over, mine) = (machine.text("over.qcow2"), machine.text("mine.qcow2"));
    let said = machine.good(&machine.upload(&over, &[], "s3://bucket/images/over"));
    assert_eq!(said.stderr, "");
    let there = machine.bucket.bytes("images/over").unwrap();
    assert!(*there == fs::read(&over).unwrap(), "it is not the overlay");
    fs::remove_file(&over).unwrap();

    // Read, by the objects alone. They are opened only with leave, for one or for a folder.
    let place = "s3://bucket/images/over:/changed";
    for backing in [
        BASE,
        "s3://bucket/images",
        "s3://bucket/images/",
        "s3://bucket",
    ] {
        let cat = machine.good(&["cat", "--backing", backing, place]);
        assert_eq!(cat.text(), "new\n");
    }
    for backing in ["s3://bucket/imag", "s3://bucket/images/base", "/"] {
        let said = machine.fails(&["cat", "--backing", backing, place]);
        assert!(
            said.contains("not allowed") && said.contains(BASE),
            "{said}"
        );
    }
    let said = machine.fails(&["rm", "--backing", BASE, place]);
    assert!(said.contains("only read"), "{said}");

    // And as a base.
    machine.write("mine.qcow2", "s3://bucket/images/over", "added");
    let diff = ["overlay", "diff", "--backing", "s3://bucket/images", &mine];
    assert_eq!(machine.good(&diff).text(), "A /added\n");
    let with = ["--backing", "s3://bucket/images", "--overlay", &mine];
    let kept = machine.good(&[
        "cat",
        with[0],
        with[1],
        with[2],
        with[3],
        "s3://bucket/images/over:/kept",
    ]);
    assert!(kept.stdout == noise(9 << 20, 1));
}

/// What an image names is opened only with leave, also to see that it is not the target.
#[test]
fn an_upload_asks_for_nothing_that_an_image_names() {
    let Some(machine) = Machine::new("40M") else {
        return;
    };
    let (middle, top) = (machine.text("over.qcow2"), machine.text("top.qcow2"));
    let make = [
        "create", "-q", "-f", "qcow2", "-u", "-F", "qcow2", "-b", &middle, &top, "40M",
    ];
    if !Command::new("qemu-img")
        .args(make)
        .status()
        .is_ok_and(|status| status.success())
    {
        throughline_testkit::missing!("qemu-img is not installed (qemu-utils)");
        return;
    }
    machine.bucket.take_count(Step::Get);
    machine.good(&["overlay", "upload", &top, "s3://bucket/images/top"]);
    assert_eq!(machine.bucket.take_count(Step::Get), 0);
    // Without a base that cannot be seen, any object may be replaced; with leave, this one is not.
    let mut over_base = vec!["overlay", "upload", "--force", "--backing", BASE];
    over_base.extend(["--backing", &middle, &top, BASE]);
    let said = machine.fails(&over_base);
    assert!(said.contains("it is a base of the overlay"), "{said}");
}

#[test]
fn a_flattened_overlay_is_a_new_base() {
    let Some(machine) = Machine::new("40M") else {
        return;
    };
    let (over, new) = (machine.text("over.qcow2"), machine.text("new.img"));
    machine.good(&machine.upload(&over, &["--flatten"], "s3://bucket/images/flat.img"));
    let parts = machine.bucket.take_count(Step::Part);
    assert_eq!(parts, 5, "40 MiB in parts of 8 MiB");
    assert!(machine.bucket.most_bytes() <= 8 << 20);
    machine.good(&["overlay", "commit", "--backing", BASE, &over, &new]);
    let there = machine.bucket.bytes("images/flat.img").unwrap();
    assert!(
        *there == fs::read(&new).unwrap(),
        "it is not what the overlay shows"
    );
    fsck(new.as_ref());
    assert_eq!(
        machine
            .good(&["cat", "s3://bucket/images/flat.img:/changed"])
            .text(),
        "new\n"
    );

    // The overlay is laid over it, and back: what it shows stays the same.
    let backing = ["--backing", "s3://bucket/images"];
    for (base, changes) in [("s3://bucket/images/flat.img", ""), (BASE, "M /changed\n")] {
        machine.good(&["overlay", "rebase", backing[0], backing[1], &over, base]);
        let diff = machine.good(&["overlay", "diff", backing[0], backing[1], &over]);
        assert_eq!(diff.text(), changes, "{base}");
        let again = machine.text("again.img");
        machine.good(&["overlay", "commit", backing[0], backing[1], &over, &again]);
        assert!(
            fs::read(&again).unwrap() == fs::read(&new).unwrap(),
            "{base}"
        );
        fs::remove_file(again).unwrap();
    }
    // It fits this version only.
    machine.good(&[
        "overlay",
        "rebase",
        backing[0],
        backing[1],
        &over,
        "s3://bucket/images/flat.img",
    ]);
    machine
        .bucket
        .put("images/flat.img", fs::read(&new).unwrap());
    let said = machine.fails(&["overlay", "diff", backing[0], backing[1], &over]);
    assert!(said.contains("replaced"), "{said}");
}

/// As any image that is only read.
#[test]
fn an_uploaded_overlay_is_mounted() {
    if crate::mount::skipped() {
        return;
    }
    let Some(machine) = Machine::new("20M") else {
        return;
    };
    let (over, point) = (machine.text("over.qcow2"), machine.text("point"));
    machine.good(&machine.upload(&over, &[], "s3://bucket/over"));
    fs::create_dir(&point).unwrap();
    for (option, value) in [
        ("--backing", BASE.to_owned()),
        ("-o", format!("backing={BASE}")),
    ] {
        machine.good(&["mount", option, &value, "s3://bucket/over", &point]);
        let read = fs::read(machine.path("point/changed"));
        let kept = fs::read(machine.path("point/kept"));
        let refused = fs::write(machine.path("point/new"), "");
        machine.good(&["umount", &point]);
        assert_eq!(read.unwrap(), b"new\n");
        assert!(kept.unwrap() == noise(9 << 20, 1));
        assert!(refused.is_err());
    }
}

/// Requests that go wrong for a while are repeated.
#[test]
fn faults_during_an_upload() {
    let Some(machine) = Machine::new("20M") else {
        return;
    };
    let over = machine.text("over.qcow2");
    machine.good(&[
        "overlay",
        "commit",
        "--backing",
        BASE,
        &over,
        &machine.text("flat.img"),
    ]);
    let flat = fs::read(machine.path("flat.img")).unwrap();
    for (number, (step, wrong)) in [
        (Step::Head, vec![Wrong::Status(503), Wrong::Closed]),
        (Step::Begin, vec![Wrong::Status(503), Wrong::Closed]),
        (
            Step::Part,
            vec![Wrong::Status(503), Wrong::Status(500), Wrong::Status(429)],
        ),
        (Step::Part, vec![Wrong::Closed, Wrong::Lost, Wrong::Closed]),
        (Step::Complete, vec![Wrong::Status(503), Wrong::Closed]),
        // Carried out, but the reply is lost: the upload is recognized.
        (Step::Complete, vec![Wrong::Lost]),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("up/{number}");
        machine.bucket.fail_next(step, wrong.clone());
        machine.good(&machine.upload(&over, &["--flatten"], &format!("s3://bucket/{key}")));
        let there = machine.bucket.bytes(&key).unwrap();
        assert!(*there == flat, "{step:?} {wrong:?}");
        assert_eq!(machine.bucket.open_uploads(), 0, "{step:?} {wrong:?}");
    }
}

#[test]
fn what_fails_for_good_leaves_nothing() {
    if throughline_testkit::tier::is_too_long("waits between attempts") {
        return;
    }
    let Some(machine) = Machine::new("20M") else {
        return;
    };
    let over = machine.text("over.qcow2");
    for (step, wrong, word) in [
        (Step::Head, Wrong::Status(400), "status"),
        (Step::Begin, Wrong::Status(403), "denies access"),
        (Step::Begin, Wrong::Status(404), "no such bucket"),
        (Step::Part, Wrong::Status(403), "denies access"),
        (Step::Part, Wrong::Status(404), "aborted by somebody else"),
        (Step::Part, Wrong::Silent, "no good answer"),
        (Step::Part, Wrong::Status(503), "no good answer"),
        (Step::Complete, Wrong::Status(400), "status"),
        (Step::Complete, Wrong::Status(503), "no good answer"),
    ] {
        machine.bucket.fail_next(step, vec![wrong; 50]);
        let said = machine.fails(&machine.upload(&over, &[], "s3://bucket/up"));
        assert!(said.contains(word), "{step:?} {wrong:?}: {said}");
        assert!(!said.contains("password"), "{said}");
        machine.assert_absent("up");
        machine.bucket.forget_faults();
    }
    for (to, word) in [
        ("https://127.0.0.1:1/up", "only s3://"),
        ("/tmp/none/up", "s3://BUCKET/KEY"),
        (BASE, "a base of the overlay"),
    ] {
        let said = machine.fails(&machine.upload(&over, &["--force"], to));
        assert!(said.contains(word), "{to}: {said}");
    }
    let base = machine.text("base.img");
    let said = machine.fails(&machine.upload(&base, &[], "s3://bucket/up"));
    assert!(said.contains("not a qcow2 image"), "{said}");
}

#[test]
fn an_object_that_is_there_is_not_replaced() {
    let Some(machine) = Machine::new("20M") else {
        return;
    };
    let over = machine.text("over.qcow2");
    let up = machine.upload(&over, &[], "s3://bucket/up");
    let mine = || machine.bucket.bytes("up").unwrap();
    machine.bucket.put("up", b"first".to_vec());
    let said = machine.fails(&up);
    assert!(said.contains("--force"), "{said}");
    assert_eq!(
        machine.bucket.take_count(Step::Begin),
        0,
        "nothing was sent"
    );
    // It was made after it was looked for: the store tells. The first one is the base of the overlay.
    machine
        .bucket
        .fail_next(Step::Head, [Wrong::Status(404); 3]);
    let said = machine.fails(&up);
    assert!(said.contains("--force"), "{said}");
    assert_eq!(machine.bucket.take_count(Step::Complete), 1);
    assert_eq!(
        (&**mine(), machine.bucket.open_uploads()),
        (&b"first"[..], 0)
    );
    machine.good(&machine.upload(&over, &["--force"], "s3://bucket/up"));
    assert!(*mine() == fs::read(&over).unwrap());
}

/// Begins an upload whose second part gets no answer.
fn hanging(machine: &Machine) -> Child {
    let over = machine.text("over.qcow2");
    machine.bucket.take_count(Step::Part);
    machine.bucket.fail_next(Step::Part, vec![Wrong::Silent; 9]);
    let arguments = machine.upload(&over, &["--flatten"], "s3://bucket/up");
    let mut command = machine.command(&arguments);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    machine.bucket.wait_for(Step::Part, 2);
    child
}

#[test]
fn an_interrupted_upload_is_aborted_and_a_killed_one_is_not_seen() {
    let Some(machine) = Machine::new("40M") else {
        return;
    };
    let child = hanging(&machine);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    machine.assert_absent("up");
    machine.bucket.forget_faults();

    let mut child = hanging(&machine);
    child.kill().unwrap();
    child.wait().unwrap();
    machine.bucket.forget_faults();
    assert!(
        machine.bucket.bytes("up").is_none(),
        "half an object is there"
    );
    // Its parts are in nobody's way.
    let over = machine.text("over.qcow2");
    machine.good(&machine.upload(&over, &["--flatten"], "s3://bucket/up"));
    assert_eq!(machine.bucket.bytes("up").unwrap().len(), 40 << 20);
}

/// An overlay of a file is read where the file is: a note says so.
#[test]
fn an_overlay_of_a_file_is_uploaded_with_a_note() {
    let Some(machine) = Machine::new("20M") else {
        return;
    };
    let (base, over) = (machine.text("base.img"), machine.text("local.qcow2"));
    let place = format!("{base}:/changed");
    machine.good(&["cp", "--overlay", &over, &machine.text("new"), &place]);
    let said = machine.good(&["overlay", "upload", &over, "s3://bucket/images/local.qcow2"]);
    assert!(said.stderr.contains("--flatten"), "{}", said.stderr);
    // A name without a folder means the object beside it.
    let place = "s3://bucket/images/local.qcow2:/changed";
    assert_eq!(
        machine.good(&["cat", "--backing", BASE, place]).text(),
        "new\n"
    );
}

#[test]
fn a_real_server_takes_uploads() {
    let Some(machine) = Machine::new("40M") else {
        return;
    };
    let Some(server) = S3::new() else {
        return;
    };
    let cache = machine.path("cache");
    fs::copy(machine.path("base.img"), server.path("base.img")).unwrap();
    let run = |arguments: &[&str]| good(&mut server.command(&cache, arguments)).text();
    let over = machine.text("real.qcow2");
    let base = "s3://bucket/base.img";
    run(&[
        "cp",
        "--overlay",
        &over,
        &machine.text("new"),
        "s3://bucket/base.img:/changed",
    ]);
    run(&["overlay", "upload", &over, "s3://bucket/over.qcow2"]);
    assert!(fs::read(server.path("over.qcow2")).unwrap() == fs::read(&over).unwrap());
    let flat = [
        "overlay",
        "upload",
        "--flatten",
        "--backing",
        base,
        &over,
        "s3://bucket/flat.img",
    ];
    run(&flat);
    fsck(&server.path("flat.img"));
    for place in [
        "s3://bucket/over.qcow2:/changed",
        "s3://bucket/flat.img:/changed",
    ] {
        assert_eq!(run(&["cat", "--backing", base, place]), "new\n");
    }
    let ran = Ran::from(server.command(&cache, &flat).output().unwrap());
    assert!(
        ran.code == Some(1) && ran.stderr.contains("--force"),
        "{}",
        ran.stderr
    );
    run(&[
        "overlay",
        "upload",
        "--force",
        &over,
        "s3://bucket/flat.img",
    ]);
    assert!(fs::read(server.path("flat.img")).unwrap() == fs::read(&over).unwrap());
}
