//! rsync, tar, cp, find and dd copy trees in and out, with all file attributes. The other side is the
//! kernel's ext4.

use std::path::Path;

use throughline_testing::{DiskImage, Mount, View, program};

use crate::mount_programs::plant;
use crate::mount_programs::stage::{EXT4, EXT4_1K, INLINE_DATA, Stage, amount, call};

/// Both sides: ours with a tree `/tree`, and an empty ext4 mounted by the kernel.
struct Sides {
    ours: Stage,
    kernel: Mount,
    _image: DiskImage,
}

impl Sides {
    fn new(recipe: &'static str, programs: &[&str]) -> Option<Sides> {
        if !throughline_testkit::tier::as_root() {
            throughline_testkit::missing!("only root can copy owners and devices");
            return None;
        }
        let image = DiskImage::make(EXT4, "512m")?;
        let kernel = Mount::or_skip(image.path(), true)?;
        let ours = Stage::new(recipe, "512m", programs)?;
        plant::all_kinds(&ours.path("/tree"), amount(300, 20_000));
        Some(Sides {
            ours,
            kernel,
            _image: image,
        })
    }

    /// A directory on each side shows the same tree.
    #[track_caller]
    fn same(&self, ours: &str, theirs: &str) {
        let here = View::of(&self.ours.path(ours)).as_copy();
        let there = View::of(&self.kernel.path(theirs)).as_copy();
        here.assert_same(&there, &format!("{ours} on ours, {theirs} on the kernel's"));
    }

    fn finish(self) {
        self.kernel.close();
        self.ours.finish();
    }
}

