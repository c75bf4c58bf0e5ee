//! What `/proc` tells of a process.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Its anonymous memory, in bytes.
pub(crate) fn anonymous_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.expect("RssAnon of a process that lives") << 10
}

/// How often each of its threads has gone to sleep by itself, and so was woken, up to now.
pub(crate) fn switches(pid: u32) -> BTreeMap<OsString, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process that lives");
    let of_one = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        // It may have ended by now.
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some((task.file_name(), line?.trim().parse().ok()?))
    };
    tasks.filter_map(of_one).collect()
}

/// How often threads were woken between two looks, those that ended in between left out.
pub(crate) fn woken(before: &BTreeMap<OsString, u64>, after: &BTreeMap<OsString, u64>) -> u64 {
    let of_one = |(thread, now): (&OsString, &u64)| {
        let then = before.get(thread).copied().unwrap_or(0);
        now.saturating_sub(then)
    };
    after.iter().map(of_one).sum()
}

/// Ticks of CPU time that it has had, its own and the system's for it.
pub(crate) fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process that lives");
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    // Fields 14 and 15; the first behind the name is the third.
    let fields = behind.split(' ').skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}
