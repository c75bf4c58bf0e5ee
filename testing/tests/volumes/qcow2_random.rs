//! Random operations on volumes in qcow2 images, over sizes of clusters, versions and chains of backing
//! files. The model, `qemu-img check`, `compare` and `convert`, and `e2fsck -fn` judge; a backing file never
//! changes.
//!
//! The fast tests take a sample of the matrix, `THROUGHLINE_SOAK=1` all of it with longer runs.

use crate::oracle;

use std::fs;
use std::path::PathBuf;

use oracle::image::{Scratch, Shape, shape, tools};
use oracle::seeds::soak;
use oracle::subject::VolumeSubject;
use throughline::internal::OpenImages;
use throughline::{Backing, ImageOptions, OpenOptions, VolumeOptions};
use throughline_device::LockMode;
use throughline_image::{DiskOptions, ReadAt, VirtualDisk, no_objects};
use throughline_testing::model::{Driver, Profile};
use throughline_testkit::program::{self, has};
use throughline_testkit::{e2fs, seed};

const SHAPES: [Shape; 3] = [
    shape("ext4 4k", 4096, true, "-t ext4"),
    shape("ext4 1k", 1024, true, "-t ext4"),
    shape("ext2 4k", 4096, false, "-t ext2"),
];

/// What the image is laid over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Nothing,
    /// Two images, one over the other, each worked on before.
    Chain,
    /// An image with compressed clusters.
    Compressed,
    /// One with parts of clusters, which is only read.
    Subclusters,
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug)]
struct Case {
    cluster: &'static str,
    compat: &'static str,
    over: Over,
}

impl Case {
    fn all() -> Vec<Case> {
        let mut all = Vec::new();
        for cluster in ["4k", "64k", "2M"] {
            for compat in ["0.10", "1.1"] {
                for over in [Over::Nothing, Over::Chain, Over::Compressed] {
                    all.push(Case {
                        cluster,
                        compat,
                        over,
                    });
                }
            }
        }
        all
    }
}

struct Place<'a> {
    scratch: &'a Scratch,
    at: String,
}

impl Place<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.scratch.dir().join(name)
    }

    #[track_caller]
    fn qemu(&self, arguments: &[&str]) {
        let mut command = program::command("qemu-img");
        let ran = command.current_dir(self.scratch.dir()).args(arguments);
        let ran = ran.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        let printed = String::from_utf8_lossy(&ran.stdout);
        assert!(
            ran.status.success(),
            "{}: qemu-img {arguments:?}: {said}{printed}",
            self.at
        );
    }

    /// The bytes of the disk in an image, as we read them.
    fn ours(&self, name: &str) -> Vec<u8> {
        let options = DiskOptions {
            write: false,
            lock: LockMode::Shared,
            backing: Backing::none().allow(self.scratch.dir()),
            objects: no_objects,
        };
        let disk = VirtualDisk::open(&self.path(name), &options).unwrap();
        let mut bytes = vec![0; usize::try_from(disk.len_bytes().unwrap()).unwrap()];
        disk.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Works on the volume in an image, beside the model.
    fn work(&self, name: &str, driver: &mut Driver, operations: u32) -> Result<(), String> {
        let named = |what: String| format!("{}, {name}: {what}", self.at);
        let mut image = ImageOptions::new();
        image.backing(Backing::none().allow(self.scratch.dir()));
        let mut options = OpenOptions::new();
        // Freed blocks are discarded, and so clusters are.
        let volume = VolumeOptions::new().discard(true).clone();
        options.write(true).image(&image).volume(&volume);
        let device = options.virtual_device(&self.path(name), true);
        let device = device.map_err(|error| named(error.to_string()))?;
        let device = device.ok_or_else(|| named("it is no qcow2 image".to_owned()))?;
        let mut subject = VolumeSubject::open_with(device, &options)
            .map_err(|refusal| named(format!("open: {refusal:?}")))?;
        driver.compare(&mut subject).map_err(named)?;
        driver.run(&mut subject, operations).map_err(named)?;
        driver.compare(&mut subject).map_err(named)?;
        driver.tree.close_all_kept();
        subject.close_all_kept();
        subject.volume().sync().unwrap();
        subject.volume().trim(0..u64::MAX, 0).unwrap();
        let closed = subject.close();
        closed.map_err(|refusal| named(format!("close: {refusal:?}")))
    }

    /// What others find in an image, and find in the same disk elsewhere.
    fn judge(&self, name: &str) {
        self.qemu(&["check", "-q", name]);
        let ours = self.ours(name);
        fs::write(self.path("ours.raw"), &ours).unwrap();
        self.qemu(&["compare", "-q", "-F", "qcow2", "ours.raw", name]);
        self.qemu(&["convert", "-O", "raw", name, "theirs.raw"]);
        let is_same = fs::read(self.path("theirs.raw")).unwrap() == ours;
        assert!(is_same, "{}: {name} as qemu-img reads it", self.at);
        for options in ["cluster_size=4k", "cluster_size=2M,compat=0.10"] {
            self.qemu(&[
                "convert",
                "-O",
                "qcow2",
                "-o",
                options,
                name,
                "theirs.qcow2",
            ]);
            assert!(
                self.ours("theirs.qcow2") == ours,
                "{}: {name} as converted with {options}",
                self.at
            );
        }
        e2fs::assert_clean_after(&self.path("ours.raw"), &self.at);
    }
}

