//! Random changes of names, attributes and flags, applied to our engine and to the kernel's ext4 in parallel:
//! both give the same answers, and then have the same attributes, with the same times changed. `e2fsck` finds
//! nothing.
//!
//! One seed per volume; many with `THROUGHLINE_SOAK=1`. Skipped without root and loop devices.

mod host;
mod op;
mod ours;
mod seen;

use std::path::Path;
use std::time::Duration;

use throughline::{AccessTimes, OpenOptions, VolumeOptions};
use throughline_testing::Mount;
use throughline_testkit::e2fs;

use host::Host;
use op::{Op, Player};
use ours::Ours;
use seen::World;

/// Name and arguments of `mke2fs`. Inodes are large enough for nanoseconds; otherwise a changed time could go
/// unnoticed.
const VOLUMES: [(&str, &str); 3] = [
    ("ext4", "-t ext4 -I 256 -b 4096"),
    ("ext3", "-t ext3 -I 256 -b 1024"),
    ("ext2", "-t ext2 -I 256 -b 4096"),
];

/// Operations per run.
const STEPS: u32 = 250;

/// The kernel's coarse clock ticks at least this often, so the times of two operations differ.
const TICK: Duration = Duration::from_millis(11);

#[test]
fn we_answer_as_the_kernel_does() {
    if !throughline_testkit::tier::as_root() || !Path::new("/dev/loop-control").exists() {
        throughline_testkit::missing!("root and loop devices are required");
        return;
    }
    // Both sides get the requested modes unchanged.
    rustix::process::umask(rustix::fs::Mode::empty());
    let soak = throughline_testkit::tier::soak();
    let seeds = match std::env::var("THROUGHLINE_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("THROUGHLINE_SEED is a number");
            seed..seed + 1
        }
        Err(_) if soak => 1..41,
        Err(_) => 1..2,
    };
    for seed in seeds {
        for (name, mke2fs) in VOLUMES {
            for strict in [false, true] {
                if !soak && strict == (name == "ext3") {
                    continue;
                }
                let what = format!("{name}, seed {seed}, strict {strict}");
                run(&what, mke2fs, seed, strict);
            }
        }
    }
}

fn run(what: &str, mke2fs: &str, seed: u64, strict: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let (kernels, own) = (folder.path().join("kernel"), folder.path().join("own"));
    let arguments: Vec<_> = mke2fs.split(' ').collect();
    assert!(e2fs::mke2fs(&kernels, "32M", &arguments));
    std::fs::copy(&kernels, &own).expect("a copy");
    let options = if strict {
        "loop,strictatime"
    } else {
        "loop,relatime"
    };
    let mount = match Mount::with_options(&kernels, options) {
        Ok(mount) => mount,
        Err(why) => {
            throughline_testkit::left_out!("the kernel does not mount {what}: {why}");
            return;
        }
    };
    let when = if strict {
        AccessTimes::Strict
    } else {
        AccessTimes::Relative
    };
    let volume = OpenOptions::new()
        .write(true)
        .volume(VolumeOptions::new().access_times(when))
        .open(&own)
        .expect("the volume opens");
    {
        let mut pair = Pair::new(Host::new(mount.root()), Ours::new(&volume));
        let extents = what.starts_with("ext4");
        let mut player = Player::new(seed, extents);
        for step in 0..STEPS {
            let op = player.next(&pair.last.0);
            pair.step(&op, &format!("{what}, step {step}: {op:?}"));
        }
        assert!(pair.wrong.is_empty(), "{}", pair.wrong.join("\n"));
    }
    mount.close();
    volume.close().expect("closed");
    for image in [&kernels, &own] {
        e2fs::assert_clean_after(image, what);
    }
    same_at_rest(&kernels, &own, what);
}

/// Both sides, and their last known states.
struct Pair<'a> {
    host: Host,
    ours: Ours<'a>,
    last: (World, World),
    /// Differences in times.
    wrong: Vec<String>,
}

impl<'a> Pair<'a> {
    fn new(host: Host, ours: Ours<'a>) -> Self {
        let last = (host.look(), ours.look());
        Self {
            host,
            ours,
            last,
            wrong: Vec::new(),
        }
    }

    fn step(&mut self, op: &Op, what: &str) {
        std::thread::sleep(TICK);
        let (theirs, ours) = (self.host.apply(op), self.ours.apply(op));
        assert_eq!(ours, theirs, "{what}: the answers differ (ours left)");
        let now = (self.host.look(), self.ours.look());
        seen::compare(&self.last, &now, what, &mut self.wrong);
        self.last = now;
    }
}

/// The content of the two images, both read by our engine: flags and projects of everything.
fn same_at_rest(kernels: &Path, own: &Path, what: &str) {
    let worlds = [kernels, own].map(|image| {
        let volume = OpenOptions::new().open(image).expect("the volume opens");
        let seen = Ours::new(&volume).flags_and_projects();
        volume.close().expect("closed");
        seen
    });
    assert_eq!(
        worlds[1], worlds[0],
        "{what}: the images differ (ours left)"
    );
}