fn name(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn rsync_both_ways() {
    let Some(sides) = Sides::new(EXT4, &["rsync"]) else {
        return;
    };
    let ours = sides.ours.path("/tree/");
    let theirs = sides.kernel.path("/tree/");
    let back = sides.ours.path("/back/");
    let archive = [
        "-aHAX",
        "--devices",
        "--specials",
        "--numeric-ids",
        "--sparse",
    ];
    for (from, to) in [(&ours, &theirs), (&theirs, &back)] {
        let (from, to) = (name(from), name(to));
        call("rsync", &[&archive[..], &[from, to]].concat());
        // Compared by checksums, nothing is left to copy.
        let again = ["-c", "--itemize-changes", "--dry-run", "--delete", from, to];
        let left = call("rsync", &[&archive[..], &again].concat());
        assert_eq!(left.stdout, "", "{from} to {to}");
    }
    sides.same("/tree", "/tree");
    sides.same("/back", "/tree");
    // A few files changed, one removed, all times changed: rsync writes into existing files.
    plant::files(&sides.kernel.path("/tree/files"), 2, 20);
    std::fs::remove_file(sides.kernel.path("/tree/names/empty")).expect("unlink");
    plant::times(&theirs, 2);
    let update = ["--inplace", "-c", "--delete", name(&theirs), name(&back)];
    call("rsync", &[&["-aHAX"], &update[..]].concat());
    sides.same("/back", "/tree");
    sides.finish();
}

#[test]
fn tar_both_ways() {
    let Some(sides) = Sides::new(INLINE_DATA, &["tar"]) else {
        return;
    };
    let archive = sides.ours.name("/archive.tar");
    let keep = [
        "--acls",
        "--xattrs",
        "--xattrs-include=*",
        "--sparse",
        "--format=posix",
    ];
    let root = sides.ours.name("/");
    let pack = ["-C", &root, "-cf", &archive, "tree"];
    call("tar", &[&keep[..], &pack].concat());
    for to in [sides.kernel.path("/"), sides.ours.path("/back")] {
        std::fs::create_dir_all(&to).expect("mkdir");
        let unpack = ["--numeric-owner", "-C", name(&to), "-xpf", &archive];
        call("tar", &[&keep[..], &unpack].concat());
        // The archive contains what the source tree contains.
        call(
            "tar",
            &[&keep[..], &["-C", name(&to), "-df", &archive]].concat(),
        );
    }
    // tar omits sockets.
    std::fs::remove_file(sides.ours.path("/tree/socket")).expect("unlink");
    sides.same("/tree", "/tree");
    sides.same("/back/tree", "/tree");
    sides.finish();
}

#[test]
fn cp_find_and_dd() {
    let Some(sides) = Sides::new(EXT4_1K, &["cp", "find", "dd"]) else {
        return;
    };
    let ours = sides.ours.name("/tree");
    let theirs = sides.kernel.path("/tree");
    let back = sides.ours.name("/back");
    call("cp", &["-a", &ours, name(&theirs)]);
    call("cp", &["-a", "--sparse=always", name(&theirs), &back]);
    sides.same("/tree", "/tree");
    sides.same("/back", "/tree");
    let listed = |root: &str| {
        let format = "%P %y %m %U %G %n %T@ %l\n";
        let found = call("find", &[root, "-mindepth", "1", "-printf", format]).stdout;
        let mut lines: Vec<String> = found.lines().map(str::to_owned).collect();
        // `find` lists in directory order.
        lines.sort();
        lines
    };
    assert_eq!(listed(&ours), listed(name(&theirs)));
    dd(&sides.ours);
    call("find", &[&back, "-depth", "-delete"]);
    assert!(!sides.ours.path("/back").exists());
    sides.finish();
}

/// Copies one file with dd in several ways, and compares with cmp.
fn dd(stage: &Stage) {
    let source = stage.sibling("source");
    let mut bytes = vec![0; (amount(8, 200) << 20) as usize + 12_345];
    fastrand::Rng::with_seed(9).fill(&mut bytes);
    std::fs::write(&source, &bytes).expect("a file");
    let from = format!("if={}", name(&source));
    let ways: [&[&str]; 5] = [
        &["bs=1M", "conv=fsync"],
        &["bs=64k", "oflag=sync"],
        &["bs=4k", "conv=sparse"],
        &["bs=1000003"],
        &["bs=512", "count=3000", "seek=77"],
    ];
    for (index, way) in ways.iter().enumerate() {
        let path = stage.name(&format!("/dd{index}"));
        call(
            "dd",
            &[way, &[&from[..], &format!("of={path}")][..]].concat(),
        );
        if index < 4 {
            call("cmp", &[name(&source), &path]);
        }
    }
    // Direct I/O from one file of ours to another, then compared: whole blocks only.
    let (first, second) = (stage.name("/dd0"), stage.name("/direct"));
    let (input, output) = (format!("if={first}"), format!("of={second}"));
    call(
        "dd",
        &[
            &input,
            &output,
            "bs=64k",
            "count=100",
            "iflag=direct",
            "oflag=direct",
        ],
    );
    call("cmp", &["-n", "6553600", &first, &second]);
}

#[test]
fn many_small_files_by_tar() {
    let Some(stage) = Stage::new(EXT4, "1g", &["tar"]) else {
        return;
    };
    let source = stage.sibling("source");
    plant::files(&source, 3, amount(1200, 60_000));
    plant::times(&source, 0);
    let archive = stage.sibling("archive.tar");
    call(
        "tar",
        &[
            "--format=posix",
            "-C",
            name(&source),
            "-cf",
            name(&archive),
            ".",
        ],
    );
    let to = stage.path("/untarred");
    std::fs::create_dir(&to).expect("mkdir");
    call("tar", &["-C", name(&to), "-xf", name(&archive)]);
    let (first, second) = (View::of(&source).as_copy(), View::of(&to).as_copy());
    first.assert_same(&second, "the source and what tar made");
    // And out again, through a pipe between two programs.
    let out = stage.sibling("out.tar");
    call("tar", &["-C", name(&to), "-cf", name(&out), "."]);
    call("tar", &["-C", name(&source), "-df", name(&out)]);
    stage.finish();
}

/// The programs that show and set attributes see the same on our mount as on the kernel's ext4.
#[test]
fn getfattr_and_getfacl() {
    if !program::has(&["getfattr", "getfacl"]) {
        return;
    }
    let Some(sides) = Sides::new(EXT4, &["rsync"]) else {
        return;
    };
    let (ours, theirs) = (sides.ours.path("/tree"), sides.kernel.path("/tree"));
    call(
        "rsync",
        &["-aHAX", &format!("{}/", name(&ours)), name(&theirs)],
    );
    let seen = |root: &Path| {
        let attributes = ["-R", "-h", "-d", "-m", "-", "--absolute-names", name(root)];
        let lists = ["-R", "-p", "-n", name(root)];
        let all = [
            call("getfattr", &attributes).stdout,
            call("getfacl", &lists).stdout,
        ];
        // In directory order, which may differ between the two.
        let mut parts: Vec<String> = all
            .iter()
            .flat_map(|text| text.split("\n\n"))
            .map(|part| part.replace(name(root), ""))
            .collect();
        parts.sort();
        parts
    };
    assert_eq!(seen(&ours), seen(&theirs));
    sides.finish();
}