fn run(case: Case, shape: &Shape, seed: u64, operations: u32) -> Result<(), String> {
    let scratch = Scratch::new();
    let raw = scratch.make(shape);
    let at = format!("seed {seed}, {}, {case:?}", shape.name);
    let place = Place {
        scratch: &scratch,
        at,
    };
    let profile = Profile::ALL[usize::try_from(seed).unwrap() % Profile::ALL.len()];
    let mut driver = Driver::new(seed, profile, shape.bounds());
    let options = format!("cluster_size={},compat={}", case.cluster, case.compat);
    let options = options.as_str();
    let raw = raw.file_name().unwrap().to_str().unwrap();
    let first = ["convert", "-O", "qcow2", "-o", options, raw, "first"];
    place.qemu(&first);
    place.work("first", &mut driver, operations)?;
    place.judge("first");
    let below: &[&str] = match case.over {
        Over::Nothing => return Ok(()),
        Over::Chain => &["first", "second"],
        Over::Compressed => {
            place.qemu(&[
                "convert", "-c", "-O", "qcow2", "-o", options, "first", "packed",
            ]);
            &["packed"]
        }
        Over::Subclusters => {
            let options = "cluster_size=64k,extended_l2=on";
            place.qemu(&["convert", "-O", "qcow2", "-o", options, "first", "parts"]);
            &["parts"]
        }
    };
    let above = ["second", "third"];
    for (base, image) in below.iter().zip(above) {
        over(&place, base, image, options);
        let before = fs::read(place.path(base)).unwrap();
        place.work(image, &mut driver, operations)?;
        place.judge(image);
        let is_same = fs::read(place.path(base)).unwrap() == before;
        assert!(is_same, "{}: {base} was written", place.at);
    }
    if case.over == Over::Compressed {
        // Also in place.
        place.qemu(&[
            "convert", "-c", "-O", "qcow2", "-o", options, "second", "again",
        ]);
        place.work("again", &mut driver, operations)?;
        place.judge("again");
    }
    Ok(())
}

fn over(place: &Place<'_>, base: &str, image: &str, options: &str) {
    let arguments = [
        "create", "-q", "-f", "qcow2", "-o", options, "-b", base, "-F", "qcow2", image,
    ];
    place.qemu(&arguments);
}

fn is_missing() -> bool {
    if !tools() {
        return true;
    }
    if has(&["qemu-img"]) {
        return false;
    }
    throughline_testkit::missing!("qemu-img is not installed (qemu-utils)");
    true
}

#[test]
fn images_of_all_shapes_hold_what_the_model_holds() {
    if is_missing() {
        return;
    }
    let (all, first) = (Case::all(), seed::of_run(0) % (1 << 40) * 1000);
    let (seeds, operations) = match soak() {
        true => (10 * all.len(), 800),
        // Each size of clusters and each kind, not each with each.
        false => (6, 150),
    };
    for number in 0..seeds {
        let stride = if soak() { 1 } else { 7 };
        let case = all[number * stride % all.len()];
        let seed = first + u64::try_from(number).unwrap();
        let done = run(case, &SHAPES[number % SHAPES.len()], seed, operations);
        done.unwrap_or_else(|what| panic!("{what}"));
    }
}

/// As a base, they are read.
#[test]
fn an_overlay_of_an_image_with_parts_of_clusters_holds_what_the_model_holds() {
    if is_missing() {
        return;
    }
    let case = Case {
        cluster: "64k",
        compat: "1.1",
        over: Over::Subclusters,
    };
    run(case, &SHAPES[0], seed::of_run(3) % (1 << 40), 150).unwrap_or_else(|what| panic!("{what}"));
}
