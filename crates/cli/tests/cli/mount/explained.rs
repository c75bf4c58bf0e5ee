//! `explain mount`.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use throughline_testing::program::wait as wait_child;

use super::*;
use crate::common::noise;

#[test]
fn work_of_programs_on_a_mount_is_explained() {
    if skipped() {
        return;
    }
    for ending in [None, Some(Signal::INT)] {
        let image = image();
        let point = Point::new(&image, "mnt");
        let (path, account) = (image.path(), image.sibling("account"));
        let mut child = throughline()
            .args(["explain", "--json", "--to", account.to_str().unwrap()])
            .args(on_transport(["mount", path.to_str().unwrap(), point.str()]))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        point.wait_mounted(true);
        let data = noise(2 << 20, 9);
        fs::write(point.path("file"), &data).unwrap();
        let file = fs::File::open(point.path("file")).unwrap();
        file.sync_all().unwrap();
        drop(file);
        match ending {
            None => drop(ok(["umount", point.str()])),
            Some(signal) => {
                rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal)
                    .unwrap()
            }
        }
        let status = wait_child(&mut child, LIMIT);
        assert_eq!(status.and_then(|status| status.code()), Some(0));
        let all: Value = serde_json::from_str(&fs::read_to_string(&account).unwrap()).unwrap();
        let account = &all["accounts"][0];
        assert_eq!(account["series"], "image (throughline)");
        let bytes = |group: &str, name: &str| account[group][name]["bytes"].as_u64();
        assert_eq!(bytes("asked", "write"), Some(2 << 20), "{account}");
        assert_eq!(bytes("bios", "write data"), Some(2 << 20), "{account}");
        assert!(account["commits"]["count"].as_u64() > Some(0), "{account}");
        assert!(
            account["submitted_by"]["the flusher"].as_u64() > Some(0),
            "{account}"
        );
        image.assert_clean();
    }
}
