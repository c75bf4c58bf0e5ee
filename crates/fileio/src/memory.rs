//! How much memory the process may use: the machine's, or less if a control group or resource limit says so.
//!
//! Read as text from `/proc` and `/sys/fs/cgroup`. Unreadable or invalid values are ignored: they never raise
//! the result above the machine's memory and never cause an error.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Assumed if no source says how much memory there is.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// The smallest default budget.
const MIN_BUDGET_BYTES: u64 = 16 << 20;

/// Maximum depth of control groups that is considered.
const MAX_DEPTH: usize = 64;

/// Maximum bytes read of one file.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Memory that this process may use, in bytes: the smallest of the machine's memory, the limits of its
/// control groups (version 2: `memory.max`, `memory.high`; version 1: `memory.limit_in_bytes`; its own group
/// and all ancestors), and the resource limits on address space and data.
pub fn allowed_bytes() -> u64 {
    allowed_by(&read_file)
}

/// The default of [`crate::CacheOptions::budget_bytes`]: a quarter of [`allowed_bytes`].
pub fn default_budget_bytes() -> u64 {
    budget_of(allowed_bytes())
}

fn budget_of(allowed_bytes: u64) -> u64 {
    (allowed_bytes / 4).max(MIN_BUDGET_BYTES)
}

fn read_file(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(MAX_TEXT_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// [`allowed_bytes`], reading files with `read`.
fn allowed_by(read: &dyn Fn(&Path) -> Option<String>) -> u64 {
    let text = |path: &str| read(Path::new(path)).unwrap_or_default();
    let groups = control_groups(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
    let group_limits = groups
        .iter()
        .flat_map(Hierarchy::limit_files)
        .filter_map(|path| bytes(&read(&path)?));
    machine_bytes(&text("/proc/meminfo"))
        .into_iter()
        .chain(resource_limits(&text("/proc/self/limits")))
        .chain(group_limits)
        .min()
        .unwrap_or(UNKNOWN_BYTES)
}

/// Parses a limit file: a number of bytes. `max` means no limit; so does zero, with which nothing could run.
fn bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|&bytes| bytes > 0)
}

/// `MemTotal` of `/proc/meminfo`, given in KiB.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    bytes(line.split_whitespace().next()?)?.checked_mul(1024)
}

/// The soft limits on address space and data in `/proc/self/limits`.
fn resource_limits(limits: &str) -> Vec<u64> {
    let soft = |line: &str| {
        ["Max address space", "Max data size"]
            .iter()
            .find_map(|name| line.strip_prefix(name))
            .and_then(|rest| bytes(rest.split_whitespace().next()?))
    };
    limits.lines().filter_map(soft).collect()
}

/// A control group hierarchy with a memory controller: its mount point and this process's group in it.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    mounted_at: PathBuf,
    /// The process's group, relative to the mount; all components are normal.
    group: PathBuf,
    files: &'static [&'static str],
}

impl Hierarchy {
    /// The limit files of the group and of all its ancestors.
    fn limit_files(&self) -> Vec<PathBuf> {
        let depth = self.group.components().count().min(MAX_DEPTH);
        let groups = self.group.ancestors().take(depth + 1);
        groups
            .flat_map(|group| {
                let folder = self.mounted_at.join(group);
                self.files.iter().map(move |file| folder.join(file))
            })
            .collect()
    }
}

/// The hierarchies in `/proc/self/cgroup` that `/proc/self/mountinfo` lists as mounted.
fn control_groups(cgroup: &str, mountinfo: &str) -> Vec<Hierarchy> {
    cgroup
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
            let unified = controllers.is_empty();
            if !unified && !controllers.split(',').any(|one| one == "memory") {
                return None;
            }
            let mount = mountinfo.lines().filter_map(Mount::parse).find(|mount| {
                if unified {
                    mount.kind == "cgroup2"
                } else {
                    mount.kind == "cgroup" && mount.options.split(',').any(|one| one == "memory")
                }
            })?;
            Some(Hierarchy {
                group: below(group, mount.root),
                mounted_at: PathBuf::from(mount.mounted_at),
                files: if unified {
                    &["memory.max", "memory.high"]
                } else {
                    &["memory.limit_in_bytes"]
                },
            })
        })
        .collect()
}

/// The group relative to the mount's root. A group outside the mount (a path of another namespace), or one
/// with `..`, is taken to be the mount's root.
fn below(group: &str, root: &str) -> PathBuf {
    let inside = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
    let normal = |part: Component<'_>| matches!(part, Component::Normal(_));
    if inside.components().all(normal) {
        inside.to_path_buf()
    } else {
        PathBuf::new()
    }
}

