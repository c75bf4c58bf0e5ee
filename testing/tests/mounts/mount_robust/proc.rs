//! Information about a process from `/proc`.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Anonymous memory of the process, in bytes.
pub(crate) fn anonymous_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.expect("RssAnon of a process that lives") << 10
}

/// Voluntary context switches of each thread so far, that is, how often it slept and was woken. Without the
/// kernel's workers of io_uring, which exist where a request could not be started at once: they wake every
/// five seconds for as long as the ring exists, and do nothing. Their processor time is part of [`ticks`].
pub(crate) fn switches(pid: u32) -> BTreeMap<OsString, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process that lives");
    let of_one = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        // It may have ended meanwhile.
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        if status.starts_with("Name:\tiou-wrk-") {
            return None;
        }
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some((task.file_name(), line?.trim().parse().ok()?))
    };
    tasks.filter_map(of_one).collect()
}

/// The threads that woke since `before`, with how often, without those that have ended.
pub(crate) fn woken_since(before: &BTreeMap<OsString, u64>, pid: u32) -> Vec<(String, u64)> {
    let of_one = |(thread, now): (OsString, u64)| {
        let times = now.saturating_sub(before.get(&thread).copied().unwrap_or(0));
        let id = thread.to_string_lossy();
        let name = std::fs::read_to_string(format!("/proc/{pid}/task/{id}/comm"));
        (times > 0).then(|| (format!("{id} {}", name.unwrap_or_default().trim()), times))
    };
    switches(pid).into_iter().filter_map(of_one).collect()
}

/// Clock ticks of CPU time of the process so far, user and system.
pub(crate) fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process that lives");
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    // Fields 14 and 15; the first one after the name is field 3.
    let fields = behind.split(' ').skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// The names of the threads with the policy `SCHED_IDLE`, the kernel's workers of io_uring included.
pub(crate) fn idle_policy(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process that lives");
    let of_one = |task: std::io::Result<std::fs::DirEntry>| {
        // It may have ended meanwhile.
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        let (name, rest) = stat.rsplit_once(") ")?;
        // Field 41; the first one after the name is field 3.
        let policy = rest.split(' ').nth(38)?;
        (policy == "5").then(|| name.to_owned())
    };
    tasks.filter_map(of_one).collect()
}
