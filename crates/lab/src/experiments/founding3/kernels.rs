//! The kernel's targets: its file systems on loop devices, and a plain file.

use super::{Bench, MIB};
use crate::Result;
use crate::kernel::{may_mount, mkfs};
use crate::outcome::Outcome;
use crate::streams::kernel::{Kernel, KernelWay};

/// A target, and the ways in which the kernel writes it, by name.
pub(super) struct KernelTarget {
    pub(super) target: &'static str,
    pub(super) kernel: Kernel,
    pub(super) ways: Vec<(String, KernelWay)>,
}

/// The name of a way of writing; `buffered` is that of the kernel's page cache, `prefix` that of the others.
pub(super) fn name(buffered: &str, prefix: &str, way: KernelWay) -> String {
    match way {
        KernelWay::Buffered => buffered.to_owned(),
        KernelWay::DontCache => format!("{prefix} RWF_DONTCACHE"),
        KernelWay::Direct => format!("{prefix} O_DIRECT"),
    }
}

impl Bench<'_> {
    /// The kernel's targets that are available here.
    pub(super) fn kernels(&self, outcome: &mut Outcome) -> Result<Vec<KernelTarget>> {
        let plain = Kernel::Plain(self.written_out("kernel-plain", self.total_bytes)?);
        let names = ["kernel buffered", "kernel"];
        let mut all = vec![self.every_way(outcome, "plain file", plain, names)?];
        if !may_mount() {
            outcome.note(
                "the kernel's ext4 and xfs on loop were left out: they need root and loop devices",
            );
            return Ok(all);
        }
        let ext4 = Kernel::mount(&self.ext4("kernel-ext4")?, "ext4")?;
        let names = ["kernel ext4", "kernel ext4"];
        all.push(self.every_way(outcome, "image", ext4, names)?);
        match self.kernel_xfs() {
            Ok(kernel) => all.push(KernelTarget {
                target: "image",
                kernel,
                ways: vec![("kernel xfs".to_owned(), KernelWay::Buffered)],
            }),
            Err(why) => outcome.note(format!(
                "the kernel's xfs was left out (it needs mkfs.xfs, of the package xfsprogs, \
                 and a kernel with xfs): {why}"
            )),
        }
        Ok(all)
    }

    /// A target in every way that the kernel has for it.
    fn every_way(
        &self,
        outcome: &mut Outcome,
        target: &'static str,
        kernel: Kernel,
        [buffered, prefix]: [&str; 2],
    ) -> Result<KernelTarget> {
        let mut ways = Vec::new();
        for way in KernelWay::ALL {
            let name = name(buffered, prefix, way);
            match kernel.lacks(way, &self.source[..MIB as usize])? {
                None => ways.push((name, way)),
                Some(why) => {
                    outcome.note(format!("{target}, {name}: not available here: {why}"));
                }
            }
        }
        Ok(KernelTarget {
            target,
            kernel,
            ways,
        })
    }

    /// The file system of the report.
    fn kernel_xfs(&self) -> Result<Kernel> {
        let image = self.image("kernel-xfs")?;
        let mounted = mkfs("xfs", &image, &[]).and_then(|_| Kernel::mount(&image, "xfs"));
        if mounted.is_err() {
            std::fs::remove_file(&image)?;
        }
        mounted
    }
}