/// The fields used from a line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
struct Mount<'a> {
    root: &'a str,
    mounted_at: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut what = what.split(' ');
        Some(Self {
            root: place.next()?,
            mounted_at: place.next()?,
            kind: what.next()?,
            options: what.nth(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const MEMINFO: &str = "MemTotal:       16384000 kB\nMemFree:  1 kB\n";
    const UNLIMITED: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max data size             unlimited            unlimited            bytes     \n\
        Max address space         unlimited            unlimited            bytes     \n";

    fn allowed(files: &[(&str, &str)]) -> u64 {
        let files: HashMap<PathBuf, String> = files
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect();
        allowed_by(&|path| files.get(path).cloned())
    }

    #[test]
    fn only_the_machines_memory_limits() {
        let machine = 16_384_000 << 10;
        assert_eq!(allowed(&[("/proc/meminfo", MEMINFO)]), machine);
        let files = [("/proc/meminfo", MEMINFO), ("/proc/self/limits", UNLIMITED)];
        assert_eq!(allowed(&files), machine);
        assert_eq!(allowed(&[]), UNKNOWN_BYTES);
        assert!(allowed_bytes() > 0);
    }

    #[test]
    fn resource_limits_count() {
        let limited = UNLIMITED.replace("space         unlimited ", "space         1073741824");
        assert_ne!(limited, UNLIMITED);
        let files = [("/proc/meminfo", MEMINFO), ("/proc/self/limits", &limited)];
        assert_eq!(allowed(&files), 1 << 30);
    }

    const V2: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let group = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/system.slice/a.service\n"),
            ("/proc/self/mountinfo", V2),
        ];
        let with = |more: &[(&'static str, &'static str)]| {
            let mut files = group.to_vec();
            files.extend_from_slice(more);
            allowed(&files)
        };
        let own = "/sys/fs/cgroup/system.slice/a.service/memory.max";
        let own_high = "/sys/fs/cgroup/system.slice/a.service/memory.high";
        let slice = "/sys/fs/cgroup/system.slice/memory.max";
        assert_eq!(with(&[(own, "max\n")]), 16_384_000 << 10);
        assert_eq!(with(&[(own, "536870912\n")]), 512 << 20);
        assert_eq!(
            with(&[(own, "536870912\n"), (own_high, "1048576\n")]),
            1 << 20
        );
        assert_eq!(
            with(&[(own, "536870912\n"), (slice, "268435456\n")]),
            256 << 20
        );
        assert_eq!(with(&[("/sys/fs/cgroup/memory.max", "4096\n")]), 4096);
    }

    #[test]
    fn the_first_version_of_control_groups() {
        let files = [
            ("/proc/meminfo", MEMINFO),
            (
                "/proc/self/cgroup",
                "4:cpu:/x\n3:hugetlb,memory:/docker/abc\n0::/\n",
            ),
            (
                "/proc/self/mountinfo",
                "1 2 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 4 2 0:4 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,hugetlb,memory\n",
            ),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "1000000000\n",
            ),
            ("/sys/fs/cgroup/cpu/x/memory.limit_in_bytes", "5\n"),
        ];
        assert_eq!(allowed(&files), 1_000_000_000);
    }

    #[test]
    fn a_group_of_another_namespace_is_the_mounted_one() {
        assert_eq!(below("/docker/abc/x", "/docker/abc"), Path::new("x"));
        assert_eq!(below("/elsewhere", "/docker/abc"), Path::new(""));
        assert_eq!(below("/../../etc", "/"), Path::new(""));
        assert_eq!(below("", "/"), Path::new(""));
    }

    #[test]
    fn invalid_values_are_ignored() {
        let machine = 16_384_000 << 10;
        for nonsense in [
            "",
            "0\n",
            "-1",
            "1e9",
            "99999999999999999999999",
            "\0\0",
            "max max",
            "ä",
        ] {
            let files = [
                ("/proc/meminfo", MEMINFO),
                ("/proc/self/cgroup", "0::/\n::::\n\n:::"),
                (
                    "/proc/self/mountinfo",
                    &format!("{V2}- - -\n{nonsense}\n - cgroup2\n"),
                ),
                ("/sys/fs/cgroup/memory.max", nonsense),
                ("/sys/fs/cgroup/memory.high", nonsense),
            ];
            assert_eq!(allowed(&files), machine, "{nonsense:?}");
        }
        assert_eq!(
            allowed(&[("/proc/meminfo", "MemTotal: 18446744073709551615 kB")]),
            UNKNOWN_BYTES
        );
        assert_eq!(allowed(&[("/proc/meminfo", "MemTotal:")]), UNKNOWN_BYTES);
    }

    #[test]
    fn a_path_without_end_is_bounded() {
        let deep = Hierarchy {
            mounted_at: PathBuf::from("/m"),
            group: "a/".repeat(100_000).into(),
            files: &["memory.max"],
        };
        assert_eq!(deep.limit_files().len(), MAX_DEPTH + 1);
    }

    #[test]
    fn the_default_budget() {
        assert_eq!(budget_of(16 << 30), 4 << 30);
        assert_eq!(budget_of(4096), MIN_BUDGET_BYTES);
    }
}
