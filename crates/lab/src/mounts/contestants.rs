//! The mounts that an experiment compares, and their ratios: our mount over each transport, one of them twice
//! as a control, the kernel's ext4, `fuse2fs`, and, as the least that requests cost, our server without a
//! volume.

use super::{System, mounted};
use crate::outcome::Outcome;

/// The kernel's ext4.
const KERNEL: &str = "kernel ext4";
/// The FUSE server of e2fsprogs.
const FUSE2FS: &str = "fuse2fs";
/// Our mount on the first transport again. The distance of its ratio from 1 is the noise of the others.
const AGAIN: &str = "ours, again";
/// The kernel's switch for FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The ways for requests to reach our server: our mount, the mount option for the way, our mount with
/// `-o small_files`, and the server without a volume.
struct Transport {
    ours: &'static str,
    options: &'static str,
    small_files: (&'static str, &'static str),
    null: &'static str,
}

const IO_URING: Transport = Transport {
    ours: "ours, io_uring",
    options: "with=io_uring",
    small_files: ("small_files, io_uring", "with=io_uring,small_files"),
    null: "null, io_uring",
};
const DEV_FUSE: Transport = Transport {
    ours: "ours, /dev/fuse",
    options: "without=io_uring",
    small_files: ("small_files, /dev/fuse", "without=io_uring,small_files"),
    null: "null, /dev/fuse",
};

/// One way to mount the image.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    /// The name in tables.
    pub(crate) name: &'static str,
    pub(super) system: System,
    pub(super) options: Option<&'static str>,
}

impl Contestant {
    /// All contestants that this user can mount on this machine. The others are noted in `outcome`. With
    /// `null`, our mount with `small_files` and our server without a volume are among them, on each
    /// transport.
    pub(crate) fn all(outcome: &mut Outcome, null: bool) -> Vec<Contestant> {
        let mut all = Vec::new();
        let mut add = |name, system, options| {
            all.push(Contestant {
                name,
                system,
                options,
            });
        };
        let transports = transports(outcome);
        for Transport {
            ours,
            options,
            small_files: (small, with),
            null: floor,
        } in &transports
        {
            add(ours, System::Ours, Some(*options));
            if null {
                add(small, System::Ours, Some(*with));
                add(floor, System::Null, Some(*options));
            }
        }
        if let Some(first) = transports.first() {
            add(AGAIN, System::Ours, Some(first.options));
        }
        let ext4 = System::Kernel("ext4".into());
        for (name, system) in [(KERNEL, ext4), (FUSE2FS, System::Fuse2fs)] {
            match system.unavailable() {
                None => add(name, system, None),
                Some(why) => outcome.note(format!("{name}: skipped: {why}")),
            }
        }
        all
    }
}

/// The transports that are possible here.
fn transports(outcome: &mut Outcome) -> Vec<Transport> {
    if let Some(why) = mounted::unavailable() {
        outcome.note(format!("our mount: skipped: {why}"));
        return Vec::new();
    }
    if std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y") {
        return vec![IO_URING, DEV_FUSE];
    }
    outcome.note(format!("io_uring: skipped: {SWITCH} is not Y"));
    vec![DEV_FUSE]
}

/// A quantity of which more is better, and the least that its ratios should be; `None` without a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    pub(crate) quantity: &'static str,
    /// Over the kernel's ext4: ours over io_uring, and through `/dev/fuse`.
    kernel: [Option<f64>; 2],
    fuse2fs: Option<f64>,
    /// Over the server without a volume on the same transport.
    null: Option<f64>,
}

impl Aim {
    /// Ratios without limits.
    pub(crate) const fn new(quantity: &'static str) -> Aim {
        Aim {
            quantity,
            kernel: [None, None],
            fuse2fs: None,
            null: None,
        }
    }

    /// With limits over the kernel's ext4: over io_uring, and through `/dev/fuse`.
    pub(crate) const fn kernel(self, io_uring: f64, dev_fuse: f64) -> Aim {
        Aim {
            kernel: [Some(io_uring), Some(dev_fuse)],
            ..self
        }
    }

    /// With a limit over fuse2fs.
    pub(crate) const fn fuse2fs(self, limit: f64) -> Aim {
        Aim {
            fuse2fs: Some(limit),
            ..self
        }
    }

    /// With a limit over the server without a volume.
    pub(crate) const fn null(self, limit: f64) -> Aim {
        Aim {
            null: Some(limit),
            ..self
        }
    }

    /// Computes the ratios of what was measured, and judges those with a limit.
    pub(crate) fn judge(&self, outcome: &mut Outcome) {
        for (transport, kernel) in [IO_URING, DEV_FUSE].iter().zip(self.kernel) {
            let Transport { ours, null, .. } = transport;
            let (small_files, _) = transport.small_files;
            self.compare(outcome, ours, KERNEL, kernel);
            self.compare(outcome, ours, FUSE2FS, self.fuse2fs);
            self.compare(outcome, ours, null, self.null);
            self.compare(outcome, null, KERNEL, None);
            self.compare(outcome, small_files, KERNEL, None);
            self.compare(outcome, small_files, ours, None);
        }
        self.compare(outcome, IO_URING.ours, DEV_FUSE.ours, None);
        let over_rings = !outcome.samples(IO_URING.ours, self.quantity).is_empty();
        let first = if over_rings { IO_URING } else { DEV_FUSE };
        self.compare(outcome, AGAIN, first.ours, None);
    }

    fn compare(&self, outcome: &mut Outcome, over: &str, under: &str, limit: Option<f64>) {
        let quantity = self.quantity;
        let name = format!("{quantity}: {over} / {under}");
        outcome.ratio_at_least(&name, quantity, (over, under), limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outcome with a sample of each of these contestants.
    fn measured(names: &[(&str, f64)]) -> Outcome {
        let mut outcome = Outcome::default();
        for (name, value) in names {
            outcome.sample(name, ("create", "files/s", *value));
        }
        outcome
    }

    fn judged(mut outcome: Outcome) -> Vec<(String, bool)> {
        let aim = Aim::new("create").kernel(0.4, 0.25).fuse2fs(6.0).null(0.7);
        aim.judge(&mut outcome);
        let record = outcome.into_record("test", "", std::collections::BTreeMap::new());
        let bars = record.lines.into_iter().filter_map(|line| match line {
            crate::record::Line::Bar(bar) => Some((bar.name, bar.met)),
            _ => None,
        });
        bars.collect()
    }

    #[test]
    fn each_transport_has_its_own_limit() {
        let found = judged(measured(&[
            (IO_URING.ours, 30.0),
            (DEV_FUSE.ours, 30.0),
            (IO_URING.null, 40.0),
            (KERNEL, 100.0),
            (FUSE2FS, 6.0),
        ]));
        let expected = [
            ("create: ours, io_uring / kernel ext4", false),
            ("create: ours, io_uring / fuse2fs", false),
            ("create: ours, io_uring / null, io_uring", true),
            ("create: ours, /dev/fuse / kernel ext4", true),
            ("create: ours, /dev/fuse / fuse2fs", false),
        ];
        assert_eq!(found, expected.map(|(name, met)| (name.to_owned(), met)));
    }

    #[test]
    fn what_did_not_run_is_not_judged() {
        let found = judged(measured(&[
            (DEV_FUSE.ours, 30.0),
            (AGAIN, 30.0),
            (KERNEL, 100.0),
        ]));
        let only = ("create: ours, /dev/fuse / kernel ext4".to_owned(), true);
        assert_eq!(found, [only]);
    }
}
